"""Pooled vectors of the survivors of prefixes, for heads that are any callable.

Formula: `sum_{survivors} a_i v_i / sum_{survivors} a_i`, 0 where no mass survives, NaN while an
item survives whose score or weight is not finite. Sums run from the tail of the ranking, in
float64.

Data layout: values [T, D], order [T] int64; pooled [M, D] for the points `[begin, begin + M)` of
the curve layout (point k of instance b at `offsets[b] + b + k`).

Mapping: a program per instance that has a point in the range and per block of BD features, tiles
of [BN rows, BD features]; it scans no further than the last point wanted. Instances whose scores
span more than 600 go a row at a time, on the scale of the largest surviving score.

Memory traffic: values of the survivors once, one vector written a point.

Assumptions: none; a position outside the instance makes every point it survives in NaN.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import UNDERFLOW_SPAN, helper, is_finite, load_f64, loop_bound, rescale
from .launch import batch_jit


@helper
def _pool(
    VALUES, row_stride, ATTENTION, attention_stride, ORDER, POOLED, begin, n, low, high, top, block,
    D: tl.constexpr, KEEP: tl.constexpr, IS_SCORES: tl.constexpr, RESCALED: tl.constexpr,
    BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Scan the points of one instance over one block of features."""
    d = block * BD + tl.arange(0, BD)
    is_feature = d < D
    sums_carry = tl.full([BD], 0, tl.float64)
    weight_carry = tl.full([1], 0, tl.float64)
    running_max = tl.full([1], float("-inf"), tl.float64)
    bad_carry = 0
    rows = tl.where(KEEP, high, n - low)  # survivors of the last point wanted
    for start in range(0, loop_bound(rows + 1), BN):
        u = start + tl.arange(0, BN)
        inside = u <= rows
        k = tl.where(KEEP, u, n - u)
        place = tl.where(KEEP, u - 1, n - u)
        holds = inside & (u > 0)
        position = tl.load(ORDER + place, mask=holds, other=0)
        fits = holds & (position >= 0) & (position < n)
        item = begin + position
        e = load_f64(ATTENTION + item * attention_stride, fits)
        finite = fits & is_finite(e)
        if IS_SCORES:
            bad = holds & (finite == 0) & ((fits == 0) | (e != float("-inf")))
        else:
            bad = holds & (finite == 0)
        v = load_f64(
            VALUES + item[:, None] * row_stride + d[None, :], fits[:, None] & is_feature[None, :]
        )
        if RESCALED:
            e = tl.where(finite, e, float("-inf"))
            running_max, factor, weight = rescale(running_max, e)
            v = tl.where(finite[:, None], v, 0.0)
            sums_carry = sums_carry * factor
            weight_carry = weight_carry * factor
        else:
            if IS_SCORES:
                weight = tl.where(finite, tl.exp(tl.where(finite, e - top, 0.0)), 0.0)
            else:
                weight = tl.where(finite, e, 0.0)
        terms = weight[:, None] * v
        sums = sums_carry[None, :] + tl.cumsum(terms, axis=0)
        surviving = weight_carry + tl.cumsum(weight, axis=0)
        sums_carry += tl.sum(terms, axis=0)
        weight_carry += tl.sum(weight, axis=0)
        any_bad = (bad_carry + tl.cumsum(bad.to(tl.int32), axis=0)) > 0
        bad_carry += tl.sum(bad.to(tl.int32), axis=0)
        average = sums / tl.where(surviving > 0, surviving, 1.0)[:, None]
        average = tl.where((surviving > 0)[:, None], average, 0.0)
        average = tl.where(any_bad[:, None], float("nan"), average)
        wanted = inside & (k >= low) & (k <= high)
        tl.store(
            POOLED + k.to(tl.int64)[:, None] * D + d[None, :],
            average.to(POOLED.dtype.element_ty),
            mask=wanted[:, None] & is_feature[None, :],
        )


@batch_jit
def pooled_kernel(
    VALUES, row_stride, ATTENTION, attention_stride, ORDER, OFFSETS, FIRST, POOLED, B, point_begin,
    M, D: tl.constexpr, KEEP: tl.constexpr, IS_SCORES: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b = tl.load(FIRST) + tl.program_id(0)
    if b < B:
        begin = tl.load(OFFSETS + b)
        n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
        # The instance's own points that lie in the range.
        offset = begin + b - point_begin
        low = tl.maximum(-offset, 0).to(tl.int32)
        high = tl.minimum(M - 1 - offset, n.to(tl.int64)).to(tl.int32)
        if low <= high:
            highest = tl.full([BLOCK], float("-inf"), tl.float64)
            lowest = tl.full([BLOCK], float("inf"), tl.float64)
            if IS_SCORES:
                for start in range(0, loop_bound(n), BLOCK):
                    position = start + tl.arange(0, BLOCK)
                    e = load_f64(ATTENTION + (begin + position) * attention_stride, position < n)
                    finite = (position < n) & is_finite(e)
                    highest = tl.maximum(highest, tl.where(finite, e, float("-inf")))
                    lowest = tl.minimum(lowest, tl.where(finite, e, float("inf")))
            top = tl.max(highest, axis=0)
            span = top - tl.min(lowest, axis=0)
            out = POOLED + offset * D
            if IS_SCORES and span > UNDERFLOW_SPAN:
                _pool(
                    VALUES, row_stride, ATTENTION, attention_stride, ORDER + begin, out, begin, n,
                    low, high, top, tl.program_id(1), D, KEEP, IS_SCORES, True, 1, BD,
                )  # fmt: skip
            else:
                _pool(
                    VALUES, row_stride, ATTENTION, attention_stride, ORDER + begin, out, begin, n,
                    low, high, top, tl.program_id(1), D, KEEP, IS_SCORES, False, BN, BD,
                )  # fmt: skip


def pooled_prefixes(
    values: torch.Tensor,
    attention: torch.Tensor,
    is_scores: bool,
    order: torch.Tensor,
    offsets: torch.Tensor,
    keep: bool,
    begin: int,
    pooled: torch.Tensor,
) -> None:
    """Fill pooled [M, D] from values [T, D] for the points from `begin` on."""
    points, num_features = pooled.shape
    num_instances = len(offsets) - 1
    if points == 0 or num_instances == 0:
        return
    starts = offsets[:-1] + torch.arange(num_instances, device=offsets.device)  # [B]
    first = (starts <= begin).sum() - 1  # the instance of the first point
    features = min(64, max(16, triton.next_power_of_2(num_features)))
    grid = (min(points, num_instances), triton.cdiv(num_features, features))
    pooled_kernel[grid](
        values, values.stride(0), attention, attention.stride(0), order, offsets, first, pooled,
        num_instances, begin, points, D=num_features, KEEP=keep, IS_SCORES=is_scores, BN=16,
        BD=features, BLOCK=128, num_warps=2,
    )  # fmt: skip
