"""Optimality gap: how many times the smallest flipping set a ranking takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Measured, measure


@measure(better="lower", low=1, high=np.inf, best=1.0)
def optimality_gap(first_flip: ArrayLike, smallest: ArrayLike) -> Measured:
    """Divide the first flip of a ranking by the size of the smallest set that flips.

    It is for erasure at the attention layer, with a linear head and one attention head, where the
    smallest set is known (`fae.minimal_flip_set`); for erased inputs nothing exact is.

    Args:
        first_flip: `[N]` or `[R, N]`, integers: the smallest prefix whose erasure changes the
            decision; negative for never.
        smallest: `[N]`, integers: items of the smallest set, negative where no set flips.

    Returns:
        A value for each instance, 1 where the ranking's prefix is a smallest set; undefined where
        no set flips and where the ranking never does.

    Raises:
        ValueError: sizes of another number, or a first flip before the smallest set.

    Example:
        >>> from fastattnerase.measures.optimality_gap import optimality_gap
        >>> optimality_gap([2, 3, -1], [2, 2, -1]).values.tolist()
        [1.0, 1.5, nan]
    """
    k = np.asarray(first_flip, dtype=np.int64)  # [N] or [R, N]
    size = np.asarray(smallest, dtype=np.int64)  # [N]
    if k.ndim not in (1, 2) or k.shape[-1:] != size.shape:
        raise ValueError(
            f"smallest: given {list(size.shape)}, needed one for each of first_flip {list(k.shape)}"
        )
    if ((k > 0) & (k < size)).any() or ((k > 0) & (size <= 0)).any():
        raise ValueError("smallest: given a set larger than a prefix that flips, needed none such")
    values = np.where((k > 0) & (size > 0), k / np.maximum(size, 1), np.nan)
    none = int(np.broadcast_to(size <= 0, k.shape).sum())
    counts = {"no set flips": none, "never flips": int((k <= 0).sum()) - none}
    return Measured(values, {why: count for why, count in counts.items() if count})
