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
                *(
                    "–" if pd.isna(row[name]) else f"{row[name]:.{digits}f}"
                    for name, digits in (("largest_weight", 2), ("ranks", 0))
                ),
                tau(row, "weighted"),
                tau(row, "plain"),
            ]
        )
    return found


def printed() -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows()) + "\n"


def grid() -> pd.DataFrame:
    table = measurements()
    return table[(table["variant"] == "normal") & (table["mechanism"] == "softmax")]


def models() -> int:
    """Count the models: those of Gumbel-softmax are measured three times."""
    return int(measurements()["measurement"].isin(["main", "noise_off"]).sum())


def shuffled() -> str:
    """Write how many weighted taus of the grid are not told from outputs shuffled."""
    chance = grid()["weighted_chance"].astype(str)
    return f"{(chance == 'True').sum()} of {len(chance)}"


def weak() -> dict[str, tuple[float, float]]:
    """Give the range of accuracies on data sets where no model of the grid has .3."""
    accuracy = grid().groupby("dataset")["accuracy"]
    return {
        str(name): (float(own.min()), float(own.max())) for name, own in accuracy if own.max() < 0.3
    }


def judged(start: str, folder: str) -> str:
    """Write how many models keep a statement, of several readings how many readings are kept."""
    claims = pd.read_csv(FOLDER / folder / "claims.csv")
    own = claims[claims["text"].str.startswith(start)]
    if len(own) > 1:
        own = own[own["text"].str.endswith("plain tau")]
    return f"{own['held'].sum()} of {own['cases'].sum()}"


def noise(folder: str) -> str:
    """Write the mean weighted tau of the Gumbel models with equal scores."""
    mean = pd.read_csv(FOLDER / folder / "gumbel.csv")["weighted_equal_scores"].mean()
    return f"{mean:.2f}".replace("-", "−")


def test_the_table_of_the_page_is_that_of_the_files() -> None:
    assert printed() in README


def test_the_statements_of_the_page_are_those_of_the_files() -> None:
    assert f"{models()} models on" in WORDS
    table = measurements()
    own = table[(table["dataset"] == "snli") & (table["measurement"] == "noise_off")]
    assert len(own) in (0, 9) or f"Of Gumbel-softmax on SNLI {len(own)} of nine models" in WORDS
    assert f"first rank alone: {shuffled()} weighted taus of the grid" in WORDS
    for name, (least, largest) in weak().items():
        assert f"{TITLES[name]} {least:.2f} to {largest:.2f}".replace(" 0.", " .") in WORDS
    assert f"{judged('Fix Attn', 'babi')} readings of fixed attention lower it" in WORDS
    assert f"{judged('Fix Rep', 'babi')} of fixed representations do not" in WORDS
    for folder in ("babi", "snli"):
        if (FOLDER / folder / "gumbel.csv").exists():
            for tau_name in ("plain", "weighted"):
                start = f"Gumbel-softmax does not lower {tau_name} tau, noise"
                for told in (judged(f"{start} off", folder), judged(f"{start} on", folder)):
                    assert told in WORDS
            assert noise(folder) in WORDS


def test_numbers_of_models() -> None:
    table = grid()
    for name, own in table.groupby("dataset"):
        assert len(own) == len(own[["encoder", "attention"]].drop_duplicates())
        best = own[(own["encoder"] == "bilstm") & (own["attention"] == "additive")]
        here = f"{best['accuracy'].iloc[0]:.2f}".removeprefix("0")
        paper = f"{data_set(str(name)).accuracy:.2f}".removeprefix("0")
        assert f"{TITLES[str(name)]} {here} (paper {paper})" in WORDS
    means = table.groupby("dataset")[["weighted", "plain"]].mean()
    for name, mean in means.iterrows():
        words = f"{TITLES[str(name)]} {mean['weighted']:.2f} and {mean['plain']:.2f}"
        assert words.replace("-", "−") in WORDS
