"""How far a command is: stages that are counted, and one estimate of the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")

_FIRST = 1.0  # second, after which a speed is known

# Called when a stage begins, now and then, and at its end: its name, what is done, of how many.
Report = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody how far a stage is."""


def tracked(items: Iterable[T], total: int, stage: str, report: Report) -> Iterator[T]:
    """Yield items, and report how many of them are done.

    Args:
        items: what a stage goes through.
        total: how many there are.
        stage: its name.
        report: told before the first item and after each.

    Yields:
        The items.

    Example:
        >>> from fastattnerase.runs.progress import tracked
        >>> for word in tracked(["a", "b"], 2, "reading", print):
        ...     pass
        reading 0 2
        reading 1 2
        reading 2 2
    """
    report(stage, 0, total)
    for done, item in enumerate(items, start=1):
        yield item
        report(stage, done, total)


def as_share(report: Callable[[float], None], costs: Mapping[str, float]) -> Report:
    """Turn counts of stages into the share of all that is done.

    Args:
        report: told the share, from 0 to 1.
        costs: the stages in their order, and how long each takes against the others.

    Returns:
        What the stages report to.

    Example:
        >>> from fastattnerase.runs.progress import as_share
        >>> report = as_share(print, {"erasing": 3, "drawing intervals": 1})
        >>> report("erasing", 1, 2)
        0.375
        >>> report("drawing intervals", 1, 1)
        1.0
    """
    whole = sum(costs.values())

    def tell(stage: str, done: int, total: int) -> None:
        names = list(costs)
        before = sum(costs[name] for name in names[: names.index(stage)])
        report((before + costs[stage] * _share(done, total)) / whole)

    return tell


def _share(done: int, total: int) -> float:
    return done / total if total else 1.0


class TimeLeft:
    """Estimates how long a command still takes, from what its parts cost against each other.

    What was done before the command began, as of an interrupted run, costs nothing now and tells
    nothing of its speed: the first share that a part reports is where it starts.

    Args:
        costs: of the parts, how long each takes against the others.
        clock: gives the time in seconds.

    Example:
        >>> from fastattnerase.runs.progress import TimeLeft
        >>> now = 0.0
        >>> left = TimeLeft({"erasing": 3, "drawing intervals": 1}, clock=lambda: now)
        >>> left.at("erasing", 0.0)
        >>> now = 30.0
        >>> left.at("erasing", 0.5)
        >>> left.seconds()
        50.0
    """

    def __init__(
        self, costs: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._costs = dict(costs)
        self._clock = clock
        self._started = clock()
        self._from: dict[str, float] = {}
        self._now: dict[str, float] = {}

    def at(self, part: str, share: float) -> None:
        """Take note of how far a part is."""
        self._from.setdefault(part, share)
        self._now[part] = share

    def seconds(self) -> float | None:
        """Give the seconds that are left; None as long as the speed is unknown."""
        left = sum(cost * (1 - self._now.get(part, 0.0)) for part, cost in self._costs.items())
        if left <= 0:
            return 0.0
        done = sum(
            self._costs[part] * (share - self._from[part])
            for part, share in self._now.items()
            if part in self._costs
        )
        spent = self._clock() - self._started
        return spent * left / done if done > 0 and spent >= _FIRST else None

    def text(self) -> str:
        """Say how much time is left."""
        seconds = self.seconds()
        if seconds is None:
            return "time left unknown yet"
        if seconds == 0:
            return "nothing left"
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
