"""What every command of the command line shares: output, progress, one line for a mistake."""

from __future__ import annotations

import contextlib
import errno
import io
import sys
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fastattnerase.cli.interrupts import INTERRUPTED, MESSAGE, at_work
from fastattnerase.extras import MissingPackageError

# Writing into an open file says no name: no space, over a quota, over the largest file allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
USER_ERROR = 2

# Names and folders are the user's: brackets and colons in them are no markup.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


class UsageError(ValueError):
    """Options that a command cannot be run with: one line that names the option."""


def prepare() -> None:
    """Let any text be printed: what the terminal's encoding lacks becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def counted(count: int, thing: str) -> str:
    """Write a number with what it counts: `1 row`, `2,000 rows`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn the user's mistakes and Ctrl-C into one line; what is unexpected keeps its traceback."""
    with at_work():
        try:
            yield
        except KeyboardInterrupt:
            fail(MESSAGE, INTERRUPTED)
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
            from fastattnerase.runs.rundir import RunError

            if not isinstance(error, (UsageError, DataError, RunError, ModelError)):
                raise
            fail(str(error))


def fail(message: str, code: int = USER_ERROR) -> None:
    """Print one line and end the command."""
    err.print("stopped:" if code == INTERRUPTED else "error:", style="bold red", end=" ")
    err.print(message, soft_wrap=True)
    raise typer.Exit(code) from None


def progress() -> Progress:
    """Make progress bars that say how much time is left."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
    )
