"""Envelope area: how much the order in which words are erased can matter at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.areas import measured_area
from fastattnerase.measures.base import Floats, Ints, Measured, measure, read_curves


@measure(better=None, low=0, high=np.inf)
def envelope_area(
    least: ArrayLike,
    largest: ArrayLike,
    offsets: ArrayLike,
    *,
    shares: ArrayLike | None = None,
) -> Measured:
    """Compute the area between the least and the largest output that any set can have.

    `∫ (largest − least)` over the share of words erased, straight between points. It is of the
    instance, the same for every ranking: 0 where all words say the same, so that no order can be
    better than another. With more than two classes the largest margin is an upper bound, and so is
    the area.

    Args:
        least: `[P]`: for each instance the least output over all sets of as many words, one
            instance after another (`fae.envelope`).
        largest: `[P]`, likewise the largest.
        offsets: `[N + 1]`, integers: where each instance begins there, and the end of the last.
        shares: `[P]`, shares of the words at which these stand, ascending within an instance; None:
            every prefix.

    Returns:
        A value for each instance, undefined of one point alone and where an output is not there.

    Raises:
        ValueError: offsets that do not fit, arrays of two lengths.

    Source:
        Dinkelbach 1967, "On Nonlinear Fractional Programming", of the bounds.

    Example:
        >>> from fastattnerase.measures.envelope_area import envelope_area
        >>> envelope_area([2.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0, 3]).values.tolist()
        [0.5]
    """
    lower, bounds = read_curves(least, offsets)
    upper, _ = read_curves(largest, offsets)
    return measured_area(upper - lower, bounds, read_shares(shares, bounds))


def read_shares(shares: ArrayLike | None, bounds: Ints) -> Floats | None:
    """Read where points stand, `[P]`; None where at every prefix.

    Raises:
        ValueError: another number of them, or some that descend within an instance.
    """
    if shares is None:
        return None
    places = np.asarray(shares, dtype=np.float64)
    if places.shape != (bounds[-1],):
        raise ValueError(f"shares: given {list(places.shape)}, needed [{bounds[-1]}]")
    steps = np.diff(places)
    steps[bounds[1:-1] - 1] = 0.0  # from an instance to the next
    if not (steps >= 0).all():
        raise ValueError("shares: given some that descend, needed none within an instance")
    return places
