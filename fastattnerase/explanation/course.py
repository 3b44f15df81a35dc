"""What erasing the items of one text in an order does, prefix by prefix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Course(NamedTuple):
    """What erasing items one after another does, of `n` items.

    Attributes:
        order: `[n]`, int64, indices of the items as they are erased.
        curve: `[n + 1]`, float64: the probability of the decision's class after 0 … n of them.
        decisions: likewise, the class decided for, None where something is not finite.
        decision_curve: likewise, the probability of that class.
    """

    order: Ints
    curve: Floats
    decisions: tuple[str | None, ...]
    decision_curve: Floats
