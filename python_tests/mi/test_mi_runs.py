"""Run directories of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from runs.progress_record import Recorded
from streams import random_batch

from fastattnerase.mi import Config, MeasurementError, load, measure, run
from fastattnerase.mi.config import COSTS, RANKING
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk

CONFIG = Config(clusters=6, shuffles=20)


class Source:
    """Forty random instances in batches of sixteen."""

    classes = ("no", "yes")
    batch = random_batch(40)

    def __init__(self) -> None:
        self.classes = ["no", "yes"]
        self.reads = 0

    def __len__(self) -> int:
        return 40

    def chunks(self, start: int) -> Iterator[Chunk]:
        self.reads += 1
        for begin in range(start, 40, 16):
            yield Chunk(self.batch[begin : begin + 16])

    def select(self, rows: list[int]) -> Iterator[Chunk]:
        return (Chunk(self.batch[row : row + 1]) for row in rows)

    def describe(self) -> dict[str, object]:
        return {"what": "forty"}


def test_a_run_is_the_measurement_written_down(tmp_path: Path) -> None:
    source = Source()
    result = run(source, CONFIG, tmp_path / "run", name="demo")
    expected = measure([source.batch], CONFIG)
    for table in ("ranks", "correlations", "outputs", "instances"):
        pd.testing.assert_frame_equal(
            getattr(result.measurement, table), getattr(expected, table), check_exact=True
        )
    assert result.measurement.summary == expected.summary
    assert result.run.name == "demo"
    assert result.run.config["clusters"] == 6
    assert "scikit-learn" in result.run.versions
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        ".lock",
        "correlations.parquet",
        "instances.parquet",
        "outputs.parquet",
        "ranks.parquet",
        "repeats.parquet",
        "result.json",
        "run.json",
    ]


@pytest.mark.parametrize("clusters", [6, "largest"])
@pytest.mark.parametrize("codebook", ["rank", "shared"])
def test_every_stage_reports_to_its_end(clusters: Any, codebook: Any, tmp_path: Path) -> None:
    config = replace(CONFIG, clusters=clusters, codebook=codebook, candidates=(2, 6))
    seen = Recorded()
    run(Source(), config, tmp_path, name="demo", report=seen)
    seen.check(COSTS)
    assert seen.stages[RANKING] == [(0, 40), (16, 40), (32, 40), (40, 40)]


def test_a_finished_run_is_not_repeated_and_an_unfinished_one_is(tmp_path: Path) -> None:
    source = Source()
    first = run(source, CONFIG, tmp_path, name="demo")
    assert run(source, CONFIG, tmp_path, name="demo").measurement.summary == (
        first.measurement.summary
    )
    assert source.reads == 2  # once for the measurement, once for its repeats
    (tmp_path / "result.json").unlink()
    with pytest.raises(RunError, match="is not finished; run the same measurement again"):
        load(tmp_path)
    run(source, CONFIG, tmp_path, name="demo")
    assert source.reads == 4
    assert load(tmp_path).run.source == {"what": "forty"}


def test_other_runs_are_not_overwritten(tmp_path: Path) -> None:
    run(Source(), CONFIG, tmp_path, name="demo")
    message = r"clusters is 6 there and 5 here; shuffles is 20 there and 100 here"
    with pytest.raises(RunError, match=rf"with another config \({message}\); choose another"):
        run(Source(), Config(clusters=5), tmp_path, name="demo")
    (tmp_path / "run.json").write_text('{"kind": "serrano_smith"}')
    with pytest.raises(RunError, match="another kind"):
        run(Source(), CONFIG, tmp_path, name="demo")
    with pytest.raises(RunError, match="is a run of kind 'serrano_smith', not 'mutual_info"):
        load(tmp_path)


def test_a_measurement_that_fails_leaves_an_unfinished_run(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="clusters: given 50, needed at most"):
        run(Source(), Config(clusters=50), tmp_path, name="demo")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "run.json"]
    # Nothing in it is worth keeping: another configuration may take the folder.
    run(Source(), CONFIG, tmp_path, name="demo")
    assert run(Source(), CONFIG, tmp_path, name="renamed").run.name == "renamed"
    assert load(tmp_path).run.name == "renamed"


class Decided(Source):
    """The same instances with decisions, those of the first three of which are others."""

    def __init__(self, decisions: np.ndarray, others: int) -> None:
        super().__init__()
        self.decisions = torch.from_numpy(decisions)
        self.decisions[:others] = 1 - self.decisions[:others]

    def chunks(self, start: int) -> Iterator[Chunk]:
        done = start
        for chunk in super().chunks(start):
            stop = done + len(chunk.batch)
            yield replace(chunk, model_label=self.decisions[done:stop])
            done = stop


@pytest.mark.parametrize("others", [0, 3])
def test_decisions_that_are_not_the_models_are_told_first(others: int, tmp_path: Path) -> None:
    predicted = measure([Source.batch], CONFIG).instances
    assert predicted["row"].tolist() == list(range(40))
    source = Decided(predicted["predicted"].to_numpy(copy=True), others)
    result = run(source, CONFIG, tmp_path / "run", name="demo")
    first = result.measurement.summary.notices[:1]
    if others:
        assert first[0].startswith("3 of 40 decisions computed from these values")
    else:
        assert not any("decisions computed" in notice for notice in first)
