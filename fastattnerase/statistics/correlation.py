"""Rank correlation of two short vectors: Kendall's tau-b and Shieh's weighted tau."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastattnerase.extras import needs
from fastattnerase.plurals import counted

Floats = NDArray[np.float64]
PairWeight = Literal["product", "sum"]


@dataclass(frozen=True)
class Correlation:
    """A rank correlation, or why it is undefined.

    Attributes:
        value: from -1 to 1; None where undefined.
        reason: why it is undefined; empty where it is not.
        p_value: of tau-b alone, two-sided against independence; else None.
    """

    value: float | None
    reason: str = ""
    p_value: float | None = None


def kendall_tau(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Compute Kendall's tau-b, `Σ sgn(x_i − x_j) sgn(y_i − y_j) / √(n_x n_y)` over pairs.

    `n_x` and `n_y` count the pairs that are not tied in `x` and in `y`.

    Args:
        x, y: `[k]` finite numbers.

    Returns:
        Tau-b with its p-value (SciPy); undefined where `k < 2` or a vector is constant.

    Raises:
        ValueError: different lengths, or a number that is not finite.

    Source:
        M. Kendall, The treatment of ties in ranking problems, 1945.

    Example:
        >>> from fastattnerase.mi import kendall_tau
        >>> kendall_tau([3.0, 2.0, 1.0], [0.5, 0.3, 0.2]).value
        1.0
        >>> kendall_tau([1.0, 1.0], [0.5, 0.3]).reason
        'x is constant'
    """
    xs, ys = _vectors(x=x, y=y)
    reason = _undefined(xs, ys)
    if reason:
        return Correlation(None, reason)
    with needs("text"):
        from scipy import stats
    tau = stats.kendalltau(xs, ys)
    return Correlation(float(tau.statistic), p_value=float(tau.pvalue))


def weighted_tau(
    x: ArrayLike, y: ArrayLike, weights: ArrayLike, *, pairs: PairWeight = "product"
) -> Correlation:
    """Compute Shieh's weighted tau, a pair weighing `w_i w_j` (or `w_i + w_j`).

    `Σ w_ij sgn(x_i − x_j) sgn(y_i − y_j) / √(Σ w_ij [x_i ≠ x_j] · Σ w_ij [y_i ≠ y_j])`; without
    ties the denominator is the sum of all pair weights. Summed pair by pair: the counting of
    `scipy.stats.weightedtau` subtracts tied from total weight, which cancels where one weight
    exceeds the others by orders of magnitude, as attention does.

    Weighted tau depends on how skewed the weights are, so read it beside plain tau.

    Args:
        x, y: `[k]` finite numbers.
        weights: `[k]`, 0 or more.
        pairs: `product`, the usual special case, or `sum`.

    Returns:
        The correlation; undefined where `k < 2`, a vector is constant, or no pair that is not
        tied has weight.

    Raises:
        ValueError: different lengths, a number that is not finite, a negative weight, or an
            unknown `pairs`.

    Source:
        G. Shieh, A weighted Kendall's tau statistic, 1998; ties as in S. Vigna, A weighted
        correlation index for rankings with ties, 2015.

    Example:
        >>> from fastattnerase.mi import weighted_tau
        >>> round(weighted_tau([3.0, 1.0, 2.0], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]).value, 4)
        0.6129
    """
    if pairs not in ("product", "sum"):
        raise ValueError(f"pairs: given {pairs!r}, needed product or sum")
    xs, ys, ws = _vectors(x=x, y=y, weights=weights)
    if (ws < 0).any():
        raise ValueError(f"weights: given {ws.min()} at {int(ws.argmin())}, needed 0 or more")
    reason = _undefined(xs, ys)
    if reason:
        return Correlation(None, reason)
    value = float(weighted_taus(xs[None], ys, ws, pairs=pairs)[0])
    if np.isnan(value):
        return Correlation(None, "no pair that is not tied has weight")
    return Correlation(value)


def weighted_taus(xs: Floats, y: Floats, weights: Floats, *, pairs: PairWeight) -> Floats:
    """Compute the weighted tau of each row of `xs` [S, k] with `y` [k]: `[S]`, NaN if undefined.

    With equal weights it is tau-b. Memory is that of `xs`, not of all pairs.
    """
    scale = weights.max(initial=0.0)
    w = weights / scale if scale > 0 else weights  # products of weights shall not underflow
    agreement = np.zeros(len(xs))
    x_weight = np.zeros(len(xs))
    y_weight = 0.0
    for i in range(len(w) - 1):
        others = w[i + 1 :]
        pair = w[i] * others if pairs == "product" else w[i] + others  # [k - 1 - i]
        x_sign = np.sign(xs[:, i, None] - xs[:, i + 1 :])  # [S, k - 1 - i]
        y_sign = np.sign(y[i] - y[i + 1 :])  # [k - 1 - i]
        agreement += x_sign @ (pair * y_sign)
        x_weight += np.abs(x_sign) @ pair
        y_weight += float(np.abs(y_sign) @ pair)
    with np.errstate(invalid="ignore"):  # 0 / 0, where no pair counts
        tau = agreement / np.sqrt(x_weight) / np.sqrt(y_weight)
    return np.asarray(np.clip(tau, -1.0, 1.0))


def _vectors(**vectors: ArrayLike) -> list[Floats]:
    arrays = {name: np.asarray(vector, dtype=np.float64) for name, vector in vectors.items()}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise ValueError(f"{name}: given {list(array.shape)}, needed [k]")
        if not np.isfinite(array).all():
            place = int((~np.isfinite(array)).argmax())
            raise ValueError(f"{name}: given {array[place]} at {place}, needed finite numbers")
    lengths = [len(array) for array in arrays.values()]
    if len(set(lengths)) > 1:
        raise ValueError(f"{', '.join(arrays)}: given {lengths} numbers, needed as many of each")
    return list(arrays.values())


def _undefined(x: Floats, y: Floats) -> str:
    """Say why no correlation of the two is defined; empty where one is."""
    if len(x) < 2:
        return f"{counted(len(x), 'pair')} of numbers, needed at least 2"
    for name, vector in (("x", x), ("y", y)):
        if (vector == vector[0]).all():
            return f"{name} is constant"
    return ""
