"""Sums over the rows of resamples, of many columns at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastattnerase.statistics.resampled import Counts, Floats

_EXACT = 1 << 24  # up to here float32 holds every whole number


class Sums:
    """Adds up columns over the rows of resamples, by products of matrices.

    Columns that are alike are added up once. Whole numbers are in single precision, which takes
    half the time and is exact as long as no sum exceeds 2^24.

    Args:
        *columns: `[N, S]` float64; several matrices are taken side by side.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.sums import Sums
        >>> sums = Sums(np.array([[1.0, 0.5, 1.0], [2.0, 0.25, 2.0]]))
        >>> sums.of(np.array([[2, 0], [1, 1]], dtype=np.uint8)).tolist()
        [[2.0, 1.0, 2.0], [3.0, 0.75, 3.0]]
    """

    def __init__(self, *columns: Floats) -> None:
        size = len(columns[0])
        known: dict[bytes, int] = {}
        distinct: list[Floats] = []  # [N] each, in order of appearance
        place = []
        for row in (row for part in columns for row in part.T):
            place.append(known.setdefault(row.tobytes(), len(known)))
            if len(known) > len(distinct):
                distinct.append(np.ascontiguousarray(row))
        whole = np.array([_is_whole(row) for row in distinct], dtype=bool)  # [K]
        singles = [row.astype(np.float32) for row, exact in zip(distinct, whole, strict=True)
                   if exact]  # fmt: skip
        others = [row for row, exact in zip(distinct, whole, strict=True) if not exact]
        self._whole: NDArray[np.float32] = np.array(singles, dtype=np.float32).reshape(-1, size).T
        self._largest = float(np.abs(self._whole).max(initial=0.0))
        self._others: Floats = np.array(others, dtype=np.float64).reshape(-1, size).T
        order = np.concatenate([np.flatnonzero(whole), np.flatnonzero(~whole)])
        self._place = np.argsort(order)[place]  # [S], in the sums of whole ones and of others

    def of(self, counts: Counts) -> Floats:
        """Add up every column, `[C, S]`, each row as often as it counts in `counts`, `[C, N]`."""
        rows = int(counts.sum(axis=1, dtype=np.int64).max(initial=0))
        exact = rows * self._largest <= _EXACT
        whole = (
            counts.astype(np.float32) @ self._whole
            if exact
            else counts.astype(np.float64) @ self._whole
        )  # [C, K]
        others = counts.astype(np.float64) @ self._others
        return np.concatenate([whole, others], axis=1)[:, self._place]


def _is_whole(row: Floats) -> bool:
    """Say whether all are whole numbers that float32 holds."""
    return bool(((row == np.rint(row)) & (np.abs(row) <= _EXACT)).all())
