"""By a counter-based random key: the same order on every backend, whatever the batch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import OrderContext, Ranking
from fastattnerase.reference.instance import Instance

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64


def mix64(x: int) -> int:
    """Mix as the finaliser of splitmix64 does (Steele, Lea and Flood 2014), on 64-bit words."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % _WORD
    return x ^ (x >> 31)


def random_keys(seed: int, order: int, instance_id: int, n: int) -> list[int]:
    """Draw a 64-bit key a position from the seed, the order's number and the instance's id."""
    stream = mix64((seed + _GOLDEN) % _WORD)
    stream = mix64((stream + order + _GOLDEN) % _WORD)
    stream = mix64((stream + instance_id + _GOLDEN) % _WORD)
    return [mix64((stream + (position + 1) * _GOLDEN) % _WORD) for position in range(n)]


def first_keys(seed: int, order: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Draw the key of the first position of many instances at once, as `random_keys` does: [B]."""
    stream = mix64((mix64((seed + _GOLDEN) % _WORD) + order + _GOLDEN) % _WORD)
    of_instance = _mix64(ids.astype(np.uint64) + np.uint64((stream + _GOLDEN) % _WORD))
    return _mix64(of_instance + np.uint64(_GOLDEN))


def _mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix arrays as `mix64` does; numbers of arrays wrap around without a warning."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def random_order(seed: int, order: int, instance_id: int, n: int) -> Tensor:
    """Sort positions by descending key, as unsigned numbers: [n]."""
    keys = random_keys(seed, order, instance_id, n)
    return torch.tensor(sorted(range(n), key=lambda i: (-keys[i], i)), dtype=torch.int64)


def order(instance: Instance, context: OrderContext) -> Tensor:
    """Draw the random order of number `context.arg`."""
    return random_order(context.seed, context.arg, instance.id, instance.n)


RANKING = Ranking(
    name="random",
    kind=RankingKind.RANDOM,
    doc="a 64-bit key an item from (seed, order, the instance's id, position)",
    order=order,
)
