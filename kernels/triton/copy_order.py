"""Copies the order that the caller gave into the results.

Formula: the order itself; -1 throughout an instance marked INVALID.

Data layout: orders [T] int64, status [B] int64.

Mapping: a program per few instances, tiles of BN items.

Memory traffic: 8 bytes read and 8 written an item.

Assumptions: none.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import INVALID, loop_bound
from .launch import batch_jit, launch


@batch_jit
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
    """Fill order [T] from given [T], both int64."""
    launch(
        copy_order_kernel, len(status), GIVEN=given, OFFSETS=offsets, STATUS=status, ORDER=order,
        BN=128,
    )  # fmt: skip
