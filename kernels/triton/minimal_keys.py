"""Keys of the orders in which erasing flips an instance to one given class soonest.

Formula: descending `m_{i,c} = a_i [(s_{i,y} + b_y) - (s_{i,c} + b_c)]`, items of weight zero last.
Where weights underflow: by the sign of the difference, then by score + log|difference|.

Data layout: keys [K, T] int64; row j stands for the j-th class other than the label, counted from
`first`, or, with a pick [B], for the picked class (-1: no class, by position).

Mapping: a program per few instances and row, tiles of BN items.

Memory traffic: weights and two contributions read, 8 bytes written an item and row.

Assumptions: instances without a label get equal keys, so that their order is by position.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import UNDERFLOW, load_f64, load_score, loop_bound, ordered_key
from .launch import Batch, batch_jit


@batch_jit
def minimal_keys_kernel(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, OFFSETS, BIAS, bias_stride, LABEL, STATUS,
    PICK, KEYS, first, T, B, group, first_row, C: tl.constexpr, IS_SCORES: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    lowest = -0x8000000000000000
    row = first_row.to(tl.int64) + tl.program_id(1)
    out = KEYS + row * T
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            y = tl.load(LABEL + b)
            underflow = (tl.load(STATUS + b) & UNDERFLOW) != 0
            if PICK is not None:
                c = tl.load(PICK + b)
            else:
                c = first + row
                c += (c >= y).to(tl.int64)
            usable = (y >= 0) & (c >= 0)
            bias_y = load_f64(BIAS + b * bias_stride + y, usable)
            bias_c = load_f64(BIAS + b * bias_stride + c, usable)
            for start in range(0, loop_bound(n), BN):
                position = start + tl.arange(0, BN)
                inside = position < n
                item = begin + position
                a = tl.load(WEIGHTS + item, mask=inside, other=0.0)
                e = load_score(ATTENTION, attention_stride, item, inside)
                s_y = load_f64(CONTRIBUTIONS + item * C + y, inside & usable)
                s_c = load_f64(CONTRIBUTIONS + item * C + c, inside & usable)
                difference = (s_y + bias_y) - (s_c + bias_c)
                key = ordered_key(a * difference)
                positive = a > 0
                if IS_SCORES:
                    size = tl.abs(difference)
                    size = e + tl.log(tl.where(size > 0, size, 1.0))
                    # A quarter of the range keeps the order and leaves room for the sign.
                    height = (ordered_key(size) >> 2) + 0x2000000000000001
                    signed = tl.where(difference > 0, height, tl.where(difference < 0, -height, 0))
                    key = tl.where(underflow, signed, key)
                    positive = tl.where(underflow, e > float("-inf"), positive)
                key = tl.where(usable, key, 0)
                key = tl.where(positive | (y < 0), key, lowest)
                tl.store(out + begin + position, key, mask=inside)


def minimal_keys(
    batch: Batch, keys: torch.Tensor, first: int = 0, pick: torch.Tensor | None = None
) -> None:
    """Fill keys [K, T] for K classes from the `first` other class on, or [1, T] for `pick` [B]."""
    batch.launch(minimal_keys_kernel, rows=len(keys), PICK=pick, KEYS=keys, first=first, BN=128)
