"""The committed study of Jain and Wallace: its page of words says what its tables say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from fastattnerase.attention_tests.correlation import PAIRS
from fastattnerase.data.presets import DATA_PRESETS
from fastattnerase.studies.jain_wallace.claims import claims, unskilled
from fastattnerase.studies.jain_wallace.figures import ENCODERS

FOLDER = Path(__file__).parents[3] / "benchmarks/results/jain-wallace"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(README.split())
ASKED = ("sst", "ag_news", "20news_sports", "imdb_5k")  # where the order of taus is asked for


def table(name: str) -> pd.DataFrame:
    found: pd.DataFrame = pd.read_csv(FOLDER / f"{name}.csv", keep_default_na=False, na_values=[""])
    return found


def number(value: float, digits: int = 2) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def titles() -> dict[str, str]:
    return dict(zip(table("table_1")["dataset"], table("table_1")["title"], strict=True))


def taus(encoder: str, attention: str = "additive") -> pd.DataFrame:
    """Mean taus over all documents of each data set, a column a pair."""
    rows = table("correlations")
    rows = rows[
        (rows["predicted"] == "all")
        & (rows["encoder"] == encoder)
        & (rows["attention"] == attention)
    ]
    found: pd.DataFrame = rows.pivot(index="dataset", columns="pair", values="mean")
    return found


def claim_rows() -> list[list[str]]:
    rows = table("claims").to_dict("records")
    return [[row[name] for name in ("text", "rule", "verdict", "here")] for row in rows]


def order_rows() -> list[list[str]]:
    """Mean taus of BiLSTM and MLP with additive attention, and the MLP's lead."""
    bilstm, mlp = taus("bilstm"), taus("mlp")
    return [
        [
            title,
            *(number(bilstm.loc[dataset, pair]) for pair in PAIRS),
            *(number(mlp.loc[dataset, pair]) for pair in PAIRS),
            number(mlp.loc[dataset, PAIRS[0]] - bilstm.loc[dataset, PAIRS[0]]),
        ]
        for dataset, title in titles().items()
    ]


def published_rows() -> list[list[str]]:
    """Table 2: each cell with the published one below it."""
    return [
        [
            titles()[row["dataset"]],
            str(row["class"]),
            *(f"{row[c]}<br>{row[f'{c}_published']}" for c in COLUMNS),
        ]
        for row in table("table_2").to_dict("records")
    ]


COLUMNS = ("gradient_bilstm", "gradient_mlp", "loo_bilstm")


def model_rows() -> list[list[str]]:
    return [
        [
            titles()[row["dataset"]],
            ENCODERS[row["encoder"]],
            row["attention"],
            *(number(row[name], 3) for name in ("accuracy", "accuracy_published", "majority")),
            f"{row['best_epoch']} of {row['epochs']}",
        ]
        for row in table("models").to_dict("records")
    ]


def printed(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


@pytest.mark.parametrize("rows", [claim_rows, order_rows, published_rows, model_rows])
def test_tables_of_the_page_are_those_of_the_files(rows: object) -> None:
    assert callable(rows)
    assert printed(rows()) in README


def test_statements_follow_from_the_tables() -> None:
    names = ("models", "correlations", "permutations", "adversaries")
    frames = [pd.read_csv(FOLDER / f"{name}.csv") for name in names]
    found = pd.DataFrame([vars(claim) for claim in claims(*frames)])
    assert found.to_csv(index=False) == (FOLDER / "claims.csv").read_text(encoding="utf-8")
    poor = [
        f"{titles()[row['dataset']]} with the {ENCODERS[row['encoder']]}"
        for row in unskilled(table("models")).to_dict("records")
    ]
    assert f"Left out: {', '.join(poor)}." in WORDS


def test_what_is_asked_of_the_study_holds() -> None:
    bilstm, mlp = taus("bilstm"), taus("mlp")
    for dataset in ASKED:
        own = bilstm.loc[dataset]
        assert own["gradient_loo"] > max(own["attention_gradient"], own["attention_loo"])
        assert mlp.loc[dataset, "attention_gradient"] >= own["attention_gradient"] + 0.1
    data = table("table_1").set_index("dataset")
    assert data.loc["sst", ["train", "dev", "test"]].tolist() == [
        "3034/3321", "397/424", "863/862"
    ]  # fmt: skip
    models = table("models")
    additive = models[(models["encoder"] == "bilstm") & (models["attention"] == "additive")]
    accuracy = additive.set_index("dataset")["accuracy"]
    assert accuracy["sst"] >= 0.78
    assert accuracy["snli"] > 0.5
    assert set(accuracy.index) == {*ASKED, "psytar", "snli", "babi_1", "babi_2", "babi_3"}
    assert set(accuracy.index) <= set(DATA_PRESETS)
    several = models.groupby("dataset").size()
    assert all(several[["sst", "ag_news", "snli", "babi_1"]] == 6)


def test_the_page_s_other_numbers() -> None:
    units = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["units"]
    minutes = sum(unit["seconds"] for unit in units.values()) / 60
    assert f"{len(table('models'))} models" in WORDS
    assert f"add up to {minutes:.0f} minutes" in WORDS
    overall = table("adversaries")
    overall = overall[(overall["predicted"] == "all") & (overall["largest_weight"] == "all")]
    share = overall["none_code"]
    assert f"in {100 * share.min():.0f} to {100 * share.max():.0f} % of the documents" in WORDS
    dot = taus("bilstm", "dot")["attention_gradient"]
    assert f"dot attention of the BiLSTM has {number(dot['sst'])} on SST" in WORDS
    gradient = {name: taus(name).loc["snli", "attention_gradient"] for name in ("mlp", "bilstm")}
    assert f"{number(gradient['mlp'])} against {number(gradient['bilstm'])} on SNLI" in WORDS
    loo = taus("mlp").loc["snli", "attention_loo"]
    assert f"with leave-one-out it has {number(loo)}" in WORDS
    models = ["dataset", "encoder", "attention", "seed"]
    heavy = table("permutations").query("predicted == 'all' and largest_weight == '.75 to 1'")
    unfit = unskilled(table("models"))[models].to_numpy().tolist()
    heavy = heavy[[row not in unfit for row in heavy[models].to_numpy().tolist()]]
    assert f"of {len(heavy)} models with documents that have one, none changes" in WORDS
    assert not (heavy["median"] < 0.1).any()
    assert f"in {(heavy['low'] < 0.1).sum()} of them a quarter" in WORDS
    assert f"{(heavy['documents'] < 10).sum()} of them have fewer than 10" in WORDS
    own = heavy[(heavy["encoder"] == "bilstm") & (heavy["attention"] == "additive")]
    median = own.set_index("dataset")["median"]
    assert f"SST's BiLSTM by {number(median['sst'])}, SNLI's by {number(median['snli'])}" in WORDS
