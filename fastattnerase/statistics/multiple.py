"""Several tests at once: probabilities that hold for all of them together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(probabilities: Sequence[float]) -> list[float]:
    """Correct the probabilities of several tests by Holm's method.

    With `p_(1) ≤ … ≤ p_(m)` the corrected `p_(i)` is `max_{j ≤ i} min(1, (m − j + 1) p_(j))`: of
    tests that are rejected where theirs is at most α, some is rejected wrongly with probability α
    at most, however the tests depend on each other.

    Args:
        probabilities: `m` numbers in [0, 1], in any order.

    Returns:
        The corrected ones, in the same order.

    Raises:
        ValueError: a probability out of range.

    Source:
        S. Holm, A simple sequentially rejective multiple test procedure, 1979.

    Example:
        >>> from fastattnerase.statistics.multiple import holm
        >>> holm([0.5, 0.125, 0.25])
        [0.5, 0.375, 0.5]
    """
    given = np.asarray(probabilities, dtype=np.float64)
    if len(given) and not ((given >= 0) & (given <= 1)).all():
        raise ValueError(f"probabilities: given {list(probabilities)}, needed numbers in [0, 1]")
    order = np.argsort(given, kind="stable")
    factors = np.arange(len(given), 0, -1)
    corrected = np.empty(len(given))
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, factors * given[order]))
    return [float(value) for value in corrected]
