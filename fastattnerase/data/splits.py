"""Which rows go to train, dev and test: drawn from a seed, without any text in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from fastattnerase.data.config import DataConfig

SPLITS = ("train", "dev", "test")
LEFT_OUT = -1

Ints = npt.NDArray[np.int64]


def draw_splits(
    ids: Ints,
    labels: Sequence[str],
    given: Ints,
    config: DataConfig,
    fits: Callable[[Ints], npt.NDArray[np.bool_]],
) -> Ints:
    """Draw the split of every row.

    Args:
        ids: `[R]`, int64, the rows' numbers.
        labels: `R` labels.
        given: `[R]`, int64, the splits that files or a column give, indices into `SPLITS`; splits
            that none is in are drawn from train.
        config: how to draw.
        fits: asked only by a quota draw with length limits: indices of rows `[K]`, ascending, each
            asked once, to whether their documents keep to the limits.

    Returns:
        `[R]`, int64, indices into `SPLITS`, or `LEFT_OUT`.

    Example:
        >>> config = DataConfig(fractions=(0.5, 0.0, 0.5))
        >>> zeros = np.zeros(4, dtype=np.int64)
        >>> draw_splits(np.arange(4), ["a", "a", "b", "b"], zeros, config, lambda rows: rows >= 0)
        array([2, 0, 0, 2])
    """
    missing = [split for split in (1, 2) if not (given == split).any()]
    hashes = np.array([_hash(config.seed, row) for row in ids.tolist()], dtype=np.uint64)
    if config.draw == "independent":
        return _independent(hashes, given, missing, config)
    order = np.argsort(hashes, kind="stable")
    pools: dict[str, list[int]] = {}  # label → its rows, in drawn order
    for index in order.tolist():
        pools.setdefault(labels[index], []).append(index)
    if config.draw == "quota":
        return _quota(pools, given, missing, config, fits)
    return _stratified(pools, given, missing, config)


def _hash(seed: int, row: int) -> int:
    digest = blake2b(f"{seed}:{row}".encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big")


def _independent(
    hashes: npt.NDArray[np.uint64], given: Ints, missing: list[int], config: DataConfig
) -> Ints:
    drawn = [0, *missing]
    shares = np.array([config.fractions[split] for split in drawn])
    ends = np.cumsum(shares / shares.sum())[:-1]
    uniform = hashes / 2.0**64  # [R]
    split = np.array(drawn)[np.searchsorted(ends, uniform, side="right")]  # [R]
    return np.where(given == 0, split, given).astype(np.int64)


def _stratified(
    pools: dict[str, list[int]], given: Ints, missing: list[int], config: DataConfig
) -> Ints:
    total = config.fractions[0] + sum(config.fractions[split] for split in missing)
    pools = {label: [i for i in pool if given[i] == 0] for label, pool in pools.items()}
    pools = {label: pool for label, pool in pools.items() if pool}
    sizes = {label: len(pool) for label, pool in pools.items()}
    result = given.copy()
    for split in missing:
        for label, count in _allocate(sizes, config.fractions[split] / total).items():
            for _ in range(min(count, len(pools[label]) - 1)):
                result[pools[label].pop()] = split
    return result


def _allocate(sizes: dict[str, int], share: float) -> dict[str, int]:
    """Share out a split among the classes, by largest remainder: the total is exact."""
    exact = {label: size * share for label, size in sizes.items()}
    counts = {label: int(value) for label, value in exact.items()}
    left = round(sum(sizes.values()) * share) - sum(counts.values())
    by_remainder = sorted(exact, key=lambda label: (counts[label] - exact[label], label))
    for label in by_remainder[:left]:
        counts[label] += 1
    return counts


def _quota(
    pools: dict[str, list[int]],
    given: Ints,
    missing: list[int],
    config: DataConfig,
    fits: Callable[[Ints], npt.NDArray[np.bool_]],
) -> Ints:
    assert config.quota is not None
    limited = [SPLITS.index(split) for split in config.limited_splits]
    fitting = np.ones(len(given), dtype=bool)  # until a row is looked at
    looked_at = np.full(len(given), not config.length_limited)
    # Rows are looked at only once they are drawn: few more than the quotas ask for are tokenised.
    while True:
        result = np.full(len(given), LEFT_OUT, dtype=np.int64)
        for pool in pools.values():
            # Too few rows for the drawn splits: each gets its share of those there are.
            there = sum(given[index] == 0 for index in pool)
            wanted = sum(config.quota[split] for split in (0, *missing))
            for split in (2, 1, 0):
                source = 0 if split in missing else split
                room = config.quota[split]
                if split in missing and there < wanted:
                    room = room * there // wanted
                for index in pool:
                    if room == 0:
                        break
                    if given[index] != source or result[index] != LEFT_OUT:
                        continue
                    if fitting[index] or split not in limited:
                        result[index] = split
                        room -= 1
        rows = np.flatnonzero(np.isin(result, limited) & ~looked_at)
        if not len(rows):
            return result
        fitting[rows] = fits(rows)
        looked_at[rows] = True
