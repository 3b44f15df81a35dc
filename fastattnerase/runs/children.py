"""Processes that a command starts: they end with it, and Ctrl-C is for it alone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SILENCE = 0.2  # seconds between two looks at the parent


@contextmanager
def ctrl_c_held() -> Iterator[None]:
    """Start children that Ctrl-C, which reaches all of a terminal, does not interrupt.

    They inherit the mask from their first moment on, and are ended by the process that reads it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(parent: int) -> None:
    """Have this process end as soon as its parent has.

    Args:
        parent: number of the process that started it.
    """
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SILENCE)
    os._exit(1)  # the parent was killed: nobody waits for the result
