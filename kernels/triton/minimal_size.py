"""The first prefix of each class's own margin order at which that class overtakes the label.

Formula: the smallest `k >= 1` with surviving mass at which `sum_{survivors} m_{i,c} < 0`, or `= 0`
with `c < y`, sums from the tail in float64. The minimal set's size is the smallest over the
classes; equal sizes: the lowest class. So `size * C + c` is written, and its minimum over rows is
all that is needed.

Data layout: orders [K, T] int64 of `minimal_keys.py`; codes [K, B] int64; nearest near-tie [K, B]
int32.

Mapping: a program per few instances and class, tiles of BN rows; UNDERFLOW a row at a time.

Memory traffic: an order, a weight and two contributions an item and class, gathered.

Assumptions: none; a class that never overtakes the label has the size NEVER.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import NEVER, UNDERFLOW, helper, load_f64, load_score, loop_bound, rescale
from .launch import Batch, batch_jit


@helper
def _first_flip(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, ORDER, BIAS, y, c, tolerance, begin, n,
    C: tl.constexpr, RESCALED: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Find the first prefix at which class `c` overtakes the label, and the nearest near-tie."""
    bias_y = load_f64(BIAS + y, y >= 0)
    bias_c = load_f64(BIAS + c, y >= 0)
    margin_carry = tl.full([1], 0, tl.float64)
    weight_carry = tl.full([1], 0, tl.float64)
    running_max = tl.full([1], float("-inf"), tl.float64)
    first = tl.min(tl.full([BN], NEVER, tl.int32), axis=0)
    nearest = first
    for start in range(0, loop_bound(n), BN):
        u = start + 1 + tl.arange(0, BN)  # survivors
        inside = u <= n
        k = n - u
        item = begin + tl.load(ORDER + k, mask=inside, other=0)
        s_y = load_f64(CONTRIBUTIONS + item * C + y, inside)
        s_c = load_f64(CONTRIBUTIONS + item * C + c, inside)
        difference = (s_y + bias_y) - (s_c + bias_c)
        if RESCALED:
            e = load_score(ATTENTION, attention_stride, item, inside)
            running_max, factor, weight = rescale(running_max, e)
            margin_carry = margin_carry * factor
            weight_carry = weight_carry * factor
        else:
            weight = tl.load(WEIGHTS + item, mask=inside, other=0.0)
        terms = tl.where(inside, weight * difference, 0.0)
        margins = margin_carry + tl.cumsum(terms, axis=0)
        surviving = weight_carry + tl.cumsum(weight, axis=0)
        margin_carry += tl.sum(terms, axis=0)
        weight_carry += tl.sum(weight, axis=0)
        weighted = inside & (surviving > 0)
        flips = weighted & (k >= 1) & ((margins < 0) | ((margins == 0) & (c < y)))
        first = tl.minimum(first, tl.min(tl.where(flips, k, NEVER), axis=0))
        near = weighted & (tl.abs(margins) < tolerance * surviving)
        nearest = tl.minimum(nearest, tl.min(tl.where(near, k, NEVER), axis=0))
    return first, nearest


@batch_jit
def minimal_size_kernel(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, ORDER, OFFSETS, BIAS, bias_stride, LABEL,
    STATUS, TOLERANCE, CODES, NEAREST, first, T, B, group, first_row, C: tl.constexpr,
    IS_SCORES: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    row = first_row.to(tl.int64) + tl.program_id(1)
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            y = tl.load(LABEL + b)
            status = tl.load(STATUS + b)
            c = first + row
            c += (c >= y).to(tl.int64)
            size = tl.min(tl.full([2], NEVER, tl.int32), axis=0)
            nearest = size
            if y >= 0:
                order = ORDER + row * T + begin
                bias = BIAS + b * bias_stride
                tolerance = tl.load(TOLERANCE + b)
                if IS_SCORES and (status & UNDERFLOW) != 0:
                    size, nearest = _first_flip(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, order, bias, y, c,
                        tolerance, begin, n, C, True, 1,
                    )  # fmt: skip
                else:
                    size, nearest = _first_flip(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, order, bias, y, c,
                        tolerance, begin, n, C, False, BN,
                    )  # fmt: skip
            tl.store(CODES + row * B + b, size.to(tl.int64) * C + c)
            tl.store(NEAREST + row * B + b, nearest)


def minimal_size(
    batch: Batch, order: torch.Tensor, codes: torch.Tensor, nearest: torch.Tensor, first: int
) -> None:
    """Fill codes [K, B] and nearest [K, B] of orders [K, T], classes from the `first` other on."""
    batch.launch(
        minimal_size_kernel, rows=len(order), ORDER=order, CODES=codes, NEAREST=nearest,
        first=first, BN=128, num_warps=2,
    )  # fmt: skip
