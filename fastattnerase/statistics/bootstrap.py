"""Percentile bootstrap intervals of means, quartiles and shares."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
SUMMARY = ("share", "mean", "q1", "median", "q3")


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


def summarise(
    sample: Floats, *, name: str, seed: int, resamples: int = 1000, confidence: float = 0.95
) -> dict[str, Estimate]:
    """Describe a sample in which NaN means "does not apply", with bootstrap intervals.

    `share` is the part of the sample that is not NaN; `mean` and the quartiles (linear
    interpolation) are those of the rest. Whole rows are resampled, so that the columns (several
    random orders of one instance) stay together.

    Args:
        sample: `[N]` or `[N, K]` float64.
        name: what is described; gives each quantity a stream of its own.
        seed: of the resampling.
        resamples: number of resamples.
        confidence: coverage of the interval between the percentiles.

    Returns:
        One `Estimate` for each of `share`, `mean`, `q1`, `median`, `q3`.

    Source:
        B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.bootstrap import summarise
        >>> e = summarise(np.array([1.0, 3.0, np.nan]), name="demo", seed=0, resamples=100)
        >>> e["median"].value, round(e["share"].value, 2)
        (2.0, 0.67)
    """
    columns = sample[:, None] if sample.ndim == 1 else sample  # [N, K]
    instance, _ = known = np.nonzero(~np.isnan(columns))
    values = columns[known]
    order = np.argsort(values, kind="stable")
    values, instance = values[order], instance[order]

    def statistic(counts: Counts) -> Floats:
        # How often each value, from the smallest on, is in the resample; no sort is needed.
        times = counts[instance]
        ends = np.cumsum(times)
        size = int(ends[-1]) if len(ends) else 0
        if size == 0:
            return np.array([0.0, np.nan, np.nan, np.nan, np.nan])
        place = np.array([0.25, 0.5, 0.75]) * (size - 1)
        below = place.astype(np.int64)
        low = values[np.searchsorted(ends, below, side="right")]
        high = values[np.searchsorted(ends, np.minimum(below + 1, size - 1), side="right")]
        quartiles = low + (place - below) * (high - low)
        return np.array([size / columns.size, times @ values / size, *quartiles])

    estimates = _intervals(statistic, len(columns), name, seed, resamples, confidence)
    return dict(zip(SUMMARY, estimates or [UNDEFINED] * len(SUMMARY), strict=True))


def means(
    sample: Floats, *, name: str, seed: int, resamples: int = 1000, confidence: float = 0.95
) -> list[Estimate]:
    """Estimate the mean of every column, rows resampled together.

    Args:
        sample: `[N, K]` float64 or bool, without NaN.
        name: what is described; gives each quantity a stream of its own.
        seed: of the resampling.
        resamples: number of resamples.
        confidence: coverage of the interval between the percentiles.

    Returns:
        `K` estimates.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.bootstrap import means
        >>> [e.value for e in means(np.eye(4)[:, :2], name="demo", seed=0, resamples=50)]
        [0.25, 0.25]
    """
    rows = np.asarray(sample, dtype=np.float64)

    def statistic(counts: Counts) -> Floats:
        return np.asarray(counts @ rows / len(rows))

    estimates = _intervals(statistic, len(rows), name, seed, resamples, confidence)
    return estimates or [UNDEFINED] * rows.shape[1]


def _intervals(
    statistic: Callable[[Counts], Floats],
    size: int,
    name: str,
    seed: int,
    resamples: int,
    confidence: float,
) -> list[Estimate]:
    """Estimate statistics of how often each of `size` rows counts; nothing where there is none."""
    if size == 0:
        return []
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = statistic(np.ones(size, dtype=np.int64))  # [S]
    drawn = np.stack(
        [
            statistic(np.bincount(rng.integers(0, size, size), minlength=size))
            for _ in range(resamples)
        ]
    )  # [resamples, S]
    tail = 50 * (1 - confidence)
    estimates = []
    for value, column in zip(values, drawn.T, strict=True):
        # A resample can miss every row to which the statistic applies.
        defined = column[~np.isnan(column)]
        if np.isnan(value) or len(defined) == 0:
            estimates.append(UNDEFINED)
            continue
        low, high = np.percentile(defined, [tail, 100 - tail])
        estimates.append(Estimate(float(value), float(low), float(high)))
    return estimates
