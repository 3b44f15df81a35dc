"""Areas under curves of prefixes: what erasing more and more of an instance does, as one number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Floats, Ints, measure


class Areas(NamedTuple):
    """Mean curve over prefixes by normalised length, and the area under it.

    Attributes:
        grid: `[G]`, fractions of the items erased.
        mean: `[G]`, the mean over instances of their curves there.
        area: `∫ mean`, which is the mean of `values`; NaN without instances.
        values: `[N]`, the area under the curve of each instance.
        curves: `[N, G]`, the curve of each instance on the grid.
    """

    grid: Floats
    mean: Floats
    area: float
    values: Floats
    curves: Floats


@measure(better=None, low=-np.inf, high=np.inf)
def areas(
    curves: ArrayLike, offsets: ArrayLike, *, points: int = 101, grid: ArrayLike | None = None
) -> Areas:
    """Average curves over prefixes of instances of different lengths, and measure their areas.

    An instance's curve goes through `(k / n, c_k)` for `k = 0 … n`, `c_k` being the quantity after
    the first `k` of its `n` items are erased, with straight lines between. Its area is exact,
    `Σ_k (c_{k−1} + c_k) / 2n`, whatever the grid, on which the mean is drawn.

    Args:
        curves: `[T]`, the `n + 1` values of each instance one after another, finite.
        offsets: `[N + 1]`, integers: where each instance begins in `curves`, and the end of the
            last.
        points: of an even grid from 0 to 1, at least 2. Default: every hundredth.
        grid: `[G]`, fractions in [0, 1] in its place.

    Returns:
        The curves on the grid, their mean and the areas.

    Raises:
        ValueError: offsets that do not end where curves do, or with fewer than two values of an
            instance; values that are not finite; fewer than two points; a fraction out of [0, 1].

    Example:
        >>> from fastattnerase.measures.areas import areas
        >>> found = areas([0.0, 1.0, 0.0, 0.0, 1.0], [0, 2, 5], points=3)
        >>> found.values.tolist(), found.area, found.mean.tolist()
        ([0.5, 0.25], 0.375, [0.0, 0.25, 1.0])
    """
    values = np.asarray(curves, dtype=np.float64)  # [T]
    bounds = np.asarray(offsets, dtype=np.int64)  # [N + 1]
    if points < 2:
        raise ValueError(f"points: given {points}, needed at least 2")
    if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != len(values):
        raise ValueError(f"offsets: given {bounds.tolist()!s:.60}, needed 0 to {len(values)}")
    if (np.diff(bounds) < 2).any():
        raise ValueError("offsets: given an instance of fewer than two values, needed its n + 1")
    if not np.isfinite(values).all():
        raise ValueError("curves: given NaN or infinity, needed finite values")
    places = np.linspace(0, 1, points) if grid is None else np.asarray(grid, dtype=np.float64)
    if not ((places >= 0) & (places <= 1)).all():
        raise ValueError(f"grid: given {places.tolist()!s:.60}, needed fractions in [0, 1]")
    steps = np.diff(bounds) - 1  # [N]
    if not len(steps):
        nothing = np.empty((0, len(places)))
        return Areas(places, np.full(len(places), np.nan), float("nan"), np.empty(0), nothing)
    area = area_under(values, bounds)  # [N]
    at = places * steps[:, None]  # [N, G]: items erased there
    before = np.minimum(at.astype(np.int64), steps[:, None] - 1)
    low = bounds[:-1, None] + before
    found = values[low] + (at - before) * (values[low + 1] - values[low])  # [N, G]
    return Areas(places, found.mean(axis=0), float(area.mean()), area, found)


def area_under(values: Floats, bounds: Ints) -> Floats:
    """Compute the area under each instance's curve, `Σ_k (c_{k−1} + c_k) / 2n`.

    Args:
        values: `[P]` or `[R, P]`, the `n + 1` values of each of at least one instance.
        bounds: `[N + 1]`.

    Returns:
        `[N]` or `[R, N]`, NaN where a value is, and where `n` is 0.
    """
    steps = np.diff(bounds) - 1  # [N]
    first, last = values[..., bounds[:-1]], values[..., bounds[1:] - 1]  # [R, N]
    total = np.add.reduceat(values, bounds[:-1], axis=-1) - (first + last) / 2
    return np.asarray(np.where(steps > 0, total / np.maximum(steps, 1), np.nan))
