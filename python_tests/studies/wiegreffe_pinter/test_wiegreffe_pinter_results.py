"""The committed tests of Wiegreffe and Pinter: the page of words says what the tables say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fastattnerase.models.published import pair
from fastattnerase.studies.wiegreffe_pinter.claims import claims
from fastattnerase.studies.wiegreffe_pinter.tables import curve_table

FOLDER = Path(__file__).parents[3] / "benchmarks/results/wiegreffe-pinter"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(README.split())


def table(name: str) -> pd.DataFrame:
    found: pd.DataFrame = pd.read_csv(FOLDER / f"{name}.csv")
    return found


def number(value: float, digits: int = 3) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def titles() -> dict[str, str]:
    return dict(zip(table("table_1")["dataset"], table("table_1")["title"], strict=True))


def claim_rows() -> list[list[str]]:
    found = []
    for row in table("claims").to_dict("records"):
        name, _, rest = str(row["case"]).partition(" ")
        case = titles()[name] + rest.removeprefix("bilstm additive")
        found.append([row["text"], case, row["verdict"], row["here"]])
    return found


def uniform_rows() -> list[list[str]]:
    return [
        [
            titles()[row["dataset"]],
            *(number(row[name]) for name in ("paper_base_f1", "base_f1")),
            *(number(row[name]) for name in ("paper_uniform_f1", "uniform_f1")),
            *(number(row[name]) for name in ("base_accuracy", "uniform_accuracy", "majority")),
            f"{row['p_mcnemar']:.2g}",
        ]
        for row in table("table_2").to_dict("records")
    ]


def diagnostic_rows() -> list[list[str]]:
    return [
        [
            titles()[row["dataset"]],
            *(
                number(row[f"{place}{name}_f1"])
                for name in ("uniform", "learned", "base", "adversary")
                for place in ("paper_", "")
            ),
            number(row["lender_jsd"]),
        ]
        for row in table("table_3").to_dict("records")
    ]


def adversary_rows() -> list[list[str]]:
    return [
        [
            titles()[row["dataset"]],
            f"{row['strength']:g}",
            str(row["max_epochs"]),
            *(
                number(row[name])
                for name in ("f1", "paper_f1", "tvd_halved", "paper_tvd", "jsd", "paper_jsd")
            ),
            number(row["train_tvd"], 4),
        ]
        for row in table("table_4").to_dict("records")
    ]


def printed(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


@pytest.mark.parametrize("rows", [claim_rows, uniform_rows, diagnostic_rows, adversary_rows])
def test_tables_of_the_page_are_those_of_the_files(rows: object) -> None:
    assert callable(rows)
    assert printed(rows()) in README


def test_statements_and_curve_follow_from_the_tables() -> None:
    curve = curve_table(table("table_4"))
    assert curve.to_csv(index=False) == (FOLDER / "curve.csv").read_text(encoding="utf-8")
    found = claims(table("table_2"), table("table_3"), table("table_4"), curve)
    written = pd.DataFrame([vars(claim) for claim in found])
    assert written.to_csv(index=False) == (FOLDER / "claims.csv").read_text(encoding="utf-8")


def test_what_is_asked_of_the_study_holds() -> None:
    uniform = table("table_2")
    assert set(uniform["dataset"]) == {
        "sst", "imdb_5k", "ag_news", "20news_sports", "snli", "babi_1"
    }  # fmt: skip
    seeds = table("seeds").groupby("dataset")["seeds"].first()
    assert seeds.to_dict() == {"sst": 8, "imdb_5k": 4}
    rows = table("table_4")
    curve = rows[(rows["dataset"] == "sst") & (rows["max_epochs"] == 20)]
    assert len(curve) >= 7
    assert (curve["strength"].min(), curve["strength"].max()) == (0, 0.01)
    assert (curve.set_index("strength")["train_tvd"])[0.0] <= 0.05
    [found] = table("curve").to_dict("records")
    assert found["spearman"] >= 0.8
    published = rows[rows["paper_jsd"].notna()]
    assert set(zip(published["dataset"], published["strength"], strict=True)) == {
        ("sst", 5.25e-4), ("imdb_5k", 8e-4)
    }  # fmt: skip
    assert set(table("table_3")["dataset"]) == {"sst", "imdb_5k"}


def test_the_page_s_other_numbers() -> None:
    units = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["units"]
    minutes = sum(unit["seconds"] for unit in units.values()) / 60
    assert f"{len(table('models'))} models" in WORDS
    assert f"add up to {minutes:.0f} minutes" in WORDS
    [curve] = table("curve").to_dict("records")
    assert f"Spearman {number(curve['spearman'], 2)} over {curve['values']} values" in WORDS
    assert f"from {number(curve['least_jsd'], 2)} to {number(curve['largest_jsd'], 2)}" in WORDS
    seeds = table("seeds").query("largest_weight == 'all'").set_index("dataset")
    sought = table("sought").set_index("dataset")
    for name in ("sst", "imdb_5k"):
        own = number(seeds.loc[name, "jsd_median"], 2)
        other = number(sought.loc[name, "jsd_median"], 2)
        assert f"{titles()[name]}: seeds {own}, sought {other}" in WORDS
    falls = table("table_2").set_index("dataset")["drop_accuracy"]
    several = np.array([pair(name) is not None for name in falls.index])
    for texts, name in (("two", several), ("one", ~several)):
        ends = falls[name].min(), falls[name].max()
        assert f"of {texts} text{'s' * (texts == 'two')} by {number(ends[0])} to" in WORDS
        assert f"to {number(ends[1])}" in WORDS
