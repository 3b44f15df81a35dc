"""Areas under curves of prefixes: what erasing more and more of an instance does, as one number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Areas(NamedTuple):
    """Mean curve over prefixes by normalised length, and the area under it.

    Attributes:
        grid: `[G]`, fractions of the items erased, from 0 to 1.
        mean: `[G]`, the mean over instances of their curves there.
        area: `∫ mean`, which is the mean of `values`; NaN without instances.
        values: `[N]`, the area under the curve of each instance.
    """

    grid: Floats
    mean: Floats
    area: float
    values: Floats


def areas(curves: ArrayLike, offsets: ArrayLike, *, points: int = 101) -> Areas:
    """Average curves over prefixes of instances of different lengths, and measure their areas.

    An instance's curve goes through `(k / n, c_k)` for `k = 0 … n`, `c_k` being the quantity after
    the first `k` of its `n` items are erased, with straight lines between. Its area is exact,
    `Σ_k (c_{k−1} + c_k) / 2n`, whatever the grid, on which the mean is drawn.

    Args:
        curves: `[T]`, the `n + 1` values of each instance one after another, finite.
        offsets: `[N + 1]`, integers: where each instance begins in `curves`, and the end of the
            last.
        points: of the grid, at least 2. Default: every hundredth.

    Returns:
        The mean curve and the areas.

    Raises:
        ValueError: offsets that do not end where curves do, or with fewer than two values of an
            instance; values that are not finite; fewer than two points.

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
    grid = np.linspace(0, 1, points)
    count = len(bounds) - 1
    total, area = np.zeros(points), np.zeros(count)
    for number in range(count):
        curve = values[bounds[number] : bounds[number + 1]]  # [n + 1]
        steps = len(curve) - 1
        area[number] = (curve.sum() - (curve[0] + curve[-1]) / 2) / steps
        total += np.interp(grid, np.arange(steps + 1) / steps, curve)
    mean = total / count if count else np.full(points, np.nan)
    return Areas(grid, mean, float(area.mean()) if count else float("nan"), area)
