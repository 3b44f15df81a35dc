"""The committed comparisons: their page of words says what their tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fastattnerase.studies.compare.findings import firsts

FOLDER = Path(__file__).parents[3] / "benchmarks/results/compare"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
COLUMNS = {
    "comp. ERASER": ("aopc_comprehensiveness", "eraser"),
    "comp. ferret": ("aopc_comprehensiveness", "ferret"),
    "comp. every": ("aopc_comprehensiveness", "every"),
    "suff. ERASER": ("aopc_sufficiency", "eraser"),
    "suff. ferret": ("aopc_sufficiency", "ferret"),
    "suff. every": ("aopc_sufficiency", "every"),
    "deletion": ("deletion_area", ""),
    "insertion": ("insertion_area", ""),
    "flip": ("flip_fraction", ""),
    "gap": ("optimality_gap", ""),
    "AUPRC": ("auprc", ""),
    "token F1": ("token_f1", ""),
    "IoU F1": ("iou_f1", ""),
}
TABLES = [
    ("SST, words erased at the input", "sst", "words"),
    ("SST, words erased at the attention layer", "sst", "attention layer"),
    ("Movie reviews, words erased at the input", "movies", "words"),
    ("Movie reviews, words erased at the attention layer", "movies", "attention layer"),
    ("Movie reviews, words that people marked", "movies", "human words"),
]


def read(data: str, table: str) -> pd.DataFrame:
    # A grid can be empty, which is no missing number.
    texts = {"grid": str, "reasons": str}
    found = pd.read_csv(FOLDER / data / f"{table}.csv", dtype=texts)
    return found.fillna({name: "" for name in texts if name in found})


def written(value: float) -> str:
    text = f"{value:.3f}".replace("-", "−")
    return text.removeprefix("−") if float(f"{value:.3f}") == 0 else text


@pytest.mark.parametrize(("heading", "data", "level"), TABLES)
def test_tables_of_the_page(heading: str, data: str, level: str) -> None:
    part = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    head, _, *rows = lines
    means, first = read(data, "means"), read(data, "firsts")
    means = means[means["level"] == level].set_index(["measure", "grid", "method"])["mean"]
    alone = {
        (row["measure"], row["grid"]): row["best"]
        for row in first[(first["level"] == level) & first["alone"]].to_dict("records")
    }
    methods = {key[2] for key in means.index}
    assert {row[0] for row in rows} == methods
    assert {COLUMNS[name] for name in head[1:]} == {key[:2] for key in means.index}
    for method, *cells in rows:
        for name, cell in zip(head[1:], cells, strict=True):
            key = COLUMNS[name]
            expected = written(means[(*key, method)])
            assert cell == (f"**{expected}**" if alone.get(key) == method else expected)


@pytest.mark.parametrize("data", ["sst", "movies"])
def test_findings_follow_from_the_tables(data: str) -> None:
    made = firsts(read(data, "means"), read(data, "pairs"))
    first = read(data, "firsts").to_dict("records")
    assert len(made) == len(first)
    for one, row in zip(made, first, strict=True):
        key = one.level, one.measure, one.grid
        assert key == (row["level"], row["measure"], row["grid"])
        assert (one.best, one.alone, " ".join(one.beside)) == (
            row["best"], row["alone"], row["beside"],
        )  # fmt: skip
        assert (one.attention, one.attention_random) == (row["attention"], row["attention_random"])


@pytest.mark.parametrize("data", ["sst", "movies"])
def test_places_of_attention_are_said(data: str) -> None:
    first = read(data, "firsts")
    for level, own in first.groupby("level"):
        name = "SST" if data == "sst" else "Movie reviews"
        alone = int(own["attention_alone"].sum())
        [told] = re.findall(rf"\| {name} \| {level} \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", PAGE)
        better = int((own["attention_random"] == "better").sum())
        beside = int(own["attention_beside"].sum())
        assert tuple(map(int, told)) == (len(own), alone, beside - alone, better)
