"""Tests of paired counts: which of two ways wins, instance by instance."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_FEW = 25  # discordant pairs, below which the chi-squared distribution is not near enough


class Paired(NamedTuple):
    """A two-sided test of whether two counts of opposite outcomes differ.

    Attributes:
        first: instances in which only the first happens, or in which the first wins.
        second: instances in which only the second does.
        statistic: McNemar's, chi-squared with one degree of freedom under equality.
        p_mcnemar: its probability; exact below 25 discordant pairs, else from the chi-squared
            distribution.
        p_sign: the exact one, from the binomial distribution with even odds.
        exact: whether `p_mcnemar` is exact.
    """

    first: int
    second: int
    statistic: float
    p_mcnemar: float
    p_sign: float
    exact: bool


def compare(first: int, second: int) -> Paired:
    """Test whether discordant pairs fall evenly: McNemar's test and the exact sign test.

    McNemar's statistic is `max(0, |b − c| − 1)² / (b + c)`, with Edwards' continuity correction;
    the exact probability is `min(1, 2 P(X ≤ min(b, c)))` for `X` binomial of `b + c` and ½. Below
    25 pairs the exact one is McNemar's, too. Where nothing differs, the statistic is 0 and both
    probabilities are 1.

    Args:
        first: `b`, pairs in which only the first happens; at least 0.
        second: `c`, pairs in which only the second does; at least 0.

    Returns:
        Statistic and probabilities.

    Raises:
        ValueError: a negative count.

    Source:
        Q. McNemar 1947; A. Edwards 1948; the exact form is the sign test of Arbuthnott.

    Example:
        >>> from fastattnerase.statistics.paired import compare
        >>> test = compare(9, 1)
        >>> round(test.statistic, 2), round(test.p_sign, 5)
        (4.9, 0.02148)
    """
    if first < 0 or second < 0:
        raise ValueError(f"first, second: given {first} and {second}, needed 0 or more")
    discordant = first + second
    if discordant == 0:
        return Paired(0, 0, 0.0, 1.0, 1.0, exact=True)
    p_sign = _two_sided(min(first, second), discordant)
    exact = discordant < _FEW
    statistic = max(0, abs(first - second) - 1) ** 2 / discordant
    # The square of a standard normal variable exceeds x as often as it exceeds ±√x.
    p_mcnemar = p_sign if exact else math.erfc(math.sqrt(statistic / 2))
    return Paired(first, second, statistic, p_mcnemar, p_sign, exact)


def _two_sided(successes: int, trials: int) -> float:
    """Compute `2 P(X ≤ successes)` of the binomial distribution with even odds, at most 1."""
    k = np.arange(1, successes + 1, dtype=np.float64)
    # log C(n, k) from k = 0 on; logarithms, since 2^n overflows.
    logs = np.concatenate([[0.0], np.cumsum(np.log(trials - k + 1) - np.log(k))])
    logs -= trials * math.log(2)
    highest = float(logs.max())
    return min(1.0, 2 * math.exp(highest) * float(np.exp(logs - highest).sum()))
