"""Several seeds of one model: bootstrap of seeds and instances, and the spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastattnerase.plurals import counted
from fastattnerase.statistics.bootstrap import UNDEFINED, Bootstrap, Drawn, Estimate
from fastattnerase.statistics.resampled import Floats, Summary

Statistic = Literal["share", "mean", "q1", "median", "q3"]

_FINER = 10  # times as many resamples for levels as for intervals
_KEPT = 1 << 27  # counts of instances in all resamples that levels are made of, at most


@dataclass(frozen=True)
class Comparison:
    """A statistic against a value that it would have if there were nothing to say.

    Attributes:
        estimate: the statistic with its interval.
        p: the bootstrap's two-sided level: `min(1, 2 (k + 1) / (R + 1))`, where of `R` resamples
            `k` lie at that value or on the side of it where fewer lie; None where the statistic is
            undefined.
    """

    estimate: Estimate
    p: float | None


@dataclass(frozen=True)
class SeedSpread:
    """How a number differs from seed to seed.

    Attributes:
        seeds: of how many.
        mean: of the seeds' numbers; infinite where one of them is.
        sd: their standard deviation (divisor: seeds less one); None with one seed, or where one of
            them is infinite.
        least: the smallest.
        most: the largest.
    """

    seeds: int
    mean: float
    sd: float | None
    least: float
    most: float


class SeedBootstrap(Bootstrap):
    """Draws resamples of seeds, then of instances within each drawn seed.

    Each resample takes as many seeds as there are, with replacement, and of each drawn seed as many
    of its instances as it has, with replacement; a seed that is drawn twice has its instances drawn
    twice. A statistic is that of all drawn rows together. For `S` seeds of `n` instances each the
    variance of a resampled mean is `(b + w / n) / S`, where `b` is the variance of the seeds' means
    and `w` the mean variance within a seed, both with their number as divisor. With one seed this
    is `Bootstrap`, down to the resamples.

    Instances of different seeds are drawn independently, also where they are the same texts: the
    interval is about other seeds and other instances of each, not about what one choice of texts
    does to all seeds alike.

    Args:
        sizes: instances of each seed; samples hold the rows of the first seed, then of the next.
            Seeds without instances are as if they were not there.
        seed: of the resampling.
        resamples: number of resamples.
        confidence: coverage of the intervals.
        tell: called after each sample that was described.

    Source:
        A. Davison and D. Hinkley, Bootstrap Methods and their Application, 1997, section 3.8
        (strategy 1).

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.two_level import SeedBootstrap
        >>> two = SeedBootstrap((2, 2), seed=0, resamples=200)
        >>> e = two.summarise(np.array([1.0, 1.0, 3.0, np.inf]))["median"]
        >>> e.value, e.low, e.high
        (2.0, 1.0, inf)
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        seed: int,
        resamples: int = 1000,
        confidence: float = 0.95,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(seed=seed, resamples=resamples, confidence=confidence, tell=tell)
        self.sizes = tuple(int(size) for size in sizes if size)

    def of(self, rows: NDArray[np.bool_]) -> SeedBootstrap:
        """Give the bootstrap of a part of the rows, `[N]`: seeds keep those of theirs."""
        parts = np.split(rows, np.cumsum(self.sizes)[:-1])
        return SeedBootstrap(
            [int(part.sum()) for part in parts],
            seed=self.seed,
            resamples=self.resamples,
            confidence=self.confidence,
            tell=self._tell,
        )

    @cached_property
    def finer(self) -> SeedBootstrap:
        """Give the bootstrap of the same rows with ten times the resamples, for levels.

        A level is `2 / (R + 1)` at least, and corrected for many tests that times their number.
        There are fewer resamples where so many would not fit what is kept of them.

        Example:
            >>> SeedBootstrap((2, 2), seed=0, resamples=99).finer.resamples
            990
        """
        most = _KEPT // max(1, sum(self.sizes))
        return SeedBootstrap(
            self.sizes,
            seed=self.seed,
            resamples=max(self.resamples, min(_FINER * self.resamples, most)),
            confidence=self.confidence,
        )

    def difference(
        self, first: Floats, second: Floats, statistic: Statistic = "median"
    ) -> Comparison:
        """Compare a statistic of two samples of the same instances, resampled together.

        `statistic(first) − statistic(second)`; where both are infinite the difference is 0.

        Args:
            first: `[N]` or `[N, K]` float64; NaN is "does not apply".
            second: `[N]` or `[N, L]` float64.
            statistic: which of those of `summarise`.

        Returns:
            The difference against 0.

        Example:
            >>> import numpy as np
            >>> from fastattnerase.statistics.two_level import SeedBootstrap
            >>> one = SeedBootstrap((4,), seed=0, resamples=99)
            >>> found = one.difference(np.array([3.0, 4.0, 5.0, np.inf]), np.ones(4))
            >>> found.estimate.value, found.p
            (3.5, 0.02)
        """
        return self.compared(
            less(self.values(first, statistic), self.values(second, statistic)), 0.0
        )

    def against(self, sample: Floats, null: float, statistic: Statistic = "mean") -> Comparison:
        """Compare a statistic of a sample with a number.

        Args:
            sample: `[N]` or `[N, K]` float64; NaN is "does not apply".
            null: the number.
            statistic: which of those of `summarise`.

        Returns:
            The statistic against `null`.

        Example:
            >>> import numpy as np
            >>> from fastattnerase.statistics.two_level import SeedBootstrap
            >>> SeedBootstrap((2, 2), seed=0, resamples=99).against(np.ones(4), 0.5).p
            0.02
        """
        return self.compared(self.values(sample, statistic), null)

    def values(self, sample: Floats, statistic: Statistic) -> Floats:
        """Compute a statistic of a sample and of its resamples, `[1 + R]`, the sample's first."""
        wanted = Summary(sample, (statistic,), self.sizes)
        [drawn] = self.drawn([wanted], len(sample))
        return np.concatenate([wanted.own(), drawn[:, 0]])

    @property
    def groups(self) -> tuple[int, ...]:
        """Instances of each seed: resamples take seeds first."""
        return self.sizes

    def key(self, size: int) -> tuple[int, ...]:
        """Say what the resamples depend on, beside the seed."""
        return self.sizes

    def compared(self, values: Floats, null: float) -> Comparison:
        """Compare the sample's value with a number; `values` are those of `values`, `[1 + R]`."""
        estimate = self._estimate(float(values[0]), values[1:])
        if estimate.value is None:
            return Comparison(UNDEFINED, None)
        drawn = values[1:][~np.isnan(values[1:])]
        fewer = min(int((drawn <= null).sum()), int((drawn >= null).sum()))
        return Comparison(estimate, min(1.0, 2 * (fewer + 1) / (len(drawn) + 1)))

    @property
    def _kind(self) -> type[np.unsignedinteger[Any]]:
        """Give the type of counts: no row is drawn 65,536 times, for it takes as many seeds."""
        return super()._kind if len(self.sizes) == 1 else np.uint16

    def _draw(self, size: int) -> Iterator[Drawn]:
        if size != sum(self.sizes):
            raise ValueError(
                f"sample: given {counted(size, 'row')}, needed those of {self.sizes} instances"
            )
        if len(self.sizes) == 1:
            yield from super()._draw(size)
            return
        rng = np.random.default_rng(self.seed)
        sizes, begins = np.array(self.sizes), np.cumsum([0, *self.sizes[:-1]])
        seeds = rng.integers(0, len(sizes), (self.resamples, len(sizes)))  # [R, S]
        most = self._at_a_time(size)
        for start in range(0, self.resamples, most):
            drawn = seeds[start : start + most]  # [C, S]
            of_row = np.repeat(drawn.ravel(), sizes[drawn.ravel()])  # the seed of each drawn row
            resample = np.repeat(np.arange(len(drawn)), sizes[drawn].sum(axis=1))
            rows = begins[of_row] + rng.integers(0, sizes[of_row])
            yield Drawn(len(drawn), (resample * size + rows).astype(np.int32))


def less(first: Floats, second: Floats) -> Floats:
    """Subtract, `first − second`; where both are infinite alike the difference is 0.

    >>> less(np.array([np.inf, np.inf, 3.0]), np.array([np.inf, 1.0, 1.0])).tolist()
    [0.0, inf, 2.0]
    """
    same = np.isinf(first) & (first == second)
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, first - second)


def spread(values: Sequence[float]) -> SeedSpread:
    """Describe how a number differs from seed to seed.

    Args:
        values: of each seed, at least one; may be infinite.

    Returns:
        Mean, standard deviation and ends.

    Raises:
        ValueError: no values.

    Example:
        >>> from fastattnerase.statistics.two_level import spread
        >>> spread([1.0, 2.0, 3.0])
        SeedSpread(seeds=3, mean=2.0, sd=1.0, least=1.0, most=3.0)
        >>> spread([1.0, float("inf")]).mean
        inf
    """
    if len(values) == 0:
        raise ValueError("values: given none, needed one of a seed or more")
    finite = all(math.isfinite(value) for value in values)
    sd = float(np.std(values, ddof=1)) if finite and len(values) > 1 else None
    mean = math.fsum(values) / len(values) if finite else float(np.sum(values))
    return SeedSpread(len(values), mean, sd, float(min(values)), float(max(values)))
