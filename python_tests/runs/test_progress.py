"""Progress: every stage of a command reports its counts to its end; one time is left for all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs.progress_record import Recorded
from safetensors.torch import save_file
from studies.serrano_smith.hand_made import HandMade
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.cli.console import Stages, TrainingBars
from fastattnerase.cli.inputs import LOADING, OPENING
from fastattnerase.mi.config import COSTS as MEASURING_COSTS
from fastattnerase.runs.progress import TimeLeft, as_share, tracked
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import COSTS, ERASING, REPORT_COSTS, Config
from fastattnerase.studies.serrano_smith.report import build

FAST = Config(resamples=10, exhibits=2)


class Heads(HandMade):
    """Without the smallest sets, of which several attention heads have none."""

    def chunks(self, start: int):
        for chunk in super().chunks(start):
            values = chunk.batch.values[:, None].repeat(1, 2, 1)
            yield type(chunk)(
                type(chunk.batch)(
                    values,
                    chunk.batch.offsets,
                    weights=chunk.batch.weights[:, None].repeat(1, 2),
                    head_weight=torch.tensor([[[0.0], [0.0]], [[0.5], [0.5]]]),
                    head_bias=torch.zeros(2),
                    ids=chunk.batch.ids,
                )
            )

    def select(self, rows: list[int]):
        return iter(())


@pytest.mark.parametrize(
    ("source", "config"),
    [
        (HandMade, FAST),
        (HandMade, Config(resamples=3, rankings=("greedy",), items=True)),
        (Heads, FAST),
    ],
)
def test_every_stage_of_an_erasure_comes_to_its_end(
    source: type[HandMade], config: Config, tmp_path: Path
) -> None:
    seen = Recorded()
    experiment.run(source(), config, tmp_path, name="x", report=seen)
    seen.check(COSTS)
    assert seen.stages[ERASING] == [(0, 8), (3, 8), (6, 8), (8, 8)]


def test_a_run_that_goes_on_reports_from_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "_PART", 3)
    first, second = Recorded(), Recorded()
    with pytest.raises(KeyboardInterrupt):
        experiment.run(HandMade(stop_at=6), FAST, tmp_path, name="x", report=first)
    assert first.stages == {ERASING: [(0, 8), (3, 8), (6, 8)]}
    experiment.run(HandMade(), FAST, tmp_path, name="x", report=second)
    second.check(COSTS)
    assert second.stages[ERASING] == [(6, 8), (8, 8)]


@pytest.mark.usefixtures("undrawn_figures")
def test_every_stage_of_a_report_comes_to_its_end(tmp_path: Path) -> None:
    runs = [experiment.run(HandMade(), FAST, tmp_path / name, name=name) for name in ("one", "two")]
    seen = Recorded()
    build(runs, tmp_path / "report", seen)
    seen.check(REPORT_COSTS)
    for reports in seen.stages.values():  # one by one, none left out
        assert [done for done, _ in reports] == list(range(len(reports)))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """What the command line's bars were told."""
    recorded, show = Recorded(), Stages.__call__

    def told(stages: Stages, stage: str, done: int, total: int) -> None:
        recorded(stage, done, total)
        show(stages, stage, done, total)

    monkeypatch.setattr(Stages, "__call__", told)
    return recorded


def invoke(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("undrawn_figures")
def test_the_command_line_shows_every_stage(seen: Recorded, tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(0)
    offsets = torch.arange(0, 161, 4)
    save_file(
        {
            "values": torch.randn(160, 3, generator=chance),
            "offsets": offsets,
            "scores": torch.randn(160, generator=chance),
            "head_weight": torch.randn(2, 3, generator=chance),
            "head_bias": torch.zeros(2),
        },
        tmp_path / "layer.safetensors",
    )
    given = ("--tensors", tmp_path / "layer.safetensors", "--out")
    invoke("erase", *given, tmp_path / "run", "--resamples", 5)
    seen.check([*OPENING, *COSTS])
    seen.stages.clear()
    invoke("report", tmp_path / "run", "--out", tmp_path / "report")
    seen.check([LOADING, *REPORT_COSTS])
    seen.stages.clear()
    invoke("measure", *given, tmp_path / "measured", "--clusters", 3, "--ranks", 2)
    seen.check([*OPENING, *MEASURING_COSTS])


# --- what is left --------------------------------------------------------------------------------


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def left_after(costs: dict[str, float], seconds: float, *reports: tuple[str, float]) -> TimeLeft:
    clock = Clock()
    left = TimeLeft(costs, clock)
    for part, share in reports:
        left.at(part, share)
    clock.now += seconds
    return left


def test_what_is_left_is_estimated_over_all_stages() -> None:
    # 2 of 8 have taken 10 seconds: 6 are left.
    left = left_after({"a": 4.0, "b": 4.0}, 10.0, ("a", 0.0), ("a", 0.5))
    assert left.seconds() == 30.0
    assert left.text() == "30 s left"


def test_what_was_done_before_tells_nothing_of_the_speed() -> None:
    # A run that goes on at 3 of 4, and has come to 3.5: half of one in 5 seconds, 4.5 are left.
    left = left_after({"a": 4.0, "b": 4.0}, 5.0, ("a", 0.75), ("a", 0.875))
    assert left.seconds() == 45.0


@pytest.mark.parametrize(
    ("seconds", "reports", "text"),
    [
        (0.5, [("a", 0.0), ("a", 0.5)], "time left unknown yet"),
        (50.0, [("a", 0.5)], "time left unknown yet"),
        (50.0, [("other", 0.0), ("other", 1.0)], "time left unknown yet"),
        (100.0, [("a", 0.0), ("a", 0.5)], "about 2 min left"),
        (9.0, [("a", 0.0), ("a", 1.0)], "nothing left"),
    ],
)
def test_what_is_left_in_words(seconds: float, reports: list[tuple[str, float]], text: str) -> None:
    assert left_after({"a": 2.0}, seconds, *reports).text() == text


def test_counts_of_stages_are_a_share_of_all() -> None:
    shares: list[float] = []
    report = as_share(shares.append, {"a": 1.0, "b": 3.0})
    for stage in ("a", "b"):
        for _ in tracked(range(2), 2, stage, report):
            pass
    report("b", 0, 0)  # a stage of nothing is done
    assert shares == [0.0, 0.125, 0.25, 0.25, 0.625, 1.0, 1.0]


def test_one_bar_at_a_time_says_what_is_left() -> None:
    stages = Stages({"a": 1.0, "b": 1.0})
    with stages as bars:
        bars("a", 1, 1)
        bars("b", 0, 2)
        bars("b", 2, 2)
        tasks = stages.bars.tasks
        assert [task.fields["left"] for task in tasks] == ["", "nothing left"]
        assert [(task.completed, task.total) for task in tasks] == [(1, 1), (2, 2)]
    assert [task.fields["left"] for task in stages.bars.tasks] == ["", ""]
    with stages:
        stages("b", 0, 1)
    assert stages.bars.tasks == []  # what is not at its end goes on later


def test_bars_of_a_training_that_ends_with_an_error_estimate_nothing() -> None:
    bars = TrainingBars(4)

    def train() -> None:
        with bars:
            bars.update(bars.add_task("epochs", total=4), completed=1)
            assert bars.tasks[0].fields["left"] == "time left unknown yet"
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        train()
    assert bars.tasks[0].fields["left"] == ""
