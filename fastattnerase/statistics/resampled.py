"""Statistics of resamples, from how often each row of the sample is in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.unsignedinteger[Any]]
SUMMARY = ("share", "mean", "q1", "median", "q3")
_QUARTILES = {"q1": 0.25, "median": 0.5, "q3": 0.75}
_DEVIATIONS = 3.5  # in which a quartile is looked for first: one in two thousand lies beyond


class Statistic(Protocol):
    """One number or several of a sample of N rows, and of its resamples.

    Attributes:
        count: how many numbers, V.
        columns: `[N, S]`, what has to be added up over the rows of a resample.
    """

    count: int
    columns: Floats

    def own(self) -> Floats:
        """Give the numbers of the sample itself, `[V]`; NaN where undefined."""

    def resampled(self, counts: Counts, sums: Floats, rows: Floats) -> Floats:
        """Give the numbers of resamples, `[C, V]`; NaN where undefined.

        Args:
            counts: `[C, N]`, how often each row counts.
            sums: `[C, S]`, of `columns`, each row as often as it counts.
            rows: `[C]`, rows of each resample.
        """


class Means:
    """The mean of every column.

    Args:
        sample: `[N, K]` float64 or bool, without NaN.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.resampled import Means
        >>> Means(np.array([[1.0, 0.0], [2.0, 1.0]])).own().tolist()
        [1.5, 0.5]
    """

    def __init__(self, sample: Floats | NDArray[np.bool_]) -> None:
        self.columns = np.asarray(sample, dtype=np.float64)
        self.count = self.columns.shape[1]

    def own(self) -> Floats:
        """Give the means of the sample, `[K]`."""
        size = len(self.columns)
        return np.asarray((np.ones((1, size)) @ self.columns / size)[0])

    def resampled(self, counts: Counts, sums: Floats, rows: Floats) -> Floats:
        """Give the means of resamples, `[C, K]`."""
        return np.asarray(sums / rows[:, None])


class Ratio:
    """The ratio of two sums, `Σ above / Σ below`; undefined where `below` adds to 0.

    Args:
        above: `[N]` float64, without NaN.
        below: `[N]` float64, likewise.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.resampled import Ratio
        >>> Ratio(np.array([1.0, 3.0]), np.array([2.0, 6.0])).own().tolist()
        [0.5]
    """

    count = 1

    def __init__(self, above: Floats, below: Floats) -> None:
        self.columns = np.stack([above, below], axis=1)  # [N, 2]

    def own(self) -> Floats:
        """Give the ratio of the sample, `[1]`."""
        ones = np.ones((1, len(self.columns)))
        sums = ones @ self.columns
        return np.asarray(self.resampled(ones.astype(np.uint8), sums, ones[:, 0])[0])

    def resampled(self, counts: Counts, sums: Floats, rows: Floats) -> Floats:
        """Give the ratios of resamples, `[C, 1]`."""
        some = sums[:, 1:] != 0
        return np.divide(sums[:, :1], sums[:, 1:], out=np.full(some.shape, np.nan), where=some)


class Ratios:
    """Several ratios of sums, `Σ above_k / Σ below_l`; undefined where `below_l` adds to 0.

    Args:
        above: `[N, K]` float64, without NaN.
        below: `[N, L]` float64, likewise.
        which: `[K]`, the column of `below` that each of `above` is divided by.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.resampled import Ratios
        >>> Ratios(np.array([[1.0, 0.0]]), np.array([[2.0]]), (0, 0)).own().tolist()
        [0.5, 0.0]
    """

    def __init__(self, above: Floats, below: Floats, which: Sequence[int]) -> None:
        self.count = above.shape[1]
        self.columns = np.concatenate([above, below], axis=1)  # [N, K + L]
        self._below = self.count + np.asarray(which, dtype=np.int64)

    def own(self) -> Floats:
        """Give the ratios of the sample, `[K]`."""
        return np.asarray(self.of_sums(self.columns.sum(axis=0, keepdims=True))[0])

    def resampled(self, counts: Counts, sums: Floats, rows: Floats) -> Floats:
        """Give the ratios of resamples, `[C, K]`."""
        return self.of_sums(sums)

    def of_sums(self, sums: Floats) -> Floats:
        """Give the ratios, `[C, K]`, of sums of `columns` over some rows, `[C, K + L]`."""
        below = sums[:, self._below]
        found = np.full(below.shape, np.nan)
        np.divide(sums[:, : self.count], below, out=found, where=below != 0)
        return found


class Summary:
    """Share, mean and quartiles of a sample in which NaN is "does not apply".

    A quartile of a resample is looked for among the values around that of the sample: how many lie
    before these is a sum over rows. Where it is elsewhere, all values are looked through.

    Args:
        sample: `[N]` or `[N, K]` float64; the K columns of a row stay together.
        statistics: those of `SUMMARY` that are wanted.
        groups: rows of each group, one after another, where resamples take whole groups.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.resampled import Summary
        >>> Summary(np.array([1.0, 3.0, np.nan, 2.0])).own().tolist()
        [0.75, 2.0, 1.5, 2.0, 2.5]
    """

    def __init__(
        self, sample: Floats, statistics: Sequence[str] = SUMMARY, groups: Sequence[int] = ()
    ) -> None:
        self._statistics = tuple(statistics)
        self.count = len(self._statistics)
        self._quartiles = [name for name in _QUARTILES if name in statistics]
        columns = sample[:, None] if sample.ndim == 1 else sample  # [N, K]
        known = ~np.isnan(columns)
        rows, _ = np.nonzero(known)
        values = columns[known]
        order = np.argsort(values, kind="stable")
        self._values = values[order]  # [M], ascending
        self._rows = rows[order].astype(np.int32)  # [M], the row of each
        self._width = columns.shape[1]
        self._endless = [end for end in (-np.inf, np.inf) if (values == end).any()]

        each = known.sum(axis=1).astype(np.float64)  # [N]
        sums = [each]
        if "mean" in statistics:
            sums.append(np.where(known & np.isfinite(columns), columns, 0.0).sum(axis=1))
            sums += [(columns == end).sum(axis=1) for end in self._endless]
        self._before_windows = len(sums)
        self._windows = []
        for name in self._quartiles:
            begin, end = self._window(_QUARTILES[name], each, groups)
            self._windows.append((begin, end))
            sums.append(np.bincount(self._rows[:begin], minlength=len(columns)))
        self.columns = np.stack(sums).astype(np.float64).T  # [N, S], each column in one piece

    def _window(self, share: float, each: Floats, groups: Sequence[int]) -> tuple[int, int]:
        """Say between which values a quartile of a resample lies in all likelihood.

        How many more than `share` of its known values, `each`, a row has before the quartile
        deviates by its sum of squares in a resample of rows; whole groups add those of theirs.
        """
        middle = int(share * max(len(self._values) - 1, 0))
        more = np.bincount(self._rows[:middle], minlength=len(each)) - share * each  # [N]
        variance = float((more**2).sum())
        if len(groups) > 1:
            variance += sum(float(part.sum()) ** 2 for part in np.split(more, np.cumsum(groups)))
        half = int(_DEVIATIONS * variance**0.5) + 2
        return max(0, middle - half), min(len(self._values), middle + half + 1)

    def own(self) -> Floats:
        """Give share, mean and quartiles of the sample, or those that are wanted, `[V]`."""
        found = dict.fromkeys(SUMMARY, np.nan) | {"share": 0.0}
        number = len(self._values)
        if number:
            ones = np.ones((1, number))
            endless = ~np.isfinite(self._values)
            total = (ones @ np.where(endless, 0.0, self._values))[0]
            # Infinite values of both signs make none.
            found["mean"] = (total + self._values[endless].sum()) / number
            found["share"] = number / (len(self.columns) * self._width)
            once = np.ones((1, len(self.columns)), dtype=np.uint8)
            for name in self._quartiles:
                found[name] = self._quartile(name, once, np.array([number]), (0, number))[0]
        return np.array([found[name] for name in self._statistics])

    def resampled(self, counts: Counts, sums: Floats, rows: Floats) -> Floats:
        """Give share, mean and quartiles of resamples, or those that are wanted, `[C, V]`."""
        number = sums[:, 0].astype(np.int64)  # [C], values that count
        some = number > 0
        found = {"share": sums[:, 0] / (rows * self._width)}
        if "mean" in self._statistics:
            total = sums[:, 1]
            for column, end in enumerate(self._endless, start=2):
                total = np.where(sums[:, column] > 0, total + end, total)
            found["mean"] = np.divide(total, number, out=np.full(len(sums), np.nan), where=some)
        if not some.all():
            counts, sums, number = counts[some], sums[some], number[some]
        for place, name in enumerate(self._quartiles):
            before = sums[:, self._before_windows + place].astype(np.int64)
            found[name] = np.full(len(some), np.nan)
            if len(number):
                found[name][some] = self._quartile(
                    name, counts, number, self._windows[place], before
                )
        return np.stack([found[name] for name in self._statistics], axis=1)

    def _quartile(
        self,
        name: str,
        counts: Counts,
        number: Ints,
        window: tuple[int, int],
        before: Ints | int = 0,
    ) -> Floats:
        """Find a quartile, by linear interpolation, of `number` values, at least one, `[C]`.

        Args:
            name: which.
            counts: `[C, N]`, how often each row counts.
            number: `[C]`, how many values they make.
            window: of the sorted values, where it is looked for first.
            before: `[C]`, values before the window, each as often as it counts.
        """
        begin, end = window
        place = _QUARTILES[name] * (number - 1)  # [C]
        below = place.astype(np.int64)
        above = np.minimum(below + 1, number - 1)
        times = counts.take(self._rows[begin:end], axis=1)  # [C, W]
        # Values up to each, each as it counts; rows one after another ascend throughout.
        apart = np.arange(len(number)) * (int(number.max()) + 1)
        reached = times.cumsum(axis=1, dtype=np.int64)
        reached += (before + apart)[:, None]
        last = reached[:, -1] - apart
        low, high = (
            self._values[begin + _first_beyond(reached, at + apart)] for at in (below, above)
        )
        found = between(low, high, np.asarray(place - below, dtype=np.float64))
        outside = (below < before) | (above >= last)
        if outside.any():
            found[outside] = self._quartile(
                name, counts[outside], number[outside], (0, len(self._values))
            )
        return found


def _first_beyond(ascending: Ints, places: Ints) -> Ints:
    """Find in each row, `[C, W]`, which ascend one after another, the first number beyond a place,
    `[C]`; the row's end where it is elsewhere."""
    size, width = ascending.shape
    at = np.searchsorted(ascending.ravel(), places, side="right") - np.arange(size) * width
    return np.asarray(np.clip(at, 0, width - 1))


def between(low: Floats, high: Floats, share: Floats) -> Floats:
    """Interpolate, `low + share (high − low)`, also where ends are infinite.

    Between a number and an infinite one lies the infinite one, between the two infinite ones the
    nearer.

    Args:
        low: float64.
        high: of the same shape, not below it.
        share: of the same shape, in [0, 1).

    Returns:
        float64 of that shape.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.resampled import between
        >>> low, high = np.array([1.0, 1.0, 1.0]), np.array([3.0, np.inf, np.inf])
        >>> between(low, high, np.array([0.5, 0.5, 0.0])).tolist()
        [2.0, inf, 1.0]
    """
    endless = ~(np.isfinite(low) & np.isfinite(high))
    if not endless.any():
        return np.asarray(low + share * (high - low))
    first = np.where(endless, 0.0, low)
    found = first + share * (np.where(endless, 0.0, high) - first)
    nearer = np.where(share < 0.5, low, high)
    infinite = np.where(np.isfinite(low), high, np.where(np.isfinite(high), low, nearer))
    return np.where(endless, np.where(share == 0, low, infinite), found)
