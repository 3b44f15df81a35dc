"""Decision-flip fraction: how much of a text has to go before the decision changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Measured, measure


@measure(better="lower", low=0, high=1)
def flip_fraction(first_flip: ArrayLike, lengths: ArrayLike, *, never: float = -1.0) -> Measured:
    """Divide the number of words erased at the first change of the decision by all words.

    Args:
        first_flip: `[N]` or `[R, N]`, integers: the smallest prefix whose erasure changes the
            decision, from 1 on; negative for never.
        lengths: `[N]`, words of each instance.
        never: what stands for never: -1, NaN (neither is part of means) or 1.0 (which is).

    Returns:
        A value for each instance; those that never flip are counted whatever stands for them.

    Raises:
        ValueError: another `never`; more words erased than there are; lengths of another number.

    Source:
        Serrano & Smith 2019, section 5.1.

    Example:
        >>> from fastattnerase.measures.flip_fraction import flip_fraction
        >>> found = flip_fraction([1, -1], [4, 7])
        >>> found.values.tolist(), float(found.mean), found.undefined
        ([0.25, -1.0], 0.25, {'never flips': 1})
    """
    if not (never in (-1.0, 1.0) or np.isnan(never)):
        raise ValueError(f"never: given {never}, needed -1, NaN or 1.0")
    k = np.asarray(first_flip, dtype=np.int64)  # [N] or [R, N]
    n = np.asarray(lengths, dtype=np.int64)  # [N]
    if k.ndim not in (1, 2) or k.shape[-1:] != n.shape:
        raise ValueError(
            f"first_flip: given {list(k.shape)}, needed [N] or [R, N] with {list(n.shape)} lengths"
        )
    if (k > n).any() or (k == 0).any():
        raise ValueError("first_flip: given 0 or more than the words, needed 1 to n, or -1")
    flips = k > 0
    values = np.where(flips, k / np.maximum(n, 1), never)
    count = int((~flips).sum())
    return Measured(
        values, {"never flips": count} if count else {}, flips | np.full_like(flips, never == 1.0)
    )
