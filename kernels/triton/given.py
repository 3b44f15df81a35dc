"""Checks the rankings that the caller gave, on the device, without waiting for an answer.

Formula: an order is a permutation of `0 … n - 1` exactly when writing `j` at place `order[j]` for
every `j` and reading it back gives `j` again for all of them; ranking scores are usable when none
is NaN.

Data layout: an order [T] int64 of positions within the instance, or scores [T] float; a scratch
row [T] int32; the flag [B] int32 of an unusable instance, the ordered keys [T] int64 of scores.

Mapping: a program per few instances, tiles of BN items.

Memory traffic: the row twice, the scratch row once each way.

Assumptions: flags start at zero and are only ever set to one, so programs cannot disagree.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import load_f64, loop_bound, ordered_key
from .launch import batch_jit, launch


@batch_jit
def given_kernel(
    ROW, OFFSETS, PLACE, KEYS, FOUND_INVALID, B, group, IS_ORDER: tl.constexpr, BN: tl.constexpr
):
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            wrong = tl.full([BN], 0, tl.int32)
            for start in range(0, loop_bound(n), BN):
                position = start + tl.arange(0, BN)
                inside = position < n
                if IS_ORDER:
                    place = tl.load(ROW + begin + position, mask=inside, other=0)
                    fits = inside & (place >= 0) & (place < n)
                    tl.store(PLACE + begin + place, position, mask=fits)
                else:
                    score = load_f64(ROW + begin + position, inside)
                    tl.store(KEYS + begin + position, ordered_key(score), mask=inside)
                    wrong += (score != score).to(tl.int32)
            if IS_ORDER:
                tl.debug_barrier()
                for start in range(0, loop_bound(n), BN):
                    position = start + tl.arange(0, BN)
                    inside = position < n
                    place = tl.load(ROW + begin + position, mask=inside, other=0)
                    fits = inside & (place >= 0) & (place < n)
                    back = tl.load(PLACE + begin + place, mask=fits, other=-1)
                    wrong += (inside & (back != position)).to(tl.int32)
            if tl.sum(wrong, axis=0) > 0:
                tl.store(FOUND_INVALID + b, 1)


def check_given(
    row: torch.Tensor, offsets: torch.Tensor, scratch: torch.Tensor, found_invalid: torch.Tensor
) -> None:
    """Mark in `found_invalid` [B] the instances whose part of `row` [T] is unusable.

    An int64 row is an order and `scratch` an int32 row; a float row holds scores and their ordered
    keys go to `scratch`, int64.
    """
    is_order = not row.is_floating_point()
    launch(
        given_kernel, len(found_invalid), ROW=row, OFFSETS=offsets,
        PLACE=scratch if is_order else None, KEYS=None if is_order else scratch,
        FOUND_INVALID=found_invalid, IS_ORDER=is_order, BN=128,
    )  # fmt: skip
