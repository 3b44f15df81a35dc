"""The committed measurements on models of two texts: the page of words says what they say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fastattnerase.studies.wen.paper import data_set

FOLDER = Path(__file__).parents[3] / "benchmarks/results/wen-pairs"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(README.split())
TITLES = {"snli": "SNLI", "babi_1": "bAbI 1", "babi_2": "bAbI 2", "babi_3": "bAbI 3"}


def measurements() -> pd.DataFrame:
    found = pd.concat(
        pd.read_csv(path, keep_default_na=False, na_values=[""])
        for path in sorted(FOLDER.glob("*/measurements.csv"))
    )
    return found.reset_index(drop=True)


def tau(row: pd.Series, name: str) -> str:
    """Write a tau with a star where it is not told from outputs shuffled."""
    if pd.isna(row[name]):
        return "–"
    star = " *" if str(row[f"{name}_chance"]) == "True" else ""
    return f"{row[name]:.2f}".replace("-", "−") + star


def rows() -> list[list[str]]:
    found = []
    for _, row in measurements().iterrows():
        model = f"{row['encoder']}, {row['attention']}"
        special = row["variant"] if row["variant"] != "normal" else row["mechanism"]
        if row["mechanism"] == "gumbel":
            special += f" {row['measurement'].replace('_', ' ')}"
        found.append(
            [
                TITLES[row["dataset"]],
                model,
                special.replace("_", " "),
                f"{row['accuracy']:.3f}",
                f"{row['largest_weight']:.2f}",
                f"{row['ranks']:.0f}",
                tau(row, "weighted"),
                tau(row, "plain"),
            ]
        )
    return found


def printed() -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows()) + "\n"


def test_the_table_of_the_page_is_that_of_the_files() -> None:
    assert printed() in README


def test_numbers_of_models() -> None:
    table = measurements()
    grid = table[(table["variant"] == "normal") & (table["mechanism"] == "softmax")]
    for name, own in grid.groupby("dataset"):
        assert len(own) == len(own[["encoder", "attention"]].drop_duplicates())
        best = own[(own["encoder"] == "bilstm") & (own["attention"] == "additive")]
        here = f"{best['accuracy'].iloc[0]:.2f}".removeprefix("0")
        paper = f"{data_set(str(name)).accuracy:.2f}".removeprefix("0")
        assert f"{TITLES[str(name)]} {here} (paper {paper})" in WORDS
    means = grid.groupby("dataset")[["weighted", "plain"]].mean()
    for name, mean in means.iterrows():
        words = f"{TITLES[str(name)]} {mean['weighted']:.2f} and {mean['plain']:.2f}"
        assert words.replace("-", "−") in WORDS
