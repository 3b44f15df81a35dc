"""Sufficiency: how much of the probability the first words of a ranking alone do not give."""

from __future__ import annotations

from typing import Literal

from numpy.typing import ArrayLike

from fastattnerase.measures.aopc import aopc_sufficiency
from fastattnerase.measures.base import Measured, measure
from fastattnerase.measures.thresholds import Thresholds


@measure(better="lower", low=-1, high=1)
def sufficiency(
    kept: ArrayLike,
    offsets: ArrayLike,
    fraction: float = 0.2,
    *,
    rounding: Literal["ceil", "floor"] = "ceil",
) -> Measured:
    """Measure `p_y(x) − p_y(only the top q)` at one fraction of the words.

    Args:
        kept: `[P]` or `[R, P]`, in [0, 1]: for each instance `p_y` of the first `k = 0 … n`
            words alone, one instance after another; NaN where it was not computed.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.
        fraction, rounding: as of `comprehensiveness`.

    Returns:
        A value for each instance, undefined as in `comprehensiveness`.

    Raises:
        ValueError: as `comprehensiveness`.

    Source:
        DeYoung et al. 2020, ERASER, section 4.2.

    Example:
        >>> from fastattnerase.measures.sufficiency import sufficiency
        >>> sufficiency([0.5, 0.8, 0.9], [0, 3], 0.5).values.round(3).tolist()
        [0.1]
    """
    return aopc_sufficiency(kept, offsets, Thresholds((fraction,), rounding))
