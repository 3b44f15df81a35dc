"""Orders from keys: a stable descending sort of every instance's items, for many rankings.

Formula: the place of item i is the number of items j with `key_j > key_i`, or equal and `j < i`.

Data layout: keys [K, T] int64 (`ordered_key`), orders [K, T] int64, positions within the instance;
scratch [2, K, T] int32.

Mapping: a program per few instances and ranking. Runs of CH items are placed by counting, in
registers; longer instances then merge their runs in pairs, each item finding its place in the other
run by binary search, so that every pass is `n log n` independent lookups and no item waits for
another. Sorting is exact: CH and BN change the time and never the result.

Memory traffic: instances of at most CH items read their keys and write their order, no more; longer
ones pass `log2(n / CH)` times over scratch, in the caches.

Assumptions: n < 2^31. Instances marked INVALID get -1.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import INVALID, helper, loop_bound
from .launch import batch_jit, launch


@helper
def _sort(
    KEYS, ORDER, SCRATCH, scratch_size, n, CH: tl.constexpr, STEP: tl.constexpr, BN: tl.constexpr
):
    """Sort the items of one instance under one ranking."""
    passes = 0
    width = CH
    while width < n:
        width *= 2
        passes += 1
    for base in range(0, loop_bound(n), CH):
        lane = tl.arange(0, CH)
        position = base + lane
        inside = position < n
        key = tl.load(KEYS + position, mask=inside, other=0)
        rank = tl.full([CH], 0, tl.int32)
        for start in range(base, loop_bound(tl.minimum(base + CH, n)), STEP):
            other = start + tl.arange(0, STEP)
            present = other < n
            other_key = tl.load(KEYS + other, mask=present, other=0)
            tied = (other_key[:, None] == key[None, :]) & (other[:, None] < position[None, :])
            before = ((other_key[:, None] > key[None, :]) | tied) & present[:, None]
            rank += tl.sum(before.to(tl.int32), axis=0)
        if passes == 0:
            tl.store(ORDER + rank, position.to(tl.int64), mask=inside)
        else:
            tl.store(SCRATCH + base + rank, position, mask=inside)
    width = CH
    source = SCRATCH
    target = SCRATCH + scratch_size
    for step in range(0, loop_bound(passes)):
        tl.debug_barrier()  # the previous pass is complete and visible
        for start in range(0, loop_bound(n), BN):
            q = start + tl.arange(0, BN)
            inside = q < n
            position = tl.load(source + q, mask=inside, other=0)
            key = tl.load(KEYS + position, mask=inside, other=0)
            pair = (q // (2 * width)) * (2 * width)
            middle = tl.minimum(pair + width, n)
            left = q < middle
            own = tl.where(left, pair, middle)
            begin = tl.where(left, middle, pair)
            low = begin
            high = tl.where(left, tl.minimum(pair + 2 * width, n), middle)
            span = width
            while span > 0:
                searching = inside & (low < high)
                probe = (low + high) // 2
                there = tl.load(source + probe, mask=searching, other=0)
                probe_key = tl.load(KEYS + there, mask=searching, other=0)
                # Of equal keys the left run's come first, since its positions are lower.
                precedes = (probe_key > key) | ((probe_key == key) & (left == 0))
                low = tl.where(searching & precedes, probe + 1, low)
                high = tl.where(searching & (precedes == 0), probe, high)
                span = span // 2
            place = pair + (q - own) + (low - begin)
            if step == passes - 1:
                tl.store(ORDER + place, position.to(tl.int64), mask=inside)
            else:
                tl.store(target + place, position, mask=inside)
        width *= 2
        swapped = source
        source = target
        target = swapped


@batch_jit
def sort_kernel(
    KEYS, ORDER, SCRATCH, OFFSETS, STATUS, R, T, B, group, first_row, CH: tl.constexpr,
    STEP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    row = (first_row.to(tl.int64) + tl.program_id(1)) * T
    scratch_size = R.to(tl.int64) * T
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            at = row + begin
            if (tl.load(STATUS + b) & INVALID) != 0:
                for start in range(0, loop_bound(n), BN):
                    position = start + tl.arange(0, BN)
                    nowhere = tl.full([BN], -1, tl.int64)
                    tl.store(ORDER + at + position, nowhere, mask=position < n)
            else:
                _sort(KEYS + at, ORDER + at, SCRATCH + at, scratch_size, n, CH, STEP, BN)


def sort(
    keys: torch.Tensor, offsets: torch.Tensor, status: torch.Tensor, order: torch.Tensor
) -> None:
    """Fill order [K, T] int64 from keys [K, T] int64, both contiguous."""
    rows, num_items = keys.shape
    short = num_items <= 24 * len(status)  # by the mean length
    run, warps = (32, 1) if short else (128, 4)
    launch(
        sort_kernel, len(status), rows=rows, KEYS=keys, ORDER=order,
        SCRATCH=torch.empty(2, rows, num_items, dtype=torch.int32, device=keys.device),
        OFFSETS=offsets, STATUS=status, R=rows, T=num_items, CH=run, STEP=16, BN=max(128, run),
        num_warps=warps,
    )  # fmt: skip
