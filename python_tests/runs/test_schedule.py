"""Units side by side: what Ctrl-C does to those at work."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastattnerase.runs import schedule
from fastattnerase.runs.workspace import Record, Unit, Workspace


class LongWork(Workspace):
    """One unit that takes half a minute and says when it began and ended."""

    def units(self) -> list[Unit]:
        return [Unit("long", self.work, dict)]

    def work(self, folder: Path, report: Callable[[float], None]) -> dict[str, Any]:
        (folder / "begun").touch()
        for _ in range(60):
            time.sleep(0.5)
            report(0.5)
        (folder / "ended").touch()
        return {}


class Impatient:
    """Presses Ctrl-C as soon as a unit is at work."""

    def plan(self, costs: dict[str, float], done: int) -> None:
        assert len(costs) == 1

    def at(self, key: str, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    def finished(self, key: str, record: Record) -> None:
        raise AssertionError("it was not to end")


def test_ctrl_c_ends_the_units_at_work(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt):
        schedule.run(LongWork(tmp_path), 2, Impatient())
    assert (tmp_path / "long" / "begun").exists()
    assert not (tmp_path / "long" / "ended").exists()
    assert set(multiprocessing.active_children()) <= before


def test_no_jobs_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs: given 0, needed at least 1"):
        schedule.run(LongWork(tmp_path), 0, Impatient())
