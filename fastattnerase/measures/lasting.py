"""Whether a decision that erasing changed stays changed when more is erased."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Bools, Ints, measure


class Lasting(NamedTuple):
    """Changes of decisions along the prefixes of an order, by instance.

    Attributes:
        first: `[N]`, int64: the smallest prefix `k ≥ 1` that changes the decision, -1 for never.
        stays: `[N]`, int64: the smallest prefix from which on the decision stays changed as long as
            any item is left; `n` where only erasing everything changes it for good, -1 where the
            last item alone gives the original decision again and so does nothing at all.
        undone: `[N]`, bool: the first change is undone by erasing more, though not everything.
    """

    first: Ints
    stays: Ints
    undone: Bools


@measure(better="lower", low=-1, high=np.inf)
def lasting(changed: ArrayLike, offsets: ArrayLike) -> Lasting:
    """Find the first change of each decision, and the one after which it stays changed.

    With `c_k` for "the decision differs after the first `k` of `n` items are erased",
    `first = min{k ≥ 1: c_k}` and `stays = 1 + max{k < n: not c_k}`, where `c_0` is false; `stays`
    is -1 where that is `n` and `c_n` is false. The first change is undone where some `k` with
    `first < k < n` has `c_k` false. Erasing everything is left out: nothing of the order is in
    `c_n`, which says whether the bias alone decides as the model did.

    Args:
        changed: `[T]`, bool: the `n + 1` values of each instance one after another, of which the
            first is not looked at.
        offsets: `[N + 1]`, integers: where each instance begins in `changed`, and the end of the
            last.

    Returns:
        First changes, lasting changes, and which are undone.

    Raises:
        ValueError: offsets that do not end where `changed` does, or with fewer than two values of
            an instance.

    Source:
        Serrano and Smith 2019, section 5.1, have the first change alone.

    Example:
        >>> from fastattnerase.measures.lasting import lasting
        >>> found = lasting([False, True, False, True, True], [0, 5])
        >>> found.first.tolist(), found.stays.tolist(), found.undone.tolist()
        ([1], [3], [True])
    """
    values = np.asarray(changed, dtype=bool)  # [T]
    bounds = np.asarray(offsets, dtype=np.int64)  # [N + 1]
    if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != len(values):
        raise ValueError(f"offsets: given {bounds.tolist()!s:.60}, needed 0 to {len(values)}")
    if (np.diff(bounds) < 2).any():
        raise ValueError("offsets: given an instance of fewer than two values, needed its n + 1")
    if len(bounds) == 1:
        none = np.empty(0, dtype=np.int64)
        return Lasting(none, none, none.astype(bool))
    n = np.diff(bounds) - 1  # [N]
    k = np.arange(len(values)) - np.repeat(bounds[:-1], n + 1)  # [T]
    items = np.repeat(n, n + 1)  # [T]
    flips = np.where(values & (k > 0), k, items + 1)
    first = np.minimum.reduceat(flips, bounds[:-1])
    same = np.where(values | (k == items), 0, k)
    stays = 1 + np.maximum.reduceat(same, bounds[:-1])
    ends = values[bounds[1:] - 1]  # [N]: nothing left gives another decision
    first = np.where(first > n, -1, first)
    stays = np.where((stays == n) & ~ends, -1, stays)
    return Lasting(first, stays, (first > 0) & ((stays < 0) | (stays > first)))
