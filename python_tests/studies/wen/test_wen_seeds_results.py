"""The committed grid of five seeds: its page of words says what its tables say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parents[3] / "benchmarks/results/wen-seeds"
LINES = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
NAMES = {
    "weights permuted within each instance": "permuted",
    "equal weights": "equal",
    "untrained attention": "untrained",
}


def test_nulls_of_the_page_are_those_of_the_table() -> None:
    table = pd.read_csv(FOLDER / "nulls.csv").set_index(["null", "tau"])
    rows = [line.strip("| ").split(" | ") for line in LINES if line.startswith("| ")]
    found = {NAMES[row[0]]: row[1:] for row in rows if row[0] in NAMES}
    assert found.keys() == set(NAMES.values())
    for null, cells in found.items():
        expected = []
        for tau in ("weighted", "plain"):
            row = table.loc[(null, tau)]
            expected += [
                f"{row['exceeds']:.0f} of {row['models']:.0f}",
                f"{row['null_mean']:.3f}",
                f"{row['difference']:.3f} ± {row['error']:.3f}",
            ]
        assert cells == expected, null


def test_every_model_of_the_grid_has_five_seeds() -> None:
    measured = pd.read_csv(FOLDER / "measurements.csv")
    grid = measured[(measured["variant"] == "normal") & (measured["mechanism"] == "softmax")]
    seeds = grid.groupby(["dataset", "encoder", "attention"])["seed"].agg(list)
    assert len(seeds) == 18
    assert all(sorted(of_cell) == [0, 1, 2, 3, 4] for of_cell in seeds)
