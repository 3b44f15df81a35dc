"""What every command of the command line shares: output, progress, one line for a mistake."""

from __future__ import annotations

import contextlib
import errno
import io
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from fastattnerase.cli.interrupts import MESSAGE, at_work, exit_code
from fastattnerase.extras import MissingPackageError
from fastattnerase.plurals import plural
from fastattnerase.runs.progress import TimeLeft
from fastattnerase.runs.undrawn import share_of

# Writing into an open file says no name: no space, over a quota, over the largest file allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
USER_ERROR = 2

# Names and folders are the user's: brackets and colons in them are no markup.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)

_REDRAWN = 0.05  # seconds between two moves of a bar


class UsageError(ValueError):
    """Options that a command cannot be run with: one line that names the option."""


def prepare() -> None:
    """Let any text be printed: what the terminal's encoding lacks becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def counted(count: int, thing: str) -> str:
    """Write a number with what it counts: `1 row`, `2,000 rows`."""
    return f"{count:,} {plural(count, thing)}"


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn the user's mistakes and Ctrl-C into one line; what is unexpected keeps its traceback."""
    with at_work():
        try:
            yield
        except KeyboardInterrupt:
            stop()
        except MissingPackageError as error:
            fail(str(error))
        except OSError as error:
            if error.filename is not None:
                fail(f"{error.filename}: {error.strerror}")
            if error.errno not in _FULL:
                raise
            fail(f"{error.strerror}; what is finished is kept, the same command goes on from there")
        except ValueError as error:
            from fastattnerase.data.errors import DataError
            from fastattnerase.models.errors import ModelError
            from fastattnerase.rankings.base import RankingError
            from fastattnerase.runs.rundir import RunError

            if not isinstance(error, (UsageError, DataError, RankingError, RunError, ModelError)):
                raise
            fail(str(error))


def fail(message: str) -> None:
    """Print one line and end the command."""
    _end("error:", message, USER_ERROR)


def stop() -> None:
    """Say that Ctrl-C or SIGTERM has ended the command, and end it."""
    _end("stopped:", MESSAGE, exit_code())


def _end(word: str, message: str, code: int) -> None:
    err.print(word, style="bold red", end=" ")
    err.print(message, soft_wrap=True)
    raise typer.Exit(code) from None


class Stages:
    """Draws a bar for each stage of a command, and one estimate of the time that is left.

    It is what stages report to. Bars are drawn within `with`, which a command may leave to print
    something and enter again.

    Args:
        costs: the stages, how long each takes against the others.

    Example:
        >>> from fastattnerase.cli.console import Stages
        >>> stages = Stages({"erasing": 2, "drawing intervals": 1})
        >>> with stages:
        ...     stages("erasing", 10, 10)
    """

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._left = TimeLeft(costs)
        self.bars = _bars()
        self._tasks: dict[str, TaskID] = {}
        self._drawn = 0.0

    def __enter__(self) -> Stages:
        self.bars, self._tasks = _bars(), {}
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.bars.tasks:
            if task.finished:
                self.bars.update(task.id, left="")
            else:  # it goes on later in a bar of its own, or ends with an error
                self.bars.remove_task(task.id)
        self.bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar of a stage."""
        self._left.at(stage, done / total if total else 1.0)
        now = time.monotonic()
        if stage not in self._tasks:
            for task in self._tasks.values():
                self.bars.update(task, left="")
            self._tasks[stage] = self.bars.add_task(stage, total=total, left="")
        elif done < total and now - self._drawn < _REDRAWN:
            return
        self._drawn = now
        self.bars.update(self._tasks[stage], completed=done, total=total, left=self._left.text())


class TrainingBars(Progress):
    """Draws the bars of a training, and one estimate of the time that is left.

    Args:
        epochs: at most; the first bar counts them, the second documents of one.
    """

    def __init__(self, epochs: int) -> None:
        super().__init__(*_columns(), console=err)
        self._epochs = epochs
        self._left = TimeLeft({"training": 1.0})

    def update(self, *arguments: Any, **options: Any) -> None:
        """Move a bar, and estimate anew."""
        super().update(*arguments, **options)
        tasks = self.tasks
        self._left.at("training", share_of(tasks, self._epochs))
        super().update(tasks[0].id, left=self._left.text())

    def add_task(self, *arguments: Any, **options: Any) -> TaskID:
        """Begin a bar."""
        return super().add_task(*arguments, left="", **options)

    def stop(self) -> None:
        """End the bars: nothing is left to estimate, also after an error."""
        for task in self.tasks:
            super().update(task.id, left="")
        super().stop()


def _bars() -> Progress:
    return Progress(*_columns(), console=err)


def _columns() -> list[ProgressColumn]:
    return [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    ]
