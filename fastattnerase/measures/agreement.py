"""Agreement of methods: Kendall's tau-b of their scores, text by text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Floats, Ints, Measured, measure, read_scores

_CELLS = 1 << 22  # signs of pairs that are held at a time


@dataclass(frozen=True, eq=False)
class Agreement:
    """Tau-b of every two of `R` methods.

    Attributes:
        values: `[N, R, R]`, float64, of each instance; NaN where undefined.
        mean: `[R, R]`, float64, over the instances where it is defined; NaN where it is in none.
        undefined: `[R, R]`, int64: instances where it is not.
    """

    values: Floats
    mean: Floats
    undefined: Ints


@measure(better=None, low=-1, high=1, random=0.0)
def agreement(x: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Measured:
    """Compute Kendall's tau-b between two methods' scores of the words of each text.

    `Σ_{i<j} sgn(x_i − x_j) sgn(y_i − y_j) / √(n_x n_y)`, `n_x` and `n_y` counting the pairs that
    are not tied in `x` and in `y`.

    Args:
        x: `[T]`, scores of the words of `N` texts, one text after another.
        y: `[T]`, likewise.
        offsets: `[N + 1]`, integers: where each text begins, and the end of the last.

    Returns:
        A value for each text; undefined with fewer than two words and where one is constant.

    Raises:
        ValueError: scores of another number than the offsets say, or NaN, naming the instance.

    Source:
        M. Kendall, The treatment of ties in ranking problems, 1945.

    Example:
        >>> from fastattnerase.measures.agreement import agreement
        >>> found = agreement([3, 2, 1, 5, 5], [1, 2, 3, 0, 1], [0, 3, 5])
        >>> found.values.tolist(), found.undefined
        ([-1.0, nan], {'constant': 1})
    """
    xs, bounds = read_scores("x", x, offsets)
    ys, _ = read_scores("y", y, offsets)
    if xs.ndim != 1 or ys.ndim != 1:
        raise ValueError(f"x, y: given {list(xs.shape)} and {list(ys.shape)}, needed [T] each")
    values = _taus(np.stack([xs, ys]), bounds)[:, 0, 1]  # [N]
    short = np.diff(bounds) < 2
    constant = int((np.isnan(values) & ~short).sum())
    counts = {"fewer than two words": int(short.sum()), "constant": constant}
    return Measured(values, {why: count for why, count in counts.items() if count})


@measure(better=None, low=-1, high=1, random=0.0)
def agreement_matrix(scores: ArrayLike, offsets: ArrayLike) -> Agreement:
    """Compute `agreement` of every two of several methods.

    Args:
        scores: `[R, T]`, each method's scores of the words of `N` texts, one text after another.
        offsets: `[N + 1]`, integers: where each text begins, and the end of the last.

    Returns:
        The matrix of each text, their mean, and in how many texts each is undefined.

    Raises:
        ValueError: as `agreement`.

    Example:
        >>> from fastattnerase.measures.agreement import agreement_matrix
        >>> agreement_matrix([[3, 2, 1], [1, 2, 3]], [0, 3]).mean.tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    rows, bounds = read_scores("scores", scores, offsets)
    if rows.ndim != 2:
        raise ValueError(f"scores: given {list(rows.shape)}, needed [R, T]")
    values = _taus(rows, bounds)  # [N, R, R]
    undefined = np.isnan(values).sum(0)  # [R, R]
    defined = len(values) - undefined
    total = np.nansum(values, axis=0)
    mean = np.where(defined > 0, total / np.maximum(defined, 1), np.nan)
    return Agreement(values, mean, undefined)


def _taus(rows: Floats, bounds: Ints) -> Floats:
    """Compute tau-b of every two rows `[R, T]` in every text: `[N, R, R]`, NaN where undefined.

    With a row of signs for each method, a column for each pair of words, numerators are the
    products of the rows with each other, and the numbers of untied pairs those with themselves.
    """
    found = np.full((len(bounds) - 1, len(rows), len(rows)), np.nan)
    for number, (begin, end) in enumerate(pairwise(bounds.tolist())):
        own = rows[:, begin:end]  # [R, n]
        products = np.zeros((len(rows), len(rows)))  # of whole numbers: exact
        for first, second in _pairs(own.shape[1], max(1, _CELLS // len(rows))):
            left, right = own[:, first], own[:, second]  # [R, M]; infinite ones compare, too
            signs = (left > right).astype(np.float64) - (left < right)
            products += signs @ signs.T
        untied = np.sqrt(np.diag(products))  # [R]
        scale = untied[:, None] * untied
        np.divide(products, scale, out=found[number], where=scale > 0)
    return np.asarray(np.clip(found, -1, 1))


def _pairs(n: int, most: int) -> Iterator[tuple[Ints, Ints]]:
    """List the pairs `i < j < n`, at most about so many at a time."""
    begin = 0
    while begin < n - 1:
        end = min(n - 1, begin + max(1, most // n))
        i, j = np.nonzero(np.arange(n) > np.arange(begin, end)[:, None])
        yield i + begin, j
        begin = end
