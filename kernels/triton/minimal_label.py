"""The decision once the minimal set is erased, the first so many items of its order.

Formula: the class of smallest `sum_{survivors} m_{i,c}`, the lowest on ties; -1 for a size of -1.

Data layout: order [T] int64, size [B] int64; decision [B] int64.

Mapping: a program per few instances, tiles of [BN survivors, BC classes]; UNDERFLOW relative to the
largest surviving score.

Memory traffic: order, weights and contributions of the survivors once.

Assumptions: sizes lie in `-1 … n`.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import UNDERFLOW, decide, helper, load_bias, load_score, load_tile, loop_bound
from .launch import Batch, batch_jit


@helper
def _decision_after(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, ORDER, BIAS, bias_stride, y, b, begin,
    size, n, underflow, C: tl.constexpr, IS_SCORES: tl.constexpr, BN: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Decide one instance over the items behind the first `size` of its order."""
    bias, bias_label, _finite = load_bias(BIAS, bias_stride, b, C, BC)
    highest = tl.full([BN], float("-inf"), tl.float64)
    if IS_SCORES:
        for start in range(loop_bound(size), loop_bound(n), BN):
            k = start + tl.arange(0, BN)
            item = begin + tl.load(ORDER + k, mask=k < n, other=0)
            highest = tl.maximum(highest, load_score(ATTENTION, attention_stride, item, k < n))
    top = tl.max(highest, axis=0)
    mass = tl.full([BN], 0, tl.float64)
    sums = tl.full([BN, BC], 0, tl.float64)
    for start in range(loop_bound(size), loop_bound(n), BN):
        k = start + tl.arange(0, BN)
        inside = k < n
        item = begin + tl.load(ORDER + k, mask=inside, other=0)
        weight, _reference, difference, _bad = load_tile(
            CONTRIBUTIONS, WEIGHTS, item, inside, bias, y, C, BC
        )
        if IS_SCORES:
            e = load_score(ATTENTION, attention_stride, item, inside)
            relative = tl.where(e > float("-inf"), tl.exp(e - top), 0.0)
            weight = tl.where(underflow, relative, weight)
        mass += weight
        sums += weight[:, None] * difference
    surviving = tl.sum(mass, axis=0) + tl.full([1], 0, tl.float64)
    return decide(tl.sum(sums, axis=0)[None, :], surviving, bias_label, C, BC)


@batch_jit
def minimal_label_kernel(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, ORDER, OFFSETS, BIAS, bias_stride, LABEL,
    STATUS, SIZE, MINIMAL_FLIP_LABEL, B, group, C: tl.constexpr, IS_SCORES: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            if (n > LOW) & (n <= HIGH):
                y = tl.load(LABEL + b)
                size = tl.load(SIZE + b).to(tl.int32)
                underflow = (tl.load(STATUS + b) & UNDERFLOW) != 0
                decision = tl.full([1], -1, tl.int64)
                if size >= 0:
                    decision = _decision_after(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, ORDER + begin, BIAS,
                        bias_stride, y, b, begin, size, n, underflow, C, IS_SCORES, BN, BC,
                    )  # fmt: skip
                tl.store(MINIMAL_FLIP_LABEL + b + tl.arange(0, 1), decision)


def minimal_label(batch: Batch, order: torch.Tensor, size: torch.Tensor) -> None:
    """Fill what the minimal set flips to [B] from order [T] and size [B]."""
    batch.launch_tiles(minimal_label_kernel, ORDER=order, SIZE=size)
