"""Samples described together, so that their resamples are gone through once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastattnerase.statistics.bootstrap import Bootstrap, Estimate
from fastattnerase.statistics.resampled import SUMMARY, Floats, Means, Ratio, Statistic, Summary

_HELD = 1 << 26  # bytes of samples that wait to be described


class Later:
    """A bootstrap whose estimates are computed when the first of them is asked for.

    What is wanted by then of the same rows is computed together, which takes a fraction of the time
    that one after another takes; where much waits, it is computed at once, so that memory does not
    grow with the number of samples.

    Args:
        bootstrap: draws the resamples.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.bootstrap import Bootstrap
        >>> from fastattnerase.statistics.together import Later
        >>> later = Later(Bootstrap(seed=0, resamples=50))
        >>> mean, ratio = later.means(np.eye(4)[:, :1]), later.ratio(np.ones(4), np.full(4, 2.0))
        >>> mean()[0].value, ratio().value
        (0.25, 0.5)
    """

    def __init__(self, bootstrap: Bootstrap, waiting: _Waiting | None = None) -> None:
        self.bootstrap = bootstrap
        self._waiting = waiting or _Waiting()

    def of(self, rows: NDArray[np.bool_]) -> Later:
        """Give the bootstrap of a part of the rows, `[N]`: a sample that holds these alone."""
        return Later(self.bootstrap.of(rows), self._waiting)

    def summarise(self, sample: Floats) -> Callable[[], dict[str, Estimate]]:
        """Describe a sample; see `Bootstrap.summarise`."""
        found = self._add(Summary(sample, groups=self.bootstrap.groups), len(sample))
        return lambda: dict(zip(SUMMARY, found(), strict=True))

    def means(self, sample: Floats | NDArray[np.bool_]) -> Callable[[], list[Estimate]]:
        """Estimate the mean of every column; see `Bootstrap.means`."""
        return self._add(Means(sample), len(sample))

    def ratio(self, above: Floats, below: Floats) -> Callable[[], Estimate]:
        """Estimate the ratio of two sums; see `Bootstrap.ratio`."""
        found = self._add(Ratio(above, below), len(above))
        return lambda: found()[0]

    def _add(self, statistic: Statistic, size: int) -> Callable[[], list[Estimate]]:
        wanted = _Wanted()
        self._waiting.add(self.bootstrap, statistic, wanted, size)

        def found() -> list[Estimate]:
            if wanted.estimates is None:
                self._waiting.compute()
            assert wanted.estimates is not None  # computed with the others
            return wanted.estimates

        return found


class _Waiting:
    """The statistics that wait, by what their resamples depend on."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._held = 0

    def add(self, bootstrap: Bootstrap, statistic: Statistic, wanted: _Wanted, size: int) -> None:
        """Let a statistic of so many rows wait for the others."""
        _, _, group = self._groups.setdefault(bootstrap.key(size), (bootstrap, size, []))
        group.append((statistic, wanted))
        self._held += statistic.columns.nbytes
        if self._held > _HELD:
            self.compute()

    def compute(self) -> None:
        """Compute all that wait."""
        for bootstrap, size, group in self._groups.values():
            found = bootstrap.intervals([statistic for statistic, _ in group], size)
            for (_, wanted), estimates in zip(group, found, strict=True):
                wanted.estimates = estimates
        self._groups.clear()
        self._held = 0


class _Wanted:
    """The estimates of a statistic, once computed; its sample is not held any longer then."""

    def __init__(self) -> None:
        self.estimates: list[Estimate] | None = None


_Group = tuple[Bootstrap, int, list[tuple[Statistic, _Wanted]]]
