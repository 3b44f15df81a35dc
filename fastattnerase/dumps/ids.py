"""Which ids have been given, as ranges: ids that count up take no room, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastattnerase.dumps.checksums import digest_of
from fastattnerase.dumps.manifest import Shard
from fastattnerase.extras import needs
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
        # Runs of ranges, ascending within a run, each run more than twice as long as the one after
        # it: ids in any order are merged a few times each, not once for each call.
        self._runs: list[tuple[Ints, Ints]] = []  # first and last id of each range, inclusive

    def add(self, ids: Ints) -> None:
        """Take note of ids, in any order.

        Raises:
            RunError: one is given twice, or was given before; names it.
        """
        number = self.repeated(ids)
        if number is not None:
            raise RunError(
                f"ids: given {number} a second time, needed ids that are unique in the whole dump "
                "(ids=…, or renumber=True, which numbers the instances)"
            )

    def repeated(self, ids: Ints) -> int | None:
        """Take note of ids, in any order, unless one is given twice, or was given before: that."""
        if not len(ids):
            return None
        own = np.sort(ids)
        twice = own[1:][own[1:] == own[:-1]]
        if len(twice):
            return int(twice[0])
        first, last = _joined(own, own)
        for run_first, run_last in self._runs:
            # The range before each of these that begins last, and whether it reaches into it.
            before = np.searchsorted(run_first, last, side="right") - 1
            reaches = np.flatnonzero((before >= 0) & (run_last[before] >= first))
            for i in reaches[:1]:
                return max(int(first[i]), int(run_first[before[i]]))
        while self._runs and len(self._runs[-1][0]) <= 2 * len(first):
            run_first, run_last = self._runs.pop()
            all_first = np.concatenate([run_first, first])
            order = np.argsort(all_first, kind="stable")
            first, last = _joined(all_first[order], np.concatenate([run_last, last])[order])
        self._runs.append((first, last))
        return None


def _joined(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Join ranges, ascending and apart, where one begins right after the one before it."""
    begins = np.concatenate([[True], first[1:] != last[:-1] + 1])
    return first[begins], last[np.concatenate([begins[1:], [True]])]


def ids_of(path: Path) -> Ints:
    """Read the ids of a shard, `[B]`; where it has none its instances count up from 0."""
    with needs("text"):
        from safetensors import safe_open
    with safe_open(path, framework="pt") as file:
        if "ids" not in file.keys():  # noqa: SIM118  the file is no mapping
            return np.arange(file.get_slice("offsets").get_shape()[0] - 1)
        ids: Ints = file.get_tensor("ids").long().flatten().numpy()
    return ids


def require_unique_ids(folder: Path, shards: Sequence[Shard]) -> None:
    """Refuse shards that were put together by hand and have an id in common.

    A damaged file says nothing of its ids; whoever erases it sets it aside.

    Args:
        folder: of the dump.
        shards: of which the ids are read, 8 bytes an instance.

    Raises:
        RunError: an id that is given twice; names the shards.
    """
    with needs("text"):
        from safetensors import SafetensorError
    seen = UniqueIds()
    read: dict[str, Shard] = {}
    for shard in shards:
        try:
            twice = seen.repeated(ids_of(folder / shard.file))
            read[shard.file] = shard
            if twice is None:
                continue
            both = [other for name, other in read.items() if twice in ids_of(folder / name)]
            if all(digest_of(folder / other.file) == other.sha256 for other in both):
                raise RunError(
                    f"{folder}: given id {twice} in {both[0].file} and again in {shard.file}, "
                    "needed ids that are unique in the whole dump (tensors `ids`)"
                )
        except (OSError, SafetensorError):
            continue
