"""AOPC-R: how much more a ranking's words take away than as many words drawn at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.aopc import aopc_comprehensiveness
from fastattnerase.measures.base import Measured, measure, read_curves
from fastattnerase.measures.thresholds import Preset, Thresholds


@measure(better="higher", low=-1, high=1, random=0.0)
def aopc_over_random(
    erased: ArrayLike,
    random: ArrayLike,
    offsets: ArrayLike,
    preset: Preset | Thresholds = "every",
    *,
    positive: ArrayLike | None = None,
) -> Measured:
    """Subtract the AOPC of random orders: `mean_q p_y(x without q at random) − p_y(without top q)`.

    Whatever a model makes of texts with holes, any order meets it: the difference is the ranking's.
    A random order has 0 on average, the best depends on the model and the text. Instances are what
    intervals (`Measured.intervals`) resample; each has its own random orders, so that chance in
    these is part of them.

    Args:
        erased: `[P]` or `[R, P]`, in [0, 1]: for each instance `p_y` after the first `k = 0 … n`
            words are erased, one instance after another.
        random: `[P]` or `[K, P]`, likewise of `K` random orders of each instance, whose mean is
            taken.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.
        preset: as of `aopc_comprehensiveness`.
        positive: `[N]` or `[R, N]`, as of `aopc_comprehensiveness`; as many words are drawn.

    Returns:
        A value for each instance, undefined as in `aopc_comprehensiveness` of either.

    Raises:
        ValueError: as `aopc_comprehensiveness`; no random order.

    Source:
        Samek et al. 2017, "Evaluating the Visualization of What a Deep Neural Network Has Learned".

    Example:
        >>> from fastattnerase.measures.aopc_over_random import aopc_over_random
        >>> found = aopc_over_random([0.9, 0.4, 0.3], [[0.9, 0.8, 0.3], [0.9, 0.4, 0.3]], [0, 3])
        >>> found.values.round(3).tolist()
        [0.1]
    """
    own, bounds = read_curves(erased, offsets)
    drawn, _ = read_curves(random, offsets)
    drawn = np.atleast_2d(drawn)  # [K, P]
    if not len(drawn):
        raise ValueError("random: given no order, needed one or more")
    # The measure is linear in the curve: that of the mean is the mean of the measures. Taken from
    # the difference it is of as many words in both.
    return aopc_comprehensiveness(own - drawn.mean(axis=0), bounds, preset, positive=positive)
