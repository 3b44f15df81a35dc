"""Keys of random orders, the same on every backend and whatever the batch.

Formula: `stream = mix(mix(mix(seed + g) + order + g) + id + g)`, key of position i `mix(stream +
(i + 1) g)` with `g = 0x9E3779B97F4A7C15` and `mix` the finaliser of splitmix64; the order is by
descending unsigned key, here mapped to signed ones by flipping the top bit.

Data layout: ids [B], one row of keys [T] int64 for each of consecutive order numbers.

Mapping: a program per few instances and order number, tiles of BN items.

Memory traffic: 8 bytes written an item and order.

Assumptions: none.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import helper, loop_bound
from .launch import batch_jit, launch


@helper
def _mix(x):
    """Finalise splitmix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@batch_jit
def random_keys_kernel(
    IDS, OFFSETS, KEYS, seed, first_order, T, B, group, first_row, BN: tl.constexpr
):
    golden = tl.full([1], 0x9E3779B97F4A7C15, tl.uint64)
    row = first_row.to(tl.int64) + tl.program_id(1)
    order = first_order + row
    out = KEYS + row * T
    shared = _mix(golden + seed.to(tl.int64).to(tl.uint64))
    shared = _mix(shared + order.to(tl.uint64) + golden)
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            stream = _mix(shared + tl.load(IDS + b).to(tl.uint64) + golden)
            for start in range(0, loop_bound(n), BN):
                position = start + tl.arange(0, BN)
                count = (position + 1).to(tl.int64).to(tl.uint64)
                bits = _mix(stream + count * golden)
                key = (bits ^ 0x8000000000000000).to(tl.int64, bitcast=True)
                tl.store(out + begin + position, key, mask=position < n)


def random_keys(
    ids: torch.Tensor, offsets: torch.Tensor, keys: torch.Tensor, seed: int, first_order: int
) -> None:
    """Fill keys [K, T] int64 for the order numbers `first_order … first_order + K - 1`."""
    launch(
        random_keys_kernel, len(ids), rows=len(keys), IDS=ids, OFFSETS=offsets, KEYS=keys,
        seed=(seed + 2**63) % 2**64 - 2**63, first_order=first_order, T=keys.shape[1], BN=128,
    )  # fmt: skip
