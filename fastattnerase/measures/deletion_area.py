"""Deletion area: how much probability is left on the way to an empty text."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fastattnerase.measures.areas import measured_area
from fastattnerase.measures.base import Measured, measure, read_curves


@measure(better="lower", low=0, high=1)
def deletion_area(erased: ArrayLike, offsets: ArrayLike) -> Measured:
    """Compute the area under `p_y` over the fraction of the words erased, the top first.

    `Σ_{k=1…n} (p_{k−1} + p_k) / 2n`; the empty text is `k = n`.

    Args:
        erased: `[P]` or `[R, P]`, in [0, 1]: for each instance `p_y` after the first `k = 0 … n`
            words are erased, one instance after another.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.

    Returns:
        A value for each instance, undefined without words and where a probability is not there.

    Raises:
        ValueError: offsets that do not fit.

    Source:
        Petsiuk et al. 2018, RISE, section 4.1 (deletion).

    Example:
        >>> from fastattnerase.measures.deletion_area import deletion_area
        >>> deletion_area([1.0, 0.5, 0.0], [0, 3]).values.tolist()
        [0.5]
    """
    return measured_area(*read_curves(erased, offsets))
