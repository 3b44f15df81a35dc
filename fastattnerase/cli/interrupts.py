"""Ctrl-C and SIGTERM end a command with one line, from its first moment to its last."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
MESSAGE = "interrupted; what is finished is kept, the same command goes on from there"
_SHOW_CURSOR = "\x1b[?25h"


class _Interrupts:
    """What SIGINT and SIGTERM do.

    While a command works, the first one raises `KeyboardInterrupt`, a second one changes nothing,
    and a third one ends the process where it is, for what is finished is kept anyway. Before and
    after, and while a module is imported, where an exception could get lost, the first one does.
    """

    def __init__(self) -> None:
        self.at_work = False
        self.count = 0
        self.code = INTERRUPTED

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self.code = 128 + number  # as a shell has it of what a signal ended
        if self.count == 1 and self.at_work and not _importing(frame):
            raise KeyboardInterrupt
        if self.count == 2 and self.at_work:
            return
        told = f"stopped: {MESSAGE}\n" if self.count == 1 else ""
        if sys.stderr.isatty():
            told = _SHOW_CURSOR + told  # which a progress bar hides
        os.write(2, told.encode())
        os._exit(self.code)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


_INTERRUPTS = _Interrupts()


def handle() -> None:
    """Take SIGINT and SIGTERM over, for this process."""
    signal.signal(signal.SIGINT, _INTERRUPTS)
    signal.signal(signal.SIGTERM, _INTERRUPTS)


def exit_code() -> int:
    """Give the exit code of a command that a signal has ended."""
    return _INTERRUPTS.code


@contextmanager
def at_work() -> Iterator[None]:
    """Let both raise `KeyboardInterrupt`, for what is done here tidies up and says so."""
    _INTERRUPTS.at_work = True
    try:
        yield
    finally:
        _INTERRUPTS.at_work = False
