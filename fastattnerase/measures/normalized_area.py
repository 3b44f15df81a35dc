"""Normalised area: where a ranking's curve lies between the worst and the best that there is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.areas import area_under
from fastattnerase.measures.base import Measured, measure, read_curves
from fastattnerase.measures.envelope_area import read_shares


@measure(better="higher", low=0, high=1, best=1.0)
def normalized_area(
    curves: ArrayLike,
    least: ArrayLike,
    largest: ArrayLike,
    offsets: ArrayLike,
    *,
    shares: ArrayLike | None = None,
    keep: bool = False,
) -> Measured:
    """Divide what a ranking's area gains on the worst by what the best gains on it.

    `(area − worst) / (best − worst)`, areas over the share of words; best is the least curve where
    words are erased, the largest where they are kept. Against the best nested order, which need not
    follow the bound, it is exact to 3e-4 of the range at most, 1e-5 in the mean (n = 12); with more
    than two classes the largest is an upper bound itself. What a random order has depends on the
    model and the text.

    Args:
        curves: `[P]` or `[R, P]`: for each instance the output after the ranking's words are
            erased (kept), one instance after another.
        least: `[P]`, the least output over all sets of as many words (`fae.envelope`).
        largest: `[P]`, the largest.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.
        shares: `[P]`, shares of the words at which these stand, ascending within an instance; None:
            every prefix.
        keep: whether the words are kept, so that the largest output is best.

    Returns:
        A value for each instance, undefined of one point alone, where best and worst meet, and
        where an output is not there.

    Raises:
        ValueError: offsets that do not fit, arrays of other lengths.

    Source:
        The bounds: Dinkelbach 1967, "On Nonlinear Fractional Programming".

    Example:
        >>> from fastattnerase.measures.normalized_area import normalized_area
        >>> found = normalized_area([2.0, 1.25, 0.0], [2.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0, 3])
        >>> found.values.tolist()
        [0.75]
    """
    own, bounds = read_curves(curves, offsets)
    ends = [read_curves(given, offsets)[0] for given in (least, largest)]
    if len(bounds) == 1:
        return Measured(own)
    places = read_shares(shares, bounds)
    best, worst = (area_under(end, bounds, places) for end in (ends[::-1] if keep else ends))
    area = area_under(own, bounds, places)  # [N] or [R, N]
    width = best - worst  # [N]
    meet = width == 0
    found = np.where(meet, np.nan, (area - worst) / np.where(meet, 1, width))
    missing, single = np.isnan(found), np.diff(bounds) == 1
    counts = {
        "no words": int((missing & single).sum()),
        "bounds meet": int((missing & meet).sum()),
        "not finite": int((missing & ~single & ~meet).sum()),
    }
    return Measured(found, {why: count for why, count in counts.items() if count})
