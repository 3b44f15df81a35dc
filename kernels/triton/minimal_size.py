"""The first prefix of each class's own margin order at which that class overtakes the label.

Formula: the smallest `k >= 1` with surviving mass at which `sum_{survivors} m_{i,c} < 0`, or `= 0`
with `c < y`, sums from the tail in float64. The minimal set's size is the smallest over the
classes; equal sizes: the lowest class. So `size * C + c` is written, and its minimum over rows is
all that is needed.

Data layout: orders [K, T] int64 of `minimal_keys.py`; codes [K, B] int64; nearest near-tie [K, B]
int32.

Mapping: a program per few instances and class, tiles of BN rows; UNDERFLOW a row at a time.

Memory traffic: an order, a weight and two contributions an item and class, gathered.

Assumptions: FAR stands for never.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import FAR, UNDERFLOW, group_size, helper, load_f64, load_score, loop_bound


@helper
def _first_flip(
    S, WEIGHT, SCORE, score_stride, ORDER, BIAS, y, c, tolerance, begin, n, C: tl.constexpr,
    UNDER: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    bias_y = load_f64(BIAS + y, y >= 0)
    bias_c = load_f64(BIAS + c, y >= 0)
    margin_carry = tl.full([1], 0, tl.float64)
    weight_carry = tl.full([1], 0, tl.float64)
    peak = tl.full([1], float("-inf"), tl.float64)
    first = tl.min(tl.full([BN], FAR, tl.int32), axis=0)
    nearest = first
    for start in range(0, loop_bound(n), BN):
        u = start + 1 + tl.arange(0, BN)  # survivors
        inside = u <= n
        k = n - u
        item = begin + tl.load(ORDER + k, mask=inside, other=0)
        s_y = load_f64(S + item * C + y, inside)
        s_c = load_f64(S + item * C + c, inside)
        difference = (s_y + bias_y) - (s_c + bias_c)
        if UNDER:
            e = load_score(SCORE, score_stride, item, inside)
            top = tl.maximum(peak, e)
            finite_top = tl.where(top > float("-inf"), top, 0.0)
            shrink = tl.where(peak > float("-inf"), tl.exp(peak - finite_top), 0.0)
            weight = tl.where(e > float("-inf"), tl.exp(e - finite_top), 0.0)
            margin_carry = margin_carry * shrink
            weight_carry = weight_carry * shrink
            peak = top
        else:
            weight = tl.load(WEIGHT + item, mask=inside, other=0.0)
        terms = tl.where(inside, weight * difference, 0.0)
        margins = margin_carry + tl.cumsum(terms, axis=0)
        alive = weight_carry + tl.cumsum(weight, axis=0)
        margin_carry += tl.sum(terms, axis=0)
        weight_carry += tl.sum(weight, axis=0)
        live = inside & (alive > 0)
        flips = live & (k >= 1) & ((margins < 0) | ((margins == 0) & (c < y)))
        first = tl.minimum(first, tl.min(tl.where(flips, k, FAR), axis=0))
        near = live & (tl.abs(margins) < tolerance * alive)
        nearest = tl.minimum(nearest, tl.min(tl.where(near, k, FAR), axis=0))
    return first, nearest


# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = [
    "S",
    "WEIGHT",
    "SCORE",
    "ORDER",
    "OFFSETS",
    "BIAS",
    "LABEL",
    "STATUS",
    "TOLERANCE",
    "CODE",
    "NEAREST",
]


@triton.jit(
    do_not_specialize=["score_stride", "bias_stride", "first", "T", "B", "group"],
    do_not_specialize_on_alignment=POINTERS,
)
def minimal_size_kernel(
    S, WEIGHT, SCORE, score_stride, ORDER, OFFSETS, BIAS, bias_stride, LABEL, STATUS, TOLERANCE,
    CODE, NEAREST, first, T, B, group, C: tl.constexpr, IS_SCORES: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            y = tl.load(LABEL + b)
            status = tl.load(STATUS + b)
            c = first.to(tl.int64) + row
            c += (c >= y).to(tl.int64)
            size = tl.min(tl.full([2], FAR, tl.int32), axis=0)
            nearest = size
            if y >= 0:
                order = ORDER + row * T + begin
                bias = BIAS + b * bias_stride
                tolerance = tl.load(TOLERANCE + b)
                if IS_SCORES and (status & UNDERFLOW) != 0:
                    size, nearest = _first_flip(
                        S, WEIGHT, SCORE, score_stride, order, bias, y, c, tolerance, begin, n, C,
                        True, 1,
                    )  # fmt: skip
                else:
                    size, nearest = _first_flip(
                        S, WEIGHT, SCORE, score_stride, order, bias, y, c, tolerance, begin, n, C,
                        False, BN,
                    )  # fmt: skip
            tl.store(CODE + row * B + b, size.to(tl.int64) * C + c)
            tl.store(NEAREST + row * B + b, nearest)


def minimal_size(
    contributions: torch.Tensor,
    weight: torch.Tensor,
    attention: torch.Tensor,
    is_scores: bool,
    order: torch.Tensor,
    offsets: torch.Tensor,
    bias: torch.Tensor,
    label: torch.Tensor,
    status: torch.Tensor,
    tolerance: torch.Tensor,
    code: torch.Tensor,
    nearest: torch.Tensor,
    first: int,
) -> None:
    """Fills code [K, B] and nearest [K, B] from order [K, T], classes from the `first` other on."""
    rows, num_items = order.shape
    num_instances = len(label)
    if num_instances == 0:
        return
    group = group_size(num_instances, rows)
    minimal_size_kernel[(triton.cdiv(num_instances, group), rows)](
        contributions, weight, attention, attention.stride(0), order, offsets, bias,
        bias.stride(0) if bias.ndim == 2 else 0, label, status, tolerance, code, nearest, first,
        num_items, num_instances, group, C=contributions.shape[1], IS_SCORES=is_scores, BN=128,
        num_warps=2,
    )  # fmt: skip
