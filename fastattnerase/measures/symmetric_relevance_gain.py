"""Symmetric relevance gain: how far apart the two ends of a ranking are erased from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Measured, measure, read_curves


@measure(better="higher", low=-1, high=1, random=0.0)
def symmetric_relevance_gain(erased: ArrayLike, kept: ArrayLike, offsets: ArrayLike) -> Measured:
    """Compare erasing the least important words first with erasing the most important first.

    `Σ_{k=1…n} (p_k^last − p_k^first) / n`, `p_k` after `k` words are erased from the end, and from
    the front, of the ranking. Erasing the last `k` keeps the first `n − k`, so that
    `p_k^last = kept_{n−k}`. An order and its reverse have opposite values: a random order has 0 on
    average. The best there is depends on the model and the text.

    Args:
        erased: `[P]` or `[R, P]`, in [0, 1]: for each instance `p_y` after the first `k = 0 … n`
            words are erased, one instance after another.
        kept: as `erased`, of the first `k = 0 … n` words alone.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.

    Returns:
        A value for each instance, undefined without words and where a probability is not there.

    Raises:
        ValueError: offsets that do not fit, curves of two shapes.

    Source:
        Blücher et al. 2024, "Decoupling Pixel Flipping and Occlusion Strategy for Consistent XAI
        Benchmarks".

    Example:
        >>> from fastattnerase.measures.symmetric_relevance_gain import symmetric_relevance_gain
        >>> symmetric_relevance_gain([1.0, 0.25, 0.0], [0.0, 0.75, 1.0], [0, 3]).values.tolist()
        [0.25]
    """
    first, bounds = read_curves(erased, offsets)
    other, _ = read_curves(kept, offsets)
    if first.shape != other.shape:
        raise ValueError(f"kept: given {list(other.shape)}, needed {list(first.shape)} as erased")
    n = np.diff(bounds) - 1  # [N]
    if not len(n):
        return Measured(first)
    # Both sums leave out the whole text: erased at k = 0, kept at k = n.
    starts = bounds[:-1]
    gained = np.add.reduceat(other, starts, axis=-1) - other[..., bounds[1:] - 1]
    lost = np.add.reduceat(first, starts, axis=-1) - first[..., starts]
    found = np.where(n > 0, (gained - lost) / np.maximum(n, 1), np.nan)  # [N] or [R, N]
    missing = np.isnan(found)
    counts = {
        "no words": int((missing & (n == 0)).sum()),
        "not finite": int((missing & (n > 0)).sum()),
    }
    return Measured(found, {why: count for why, count in counts.items() if count})
