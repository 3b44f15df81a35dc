"""Areas under curves of prefixes: what erasing more and more of an instance does, as one number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Floats, Ints, Measured, measure


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


def area_under(values: Floats, bounds: Ints, shares: Floats | None = None) -> Floats:
    """Compute the area under each instance's curve, `Σ_k (c_{k−1} + c_k) / 2n`.

    Args:
        values: `[P]` or `[R, P]`, the `n + 1` values of each of at least one instance.
        bounds: `[N + 1]`.
        shares: `[P]`, where the values stand, ascending within an instance: then the area with
            straight lines between them, by the width that they span. None: at every prefix.

    Returns:
        `[N]` or `[R, N]`, NaN where a value is, and of one value alone.
    """
    first, last = bounds[:-1], bounds[1:] - 1  # [N]
    if shares is None:
        width = np.diff(bounds) - 1  # [N]
        total = (
            np.add.reduceat(values, first, axis=-1) - (values[..., first] + values[..., last]) / 2
        )
    else:
        width = shares[last] - shares[first]
        parts = np.zeros_like(values)  # from each value to the next
        parts[..., :-1] = (values[..., 1:] + values[..., :-1]) / 2 * np.diff(shares)
        parts[..., last] = 0.0
        total = np.add.reduceat(parts, first, axis=-1)
    return np.asarray(np.where(width > 0, total / np.where(width > 0, width, 1), np.nan))


def measured_area(values: Floats, bounds: Ints, shares: Floats | None = None) -> Measured:
    """Compute the areas as `area_under`, and count the instances that have none."""
    if len(bounds) == 1:
        return Measured(values)
    area = area_under(values, bounds, shares)  # [N] or [R, N]
    missing = np.isnan(area)
    nothing = missing & (np.diff(bounds) == 1)
    counts = {"no words": int(nothing.sum()), "not finite": int((missing & ~nothing).sum())}
    return Measured(area, {why: count for why, count in counts.items() if count})
