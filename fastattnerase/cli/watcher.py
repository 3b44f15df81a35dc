"""Progress of a study whose steps run side by side, on the error stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fastattnerase.cli.console import counted, err
from fastattnerase.runs.progress import TimeLeft

if TYPE_CHECKING:
    from fastattnerase.runs.workspace import Record
else:  # imported where they are used; hints that are read at run time say Any
    Record = Any


class Watcher:
    """Shows units at work, says when one is finished, and how much time is left.

    Args:
        describe: from a finished unit's numbers, what it found, in a few words.
    """

    def __init__(self, describe: Callable[[dict[str, Any]], str]) -> None:
        self.describe = describe
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=err,
            transient=True,
        )
        self.bars: dict[str, TaskID] = {}
        self.left = TimeLeft({})
        self.total = 0
        self.done = 0

    def __enter__(self) -> Watcher:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def plan(self, costs: dict[str, float], done: int) -> None:
        """Units will run at these costs; so many more were finished before."""
        self.left = TimeLeft(costs)
        self.total, self.done = len(costs) + done, done
        if done:
            verb = "was" if done == 1 else "were"
            err.print(f"{done} of {counted(self.total, 'step')} {verb} finished before")

    def at(self, key: str, share: float) -> None:
        """A unit has come so far."""
        if key not in self.bars:
            self.bars[key] = self.progress.add_task(key, total=1.0)
        self.left.at(key, share)
        told = f"{key}, {self.left.text()}"
        self.progress.update(self.bars[key], completed=share, description=told)

    def finished(self, key: str, record: Record) -> None:
        """A unit is finished."""
        self.left.at(key, 1.0)
        self.done += 1
        if key in self.bars:
            self.progress.remove_task(self.bars.pop(key))
        found = self.describe(record.numbers)
        err.print(
            f"[{self.done}/{self.total}] {key}: {record.seconds:.0f} s"
            f"{', ' if found else ''}{found}; {self.left.text()}",
            markup=False,
            soft_wrap=True,
        )
