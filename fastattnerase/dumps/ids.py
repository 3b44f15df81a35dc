"""Which ids have been given, as ranges: ids that count up take no room, however many there are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastattnerase.runs.rundir import RunError

Ints = NDArray[np.int64]


class UniqueIds:
    """Refuses ids that were there before.

    Example:
        >>> import numpy as np
        >>> ids = UniqueIds()
        >>> ids.add(np.array([3, 4, 9]))
        >>> ids.add(np.array([5, 4]))
        Traceback (most recent call last):
        fastattnerase.runs.rundir.RunError: ids: given 4 a second time, needed ids that are unique \
in the whole dump (ids=…, or renumber=True, which numbers the instances)
    """

    def __init__(self) -> None:
        self._first: Ints = np.empty(0, dtype=np.int64)  # [R] of each range, ascending
        self._last: Ints = np.empty(0, dtype=np.int64)  # [R], inclusive

    def add(self, ids: Ints) -> None:
        """Take note of ids, in any order.

        Raises:
            RunError: one is given twice, or was given before; names it.
        """
        if not len(ids):
            return
        own = np.sort(ids)
        twice = own[1:][own[1:] == own[:-1]]
        breaks = np.flatnonzero(own[1:] != own[:-1] + 1) + 1
        first = own[np.concatenate([[0], breaks])]
        last = own[np.concatenate([breaks - 1, [len(own) - 1]])]
        known = []
        if len(self._first):
            # The range before each of these that begins last, and whether it reaches into it.
            before = np.searchsorted(self._first, last, side="right") - 1
            reaches = np.flatnonzero((before >= 0) & (self._last[before] >= first))
            known = [max(int(first[i]), int(self._first[before[i]])) for i in reaches[:1]]
        if len(twice) or known:
            number = int(twice[0]) if len(twice) else known[0]
            raise RunError(
                f"ids: given {number} a second time, needed ids that are unique in the whole dump "
                "(ids=…, or renumber=True, which numbers the instances)"
            )
        all_first = np.concatenate([self._first, first])
        order = np.argsort(all_first, kind="stable")
        all_first, all_last = all_first[order], np.concatenate([self._last, last])[order]
        begins = np.concatenate([[True], all_first[1:] != all_last[:-1] + 1])
        self._first = all_first[begins]
        self._last = all_last[np.concatenate([begins[1:], [True]])]
