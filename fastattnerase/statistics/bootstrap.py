"""Percentile bootstrap intervals of means, quartiles and shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.unsignedinteger[Any]]
SUMMARY = ("share", "mean", "q1", "median", "q3")
_QUARTILES = {"q1": 0.25, "median": 0.5, "q3": 0.75}

_CHUNK = 1 << 19  # counts that are worked on at a time: what they become fits into a cache
_KEPT = 1 << 27  # counts that are kept for other samples of the same size; more are drawn again
_BLOCK = 128  # sorted values whose counts are summed before they are looked at one by one


@dataclass(frozen=True)
class Estimate:
    """A statistic of the sample with the ends of its interval; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        """Return the three numbers as a dictionary that JSON can hold."""
        return asdict(self)


UNDEFINED = Estimate(None, None, None)


class Bootstrap:
    """Draws resamples of rows, and reads the intervals of statistics off them.

    Each of the resamples takes as many rows as the sample has, with replacement; the interval of a
    statistic lies between the percentiles of its values in the resamples. Samples of one size see
    the same resamples, which depend on the seed alone.

    Args:
        seed: of the resampling.
        resamples: number of resamples.
        confidence: coverage of the intervals.
        tell: called after each sample that was described.

    Source:
        B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.bootstrap import Bootstrap
        >>> e = Bootstrap(seed=0, resamples=100).summarise(np.array([1.0, 3.0, np.nan]))
        >>> e["median"].value, round(e["share"].value, 2)
        (2.0, 0.67)
    """

    def __init__(
        self,
        *,
        seed: int,
        resamples: int = 1000,
        confidence: float = 0.95,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        self.seed = seed
        self.resamples = resamples
        self.confidence = confidence
        self._tell = tell
        self._kept: dict[int, list[Counts]] = {}

    def of(self, rows: NDArray[np.bool_]) -> Bootstrap:
        """Give the bootstrap of a part of the rows, `[N]`: a sample that holds these alone."""
        return self

    def forget(self) -> None:
        """Drop the resamples that are kept; they are drawn again where they are wanted again."""
        self._kept.clear()

    def summarise(self, sample: Floats) -> dict[str, Estimate]:
        """Describe a sample in which NaN means "does not apply".

        `share` is the part of the sample that is not NaN; `mean` and the quartiles (linear
        interpolation) are those of the rest. Whole rows are resampled, so that the columns (several
        random orders of one instance) stay together. Infinite values are values: a quartile that
        lies at one, or between one and another value, is infinite, and so is a mean.

        Args:
            sample: `[N]` or `[N, K]` float64.

        Returns:
            One `Estimate` for each of `share`, `mean`, `q1`, `median`, `q3`.
        """
        estimates = self._intervals(describer(sample), len(sample))
        return dict(zip(SUMMARY, estimates or [UNDEFINED] * len(SUMMARY), strict=True))

    def means(self, sample: Floats | NDArray[np.bool_]) -> list[Estimate]:
        """Estimate the mean of every column, rows resampled together.

        Args:
            sample: `[N, K]` float64 or bool, without NaN.

        Returns:
            `K` estimates.

        Example:
            >>> import numpy as np
            >>> from fastattnerase.statistics.bootstrap import Bootstrap
            >>> [e.value for e in Bootstrap(seed=0, resamples=50).means(np.eye(4)[:, :2])]
            [0.25, 0.25]
        """
        rows = np.asarray(sample, dtype=np.float64)

        def statistic(counts: Counts) -> Floats:
            size = counts.sum(axis=1, dtype=np.int64, keepdims=True)  # [C, 1]
            return np.asarray(counts.astype(np.float64) @ rows / size)

        return self._intervals(statistic, len(rows)) or [UNDEFINED] * rows.shape[1]

    def ratio(self, above: Floats, below: Floats) -> Estimate:
        """Estimate `Σ above / Σ below`, rows resampled together.

        Args:
            above: `[N]` float64, without NaN.
            below: `[N]` float64, likewise.

        Returns:
            The estimate; undefined where `below` adds to 0.

        Example:
            >>> import numpy as np
            >>> from fastattnerase.statistics.bootstrap import Bootstrap
            >>> Bootstrap(seed=0, resamples=9).ratio(np.array([1.0, 3.0]), np.array([2.0, 6.0]))
            Estimate(value=0.5, low=0.5, high=0.5)
        """
        rows = np.stack([above, below], axis=1)  # [N, 2]

        def statistic(counts: Counts) -> Floats:
            sums = counts.astype(np.float64) @ rows  # [C, 2]
            some = sums[:, 1:] != 0
            return np.divide(sums[:, :1], sums[:, 1:], out=np.full(some.shape, np.nan), where=some)

        estimates = self._intervals(statistic, len(rows))
        return estimates[0] if estimates else UNDEFINED

    def _intervals(self, statistic: Callable[[Counts], Floats], size: int) -> list[Estimate]:
        """Estimate statistics of how often each of `size` rows counts; nothing where none is.

        Args:
            statistic: makes `[C, S]` of the counts `[C, size]` of `C` resamples.
            size: rows of the sample.

        Returns:
            `S` estimates.
        """
        estimates = []
        if size:
            [values] = statistic(np.ones((1, size), dtype=np.uint8))  # [S]
            drawn = np.concatenate([statistic(counts) for counts in self._counts(size)])
            estimates = [
                self._estimate(float(value), column)
                for value, column in zip(values, drawn.T, strict=True)
            ]
        self._tell()
        return estimates

    def _estimate(self, value: float, drawn: Floats) -> Estimate:
        # A resample can miss every row to which the statistic applies.
        defined = drawn[~np.isnan(drawn)]
        if np.isnan(value) or len(defined) == 0:
            return UNDEFINED
        tail = 50 * (1 - self.confidence)
        if np.isfinite(defined).all():
            low, high = np.percentile(defined, [tail, 100 - tail])
        else:
            place = np.array([tail, 100 - tail]) / 100 * (len(defined) - 1)  # [2]
            below, ordered = place.astype(np.int64), np.sort(defined)
            above = np.minimum(below + 1, len(defined) - 1)
            low, high = between(ordered[below], ordered[above], place - below)
        return Estimate(value, float(low), float(high))

    def _counts(self, size: int) -> Iterator[Counts]:
        """Give how often each row is in each resample, `[C, size]` at a time."""
        if size not in self._kept:
            if (sum(self._kept) + size) * self.resamples > _KEPT:
                return self._draw(size)
            self._kept[size] = list(self._draw(size))
        return iter(self._kept[size])

    def _at_a_time(self, size: int) -> int:
        """Say how many resamples of `size` rows are worked on at a time."""
        return max(1, _CHUNK // size)

    def _draw(self, size: int) -> Iterator[Counts]:
        rng = np.random.default_rng(self.seed)
        left, most = self.resamples, self._at_a_time(size)
        while left:
            count = min(left, most)
            left -= count
            rows = rng.integers(0, size, (count, size))  # [C, size]
            rows += size * np.arange(count)[:, None]
            counts = np.bincount(rows.ravel(), minlength=count * size).reshape(count, size)
            # No row is drawn 256 times: of 256 rows or more that has a chance of 1 in 256!.
            yield counts.astype(np.uint8)


def describer(sample: Floats, statistics: Sequence[str] = SUMMARY) -> Callable[[Counts], Floats]:
    """Make the function that describes a sample, as `SUMMARY` names it, in resamples.

    Args:
        sample: `[N]` or `[N, K]` float64, NaN for "does not apply".
        statistics: those of `SUMMARY` that are wanted, S of them; quartiles take longest.

    Returns:
        From how often each row counts, `[C, N]`, to the statistics, `[C, S]`.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.bootstrap import describer
        >>> describer(np.array([1.0, 4.0]))(np.array([[2, 1]], dtype=np.uint8))[0].tolist()
        [1.0, 2.0, 1.0, 1.0, 2.5]
    """
    columns = sample[:, None] if sample.ndim == 1 else sample  # [N, K]
    instance, _ = known = np.nonzero(~np.isnan(columns))
    values = columns[known]
    order = np.argsort(values, kind="stable")
    values, instance = values[order], instance[order]

    def describe(counts: Counts) -> Floats:
        size = columns.shape[1] * counts.sum(axis=1, dtype=np.int64)  # [C]
        return _describe(values, counts.take(instance, axis=1), size, statistics)

    return describe


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
        >>> from fastattnerase.statistics.bootstrap import between
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


def _describe(
    values: Floats, times: Counts, size: NDArray[np.int64], statistics: Sequence[str]
) -> Floats:
    """Compute share, mean and quartiles, or some of them, of values that count several times.

    Args:
        values: `[M]`, ascending.
        times: `[C, M]`, how often each counts.
        size: `[C]`, of the whole sample, with what does not apply.
        statistics: what to compute, S names of `SUMMARY`.

    Returns:
        `[C, S]`; NaN where no value counts, but for the share.
    """
    found = {name: np.full(len(times), 0.0 if name == "share" else np.nan) for name in SUMMARY}
    if len(values):
        _fill(found, values, times, size, [name for name in _QUARTILES if name in statistics])
    return np.stack([found[name] for name in statistics], axis=1)


def _fill(
    found: Mapping[str, Floats],
    values: Floats,
    times: Counts,
    size: NDArray[np.int64],
    quartiles: Sequence[str],
) -> None:
    """Write share, mean and the wanted quartiles where a value counts; see `_describe`."""
    begins = np.arange(0, len(values), _BLOCK)
    ends = np.add.reduceat(times, begins, axis=1, dtype=np.int64).cumsum(axis=1)  # [C, blocks]
    number = ends[:, -1]  # values, each as often as it counts
    some = number > 0
    times, ends, number = times[some], ends[some], number[some]

    found["share"][some] = number / size[some]
    found["mean"][some] = _sums(values, times) / number
    if not quartiles:
        return
    place = np.array([_QUARTILES[name] for name in quartiles]) * (number[:, None] - 1)  # [C, Q]
    below = place.astype(np.int64)
    # Places, 0 for the smallest value; from each find the block, and in the block the value.
    places = np.concatenate([below, np.minimum(below + 1, number[:, None] - 1)], axis=1)  # [C, 2Q]
    rows = np.arange(len(places))[:, None]
    block = (ends[:, None, :] <= places[:, :, None]).sum(axis=2)  # [C, 2Q]
    before = np.where(block > 0, ends[rows, block - 1], 0)
    inside = begins[block][:, :, None] + np.arange(_BLOCK)  # [C, 2Q, block]
    counts = times[rows[:, :, None], np.minimum(inside, len(values) - 1)]
    reached = before[:, :, None] + counts.cumsum(axis=2, dtype=np.int64)
    at = values[begins[block] + (reached <= places[:, :, None]).sum(axis=2)]  # [C, 2Q]
    middle = between(at[:, : len(quartiles)], at[:, len(quartiles) :], place - below)
    for name, value in zip(quartiles, middle.T, strict=True):
        found[name][some] = value


def _sums(values: Floats, times: Counts) -> Floats:
    """Sum values, `[M]`, as often as each counts, `[C, M]`; an infinite one that does not count is
    nothing."""
    endless = ~np.isfinite(values)
    sums = np.asarray(times.astype(np.float64) @ np.where(endless, 0.0, values))  # [C]
    for sign in (-1.0, 1.0):
        where = (values == sign * np.inf).nonzero()[0]
        if len(where):
            sums = np.where(times[:, where].any(axis=1), sums + sign * np.inf, sums)
    return sums
