"""Work in several threads: numpy, torch and pyarrow let others run while they compute."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_MOST = 8  # threads: each works in memory of its own


def cores() -> int:
    """Count the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def side_by_side(
    work: Callable[[T], R], items: Iterable[T], threads: int | None = None
) -> Iterator[R]:
    """Do the same with each of several items, some at a time, and give what is found in order.

    Items are made by the caller's thread, few ahead of what is worked on, so that memory does not
    grow with their number.

    Args:
        work: what is done with an item; an error ends the iteration, and is raised.
        items: what it is done with.
        threads: how many; as many as there are cores, at most eight, unless given.

    Yields:
        What `work` returns of each item, in the order of the items.

    Example:
        >>> from fastattnerase.threads import side_by_side
        >>> list(side_by_side(lambda x: x * x, range(4), threads=2))
        [0, 1, 4, 9]
    """
    count = min(cores(), _MOST) if threads is None else threads
    if count == 1:
        yield from map(work, items)
        return
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="fastattnerase") as pool:
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) > count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for left in pending:
                left.cancel()
