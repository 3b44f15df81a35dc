"""AOPC: the mean drop of a probability over thresholds, of what is erased or kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Floats, Ints, Measured, measure, read_curves
from fastattnerase.measures.thresholds import Preset, Thresholds, thresholds


@measure(better="higher", low=-1, high=1)
def aopc_comprehensiveness(
    erased: ArrayLike,
    offsets: ArrayLike,
    preset: Preset | Thresholds = "eraser",
    *,
    include_zero: bool = False,
    positive: ArrayLike | None = None,
) -> Measured:
    """Average comprehensiveness over thresholds: `mean_q p_y(x) − p_y(x without the top q)`.

    Args:
        erased: `[P]` or `[R, P]`, in [0, 1]: for each instance `p_y` after the first `k = 0 … n`
            words are erased, one instance after another; NaN where it was not computed.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.
        preset: which thresholds: "eraser" (1, 5, 10, 20 and 50 % of the words, rounded up),
            "ferret" (10, 20, … 100 %, rounded down, none twice, words of positive score alone),
            "every" prefix, or `Thresholds` of one's own.
        include_zero: whether 0 %, whose drop is 0, is one threshold more, as in ERASER's paper.
        positive: `[N]` or `[R, N]`, integers: how many words of each instance have a score above 0;
            "ferret" needs it.

    Returns:
        A value for each instance, undefined without words, where no threshold is left, and where a
        probability that is read is not there.

    Raises:
        ValueError: offsets that do not fit; a preset that is not known; "ferret" without
            `positive`.

    Source:
        DeYoung et al. 2020, ERASER, section 4.2 and code; Attanasio et al. 2023, ferret.

    Example:
        >>> from fastattnerase.measures.aopc import aopc_comprehensiveness
        >>> found = aopc_comprehensiveness([0.9, 0.4, 0.3], [0, 3], "every")
        >>> found.values.round(3).tolist()
        [0.55]
    """
    values, bounds = read_curves(erased, offsets)
    return _mean_drop(values, bounds, values[..., bounds[:-1]], preset, include_zero, positive)


@measure(better="lower", low=-1, high=1)
def aopc_sufficiency(
    kept: ArrayLike,
    offsets: ArrayLike,
    preset: Preset | Thresholds = "eraser",
    *,
    include_zero: bool = False,
    positive: ArrayLike | None = None,
) -> Measured:
    """Average sufficiency over thresholds: `mean_q p_y(x) − p_y(only the top q)`.

    Args:
        kept: `[P]` or `[R, P]`, in [0, 1]: for each instance `p_y` of the first `k = 0 … n` words
            alone, one instance after another; NaN where it was not computed.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.
        preset: as of `aopc_comprehensiveness`.
        include_zero: whether 0 % is one threshold more, of drop 0, as in ERASER's paper.
        positive: `[N]` or `[R, N]`, as of `aopc_comprehensiveness`.

    Returns:
        A value for each instance, undefined as in `aopc_comprehensiveness`.

    Raises:
        ValueError: as `aopc_comprehensiveness`.

    Source:
        DeYoung et al. 2020, ERASER, section 4.2 and code; Attanasio et al. 2023, ferret.

    Example:
        >>> from fastattnerase.measures.aopc import aopc_sufficiency
        >>> found = aopc_sufficiency([0.5, 0.8, 0.9], [0, 3], "every")
        >>> found.values.round(3).tolist()
        [0.05]
    """
    values, bounds = read_curves(kept, offsets)
    return _mean_drop(values, bounds, values[..., bounds[1:] - 1], preset, include_zero, positive)


def _mean_drop(
    values: Floats,
    bounds: Ints,
    whole: Floats,
    preset: Preset | Thresholds,
    include_zero: bool,
    positive: ArrayLike | None,
) -> Measured:
    """Average what the probability loses at the thresholds against that of the whole instance.

    Args:
        values: `[P]` or `[R, P]`.
        bounds: `[N + 1]`.
        whole: `[N]` or `[R, N]`.
    """
    wanted = thresholds(preset)
    if include_zero:
        wanted = replace(wanted, include_zero=True)
    n = np.diff(bounds) - 1  # [N]
    rows, wholes = np.atleast_2d(values), np.atleast_2d(whole)  # [R, P], [R, N]
    positives = None if positive is None else np.broadcast_to(positive, wholes.shape)
    found = np.full(wholes.shape, np.nan)
    unread = 0
    for row, (own, before) in enumerate(zip(rows, wholes, strict=True)):
        instance, k = wanted.counts(n, None if positives is None else positives[row])
        drops = before[instance] - own[bounds[instance] + k]  # [M]
        total = np.bincount(instance, drops, len(n))
        count = np.bincount(instance, minlength=len(n))
        np.divide(total, count + wanted.include_zero, out=found[row], where=count > 0)
        unread += int((np.isnan(found[row]) & (count > 0)).sum())
    nothing = len(rows) * int((n == 0).sum())
    left = int(np.isnan(found).sum()) - nothing - unread
    undefined = {"no words": nothing, "no threshold with a word": left, "not finite": unread}
    return Measured(
        found.reshape(whole.shape), {why: count for why, count in undefined.items() if count}
    )
