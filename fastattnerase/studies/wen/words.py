"""Numbers in sentences: means with their errors, ranges, and what blind chance would give."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SAME = 1e-9  # numbers that differ by less are the same
ERRORS = 2  # standard errors, which a mean exceeds where it is told apart from 0


def at_least(held: int, cases: int, share: float) -> float:
    """Compute the probability of `held` or more of `cases`, each of the probability `share`.

    Example:
        >>> at_least(1, 2, 1 / 6)  # 1 - 25/36
        0.3055555555555556
    """
    return sum(
        math.comb(cases, k) * share**k * (1 - share) ** (cases - k) for k in range(held, cases + 1)
    )


def told_apart(leads: NDArray[np.float64]) -> bool:
    """Say whether a mean lead is more than two of its standard errors, of two cells or more."""
    if len(leads) < 2:
        return False
    error = float(leads.std(ddof=1)) / math.sqrt(len(leads))
    return float(leads.mean()) > ERRORS * error + SAME


def by_chance(cases: int, share: float, p: float) -> str:
    """Say how many cases chance would give, and how probable so many are."""
    return f"{cases * share:.1f} by chance, p = {p:.2g}" if cases else ""


def sentence(*parts: str) -> str:
    """Join the parts that say something."""
    return "; ".join(part for part in parts if part)


def number(value: float) -> str:
    """Write a number of two digits, never -0.00."""
    return "undefined" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def mean_and_error(values: NDArray[np.float64]) -> str:
    """Write a mean and its standard error, of two or more."""
    if not len(values):
        return "undefined"
    error = ""
    if len(values) > 1:
        error = f" ± {number(float(values.std(ddof=1)) / len(values) ** 0.5)}"
    return number(float(values.mean())) + error


def ends(values: Sequence[float]) -> list[str]:
    """Write the smallest and the largest number, or the one that both are."""
    return sorted({number(min(values)), number(max(values))}, key=float)
