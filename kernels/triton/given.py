"""Rankings that the caller brings: whether they are usable, without stopping the stream.

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
import triton
import triton.language as tl

from .common import group_size, load_f64, loop_bound, ordered_key

# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = ["ROW", "OFFSETS", "PLACE", "KEY", "FLAG"]


@triton.jit(
    do_not_specialize=["B", "group"],
    do_not_specialize_on_alignment=POINTERS,
)
def given_kernel(
    ROW, OFFSETS, PLACE, KEY, FLAG, B, group, IS_ORDER: tl.constexpr, BN: tl.constexpr
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
                    tl.store(KEY + begin + position, ordered_key(score), mask=inside)
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
                tl.store(FLAG + b, 1)


def check_given(
    row: torch.Tensor, offsets: torch.Tensor, scratch: torch.Tensor, invalid: torch.Tensor
) -> None:
    """Marks in `invalid` [B] the instances whose part of `row` [T] is unusable.

    An int64 row is an order and `scratch` an int32 row; a float row holds scores and their ordered
    keys go to `scratch`, int64.
    """
    num_instances = len(invalid)
    if num_instances == 0:
        return
    group = group_size(num_instances, 1)
    given_kernel[(triton.cdiv(num_instances, group),)](
        row, offsets, scratch, scratch, invalid, num_instances, group,
        IS_ORDER=not row.is_floating_point(), BN=128, num_warps=4,
    )  # fmt: skip
