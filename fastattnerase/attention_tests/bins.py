"""Bins of a document's largest weight, by which tests of attention are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = ("0 to .25", ".25 to .5", ".5 to .75", ".75 to 1")


def bin_of(largest_weight: ArrayLike) -> NDArray[np.int64]:
    """Give the bin of each largest weight: four equal ones of [0, 1], the last with its end.

    Example:
        >>> bin_of([0.0, 0.25, 0.74, 1.0]).tolist()
        [0, 1, 2, 3]
    """
    weights: NDArray[Any] = np.asarray(largest_weight)
    return np.minimum((weights * len(BINS)).astype(np.int64), len(BINS) - 1)
