"""The order that the caller gave, as a result.

Formula: the order itself; -1 throughout an instance marked INVALID.

Data layout: orders [T] int64, status [B] int64.

Mapping: a program per few instances, tiles of BN items.

Memory traffic: 8 bytes read and 8 written an item.

Assumptions: none.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import INVALID, group_size, loop_bound

# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = ["GIVEN", "OFFSETS", "STATUS", "ORDER"]


@triton.jit(
    do_not_specialize=["B", "group"],
    do_not_specialize_on_alignment=POINTERS,
)
def copy_order_kernel(GIVEN, OFFSETS, STATUS, ORDER, B, group, BN: tl.constexpr):
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            invalid = (tl.load(STATUS + b) & INVALID) != 0
            for start in range(0, loop_bound(n), BN):
                position = start + tl.arange(0, BN)
                place = tl.load(GIVEN + begin + position, mask=position < n, other=0)
                tl.store(ORDER + begin + position, tl.where(invalid, -1, place), mask=position < n)


def copy_order(
    given: torch.Tensor, offsets: torch.Tensor, status: torch.Tensor, order: torch.Tensor
) -> None:
    """Fills order [T] from given [T], both int64."""
    num_instances = len(status)
    if num_instances == 0:
        return
    group = group_size(num_instances, 1)
    copy_order_kernel[(triton.cdiv(num_instances, group),)](
        given, offsets, status, order, num_instances, group, BN=128, num_warps=4
    )
