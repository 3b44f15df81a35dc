"""Units side by side: what Ctrl-C does to those at work."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastattnerase.runs import schedule


@dataclass(frozen=True)
class Unit:
    key: str = "long"
    cost: float = 1.0


@dataclass(frozen=True)
class LongWork:
    """One unit that takes half a minute and says when it began and ended."""

    out: Path

    def units(self) -> dict[Unit, list[Unit]]:
        return {Unit(): []}

    def done(self, unit: Unit) -> dict[str, Any] | None:
        return None

    def run(self, unit: Unit, report: Callable[[float], None]) -> dict[str, Any]:
        (self.out / "begun").touch()
        for _ in range(60):
            time.sleep(0.5)
            report(0.5)
        (self.out / "ended").touch()
        return {}

    def write_manifest(self) -> dict[str, Any]:
        return {}


class Impatient:
    """Presses Ctrl-C as soon as a unit is at work."""

    def plan(self, costs: dict[Unit, float], done: int) -> None:
        assert len(costs) == 1

    def at(self, unit: Unit, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    def finished(self, unit: Unit, record: dict[str, object]) -> None:
        raise AssertionError("it was not to end")


def test_ctrl_c_ends_the_units_at_work(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt):
        schedule.run(LongWork(tmp_path), 2, Impatient())
    assert (tmp_path / "begun").exists()
    assert not (tmp_path / "ended").exists()
    assert set(multiprocessing.active_children()) <= before


def test_no_jobs_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs is 0; at least 1 is needed"):
        schedule.run(LongWork(tmp_path), 0, Impatient())
