"""Percentile bootstrap intervals of means, quantiles and shares, vectorised over resamples."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SUMMARY = ("share", "mean", "q1", "median", "q3")
_CHUNK = 4_000_000  # elements held at once while resampling: 32 MB


@dataclass(frozen=True)
class Estimate:
    """A statistic of the sample with the ends of its interval; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        """Return the three numbers as a dictionary that JSON can hold."""
        return asdict(self)


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
        >>> from fastattnerase.experiments.bootstrap import summarise
        >>> e = summarise(np.array([1.0, 3.0, np.nan]), name="demo", seed=0, resamples=100)
        >>> e["median"].value, round(e["share"].value, 2)
        (2.0, 0.67)
    """
    columns = sample[:, None] if sample.ndim == 1 else sample
    return dict(
        zip(
            SUMMARY,
            _intervals(columns, _summary, name, seed, resamples, confidence),
            strict=True,
        )
    )


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
        >>> from fastattnerase.experiments.bootstrap import means
        >>> [e.value for e in means(np.eye(4)[:, :2], name="demo", seed=0, resamples=50)]
        [0.25, 0.25]
    """
    return _intervals(
        np.asarray(sample, dtype=np.float64), _column_means, name, seed, resamples, confidence
    )


def _column_means(samples: Floats) -> Floats:
    return np.asarray(samples.mean(axis=1))  # [chunk, N, K] -> [chunk, K]


def _summary(samples: Floats) -> Floats:
    flat = np.sort(samples.reshape(len(samples), -1), axis=1)  # NaN last
    counts = np.count_nonzero(~np.isnan(flat), axis=1)  # [chunk]
    result = np.full((len(flat), len(SUMMARY)), np.nan)
    result[:, 0] = counts / flat.shape[1]
    some = counts > 0
    result[some, 1] = np.nansum(flat[some], axis=1) / counts[some]
    rows = np.flatnonzero(some)
    for column, q in enumerate((0.25, 0.5, 0.75), start=2):
        place = q * (counts[some] - 1)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, counts[some] - 1)
        low, high = flat[rows, below], flat[rows, above]
        result[some, column] = low + (place - below) * (high - low)
    return result


def _intervals(
    rows: Floats,
    statistic: Callable[[Floats], Floats],
    name: str,
    seed: int,
    resamples: int,
    confidence: float,
) -> list[Estimate]:
    if len(rows) == 0:
        return [Estimate(None, None, None)] * statistic(np.zeros((1, 1, rows.shape[1]))).shape[1]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = statistic(rows[None])[0]  # [S]
    chunk = max(1, _CHUNK // rows.size)
    draws = []
    for begin in range(0, resamples, chunk):
        size = min(chunk, resamples - begin)
        draws.append(statistic(rows[rng.integers(0, len(rows), (size, len(rows)))]))
    drawn = np.concatenate(draws)  # [resamples, S]
    tail = 50 * (1 - confidence)
    estimates = []
    for value, column in zip(values, drawn.T, strict=True):
        # A resample can miss every row to which the statistic applies.
        defined = column[~np.isnan(column)]
        if np.isnan(value) or len(defined) == 0:
            estimates.append(Estimate(None, None, None))
            continue
        low, high = np.percentile(defined, [tail, 100 - tail])
        estimates.append(Estimate(float(value), float(low), float(high)))
    return estimates
