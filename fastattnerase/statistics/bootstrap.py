"""Percentile bootstrap intervals of means, quartiles and shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastattnerase.statistics.resampled import (
    SUMMARY,
    Counts,
    Floats,
    Means,
    Ratio,
    Statistic,
    Summary,
    between,
)
from fastattnerase.statistics.sums import Sums
from fastattnerase.threads import side_by_side

_CHUNK = 1 << 17  # counts that are drawn at a time: as many as fit the cache while they are counted
_BLOCK = 1 << 21  # counts that are worked on at a time: as many as make one matrix product fast
_KEPT = 1 << 27  # counts that are kept for other samples of the same size; more are drawn again


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


class Drawn(NamedTuple):
    """Some resamples as they were drawn.

    Attributes:
        resamples: how many, C.
        cells: int32, for each drawn row its cell of a table of counts, `[C, N]`, as one row.
    """

    resamples: int
    cells: NDArray[np.int32]


class _Block:
    """Resamples that are worked on together; the thread that works on them counts them first.

    Args:
        parts: of the resamples.
        size: rows of the sample, N.
        kind: of the counts.
        keep: whether counts are kept for another time.
    """

    def __init__(
        self, parts: list[Drawn], size: int, kind: type[np.unsignedinteger[Any]], keep: bool
    ) -> None:
        self.resamples = sum(part.resamples for part in parts)
        self._parts, self._size, self._kind, self._keep = parts, size, kind, keep
        self._counts: Counts | None = None

    def counts(self) -> Counts:
        """Give how often each row is in each resample, `[C, N]`."""
        if self._counts is not None:
            return self._counts
        counts = np.concatenate([self._count(part) for part in self._parts])
        self._parts = []
        if self._keep:
            self._counts = counts
        return counts

    def _count(self, part: Drawn) -> Counts:
        cells = part.resamples * self._size
        counts = np.bincount(part.cells.astype(np.int64), minlength=cells)
        return counts.reshape(part.resamples, self._size).astype(self._kind)


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
        self._kept: dict[int, list[_Block]] = {}

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
        [estimates] = self.intervals([Summary(sample)], len(sample))
        return dict(zip(SUMMARY, estimates, strict=True))

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
        [estimates] = self.intervals([Means(sample)], len(sample))
        return estimates

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
        [[estimate]] = self.intervals([Ratio(above, below)], len(above))
        return estimate

    @property
    def groups(self) -> tuple[int, ...]:
        """Rows of each group that resamples take whole; none where they take rows."""
        return ()

    def key(self, size: int) -> tuple[int, ...]:
        """Say what the resamples of `size` rows depend on, beside the seed."""
        return (size,)

    def intervals(self, wanted: Sequence[Statistic], size: int) -> list[list[Estimate]]:
        """Estimate statistics of the same rows together: resamples are gone through once for all.

        Args:
            wanted: the statistics, each of one number or several.
            size: rows of the sample.

        Returns:
            For each statistic an estimate of each of its numbers; undefined without rows.
        """
        told = 0

        def tell(done: int) -> None:
            nonlocal told
            for _ in range(told, done):
                self._tell()
            told = done

        found = [[UNDEFINED] * statistic.count for statistic in wanted]
        if size:
            found = [
                [
                    self._estimate(float(value), column)
                    for value, column in zip(statistic.own(), drawn.T, strict=True)
                ]
                for statistic, drawn in zip(wanted, self.drawn(wanted, size, tell), strict=True)
            ]
        tell(len(wanted))
        return found

    def drawn(
        self,
        wanted: Sequence[Statistic],
        size: int,
        tell: Callable[[int], None] = lambda done: None,
    ) -> list[Floats]:
        """Compute statistics of the same rows in the resamples.

        Args:
            wanted: the statistics.
            size: rows of the sample, at least one.
            tell: called as resamples are done, with as many of the statistics as make that share.

        Returns:
            `[R, V]` for each statistic.
        """
        # What each adds up over the rows, side by side: one product of matrices does it for all.
        columns = Sums(np.ones((size, 1)), *(statistic.columns for statistic in wanted))
        places = np.cumsum([1, *(statistic.columns.shape[1] for statistic in wanted)])

        def of_block(block: _Block) -> tuple[_Block, list[Floats]]:
            counts = block.counts()
            sums = columns.of(counts)  # [C, 1 + S]
            return block, [
                statistic.resampled(counts, sums[:, begin:end], sums[:, 0])
                for statistic, begin, end in zip(wanted, places[:-1], places[1:], strict=True)
            ]

        blocks: list[list[Floats]] = []
        done = 0
        threads = None if size * self.resamples > _BLOCK else 1
        for block, found in side_by_side(of_block, self._blocks(size), threads):
            blocks.append(found)
            done += block.resamples
            tell(len(wanted) * done // self.resamples)
        return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]

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

    def _blocks(self, size: int) -> Iterator[_Block]:
        """Give all resamples, as many at a time as are worked on."""
        if size in self._kept:
            yield from self._kept[size]
            return
        keep = (sum(self._kept) + size) * self.resamples <= _KEPT
        blocks: list[_Block] = []
        parts: list[Drawn] = []
        done = 0
        for part in self._draw(size):
            parts.append(part)
            done += part.resamples
            if sum(each.resamples for each in parts) * size >= _BLOCK or done == self.resamples:
                block = _Block(parts, size, self._kind, keep)
                yield block
                parts = []
                if keep:
                    blocks.append(block)
        if keep:
            self._kept[size] = blocks

    def _at_a_time(self, size: int) -> int:
        """Say how many resamples of `size` rows are drawn at a time."""
        return max(1, _CHUNK // size)

    @property
    def _kind(self) -> type[np.unsignedinteger[Any]]:
        """Give the type of counts: no row of 256 or more is drawn 256 times, a chance of 1/256!."""
        return np.uint8

    def _draw(self, size: int) -> Iterator[Drawn]:
        """Draw the rows of resamples, some resamples at a time."""
        rng = np.random.default_rng(self.seed)
        left, most = self.resamples, self._at_a_time(size)
        while left:
            count = min(left, most)
            left -= count
            rows = rng.integers(0, size, (count, size))  # [C, size]
            rows += size * np.arange(count)[:, None]
            yield Drawn(count, rows.ravel().astype(np.int32))
