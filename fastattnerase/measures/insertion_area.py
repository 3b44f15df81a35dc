"""Insertion area: how soon the probability comes when words are put into an empty text."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fastattnerase.measures.areas import measured_area
from fastattnerase.measures.base import Measured, measure, read_curves


@measure(better="higher", low=0, high=1)
def insertion_area(kept: ArrayLike, offsets: ArrayLike) -> Measured:
    """Compute the area under `p_y` over the fraction of the words kept, the top first.

    `Σ_{k=1…n} (p_{k−1} + p_k) / 2n`; the empty text is `k = 0`.

    Args:
        kept: `[P]` or `[R, P]`, in [0, 1]: for each instance `p_y` of the first `k = 0 … n` words
            alone, one instance after another.
        offsets: `[N + 1]`, as of `deletion_area`.

    Returns:
        A value for each instance, undefined as in `deletion_area`.

    Raises:
        ValueError: offsets that do not fit.

    Source:
        Petsiuk et al. 2018, RISE, section 4.1 (insertion).

    Example:
        >>> from fastattnerase.measures.insertion_area import insertion_area
        >>> insertion_area([0.0, 1.0, 1.0], [0, 3]).values.tolist()
        [0.75]
    """
    return measured_area(*read_curves(kept, offsets))
