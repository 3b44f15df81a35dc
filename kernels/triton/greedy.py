"""The greedy order: at each step the item whose erasure brings the decision closest to a flip.

Formula: of the items left, the one of smallest `min_{c != y} M_{-i,c} / A_{-i}` (the lead of the
label over the best other class once i is erased too; of the bias's logits where no mass is left),
ties by position.

Data layout: orders [T] int64, scratch [T] int32 holding the step at which an item was taken, else
-1.

Mapping: a program per instance; every step is the two passes of `others.py` over the items.

Memory traffic: `n` times weights and contributions, from the caches.

Assumptions: `O(n^2 C)`, no speed target. Instances without a label are ordered by position;
INVALID ones get -1.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import INVALID, NEVER, UNDERFLOW, helper, load_bias, loop_bound
from .launch import Batch, batch_jit
from .others import (
    first_tile,
    store_sums_after,
    sums_after,
    sums_over_others,
    sums_without_top,
    top_two_scores,
    weighted_tile,
)


@helper
def _greedy_step(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, BIAS, bias_stride, TAKEN, SUMS_AFTER, y, b,
    begin, n, C: tl.constexpr, RESCALED: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Choose the position taken next."""
    c = tl.arange(0, BC)
    compared = ((c < C) & (c != y))[None, :]
    bias, _label, _finite = load_bias(BIAS, bias_stride, b, C, BC)
    bias_lead = tl.sum(tl.where(c == y, bias, 0.0), axis=0) - bias
    top = 0.0
    top_position = -1
    if RESCALED:
        top, top_position, second = top_two_scores(ATTENTION, attention_stride, TAKEN, begin, n, BN)
        surviving_without_top, margins_without_top = sums_without_top(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, top_position, second, begin,
            n, bias, y, C, BC, BN,
        )  # fmt: skip
    row = SUMS_AFTER + first_tile(begin, b, BN) * (C + 1)
    store_sums_after(
        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, row, top, begin, n, bias, y, C,
        BC, RESCALED, BN,
    )  # fmt: skip
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    best = tl.min(tl.full([BN], float("inf"), tl.float64), axis=0)
    chosen = tl.min(tl.full([BN], NEVER, tl.int32), axis=0)
    for tile in range(0, loop_bound((n + BN - 1) // BN)):
        position = tile * BN + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        left = inside & (tl.load(TAKEN + item, mask=inside, other=0) < 0)
        surviving, margins = sums_over_others(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, row, top, begin, n, tile,
            mass, sums, bias, y, C, BC, RESCALED, BN,
        )  # fmt: skip
        if RESCALED:
            is_top = position == top_position
            surviving = tl.where(is_top, surviving_without_top, surviving)
            margins = tl.where(is_top[:, None], margins_without_top[None, :], margins)
        lead = margins / tl.where(surviving > 0, surviving, 1.0)[:, None]
        lead = tl.where((surviving > 0)[:, None], lead, bias_lead[None, :])
        lead = tl.min(tl.where(compared, lead, float("inf")), axis=1)
        here = tl.min(tl.where(left, lead, float("inf")), axis=0)
        place = tl.min(tl.where(left & (lead == here), position, NEVER), axis=0)
        better = (place < NEVER) & ((here < best) | (chosen == NEVER))
        best = tl.where(better, here, best)
        chosen = tl.where(better, place, chosen)
        weight, terms = weighted_tile(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, top, item, inside, bias, y,
            C, BC, RESCALED,
        )  # fmt: skip
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    return chosen


@batch_jit
def greedy_kernel(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, OFFSETS, BIAS, bias_stride, LABEL, STATUS,
    SUMS_AFTER, TAKEN, ORDER, C: tl.constexpr, IS_SCORES: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    begin = tl.load(OFFSETS + b)
    n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
    if (n > LOW) & (n <= HIGH):
        status = tl.load(STATUS + b)
        y = tl.load(LABEL + b)
        for start in range(0, loop_bound(n), BN):
            position = start + tl.arange(0, BN)
            by_position = tl.where((status & INVALID) != 0, -1, position).to(tl.int64)
            tl.store(ORDER + begin + position, by_position, mask=position < n)
            tl.store(TAKEN + begin + position, tl.full([BN], -1, tl.int32), mask=position < n)
        if (y >= 0) & (C > 1):
            for step in range(0, loop_bound(n)):
                tl.debug_barrier()  # what the last step took is visible
                if IS_SCORES and (status & UNDERFLOW) != 0:
                    chosen = _greedy_step(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, BIAS, bias_stride,
                        TAKEN, SUMS_AFTER, y, b, begin, n, C, True, BN, BC,
                    )  # fmt: skip
                else:
                    chosen = _greedy_step(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, BIAS, bias_stride,
                        TAKEN, SUMS_AFTER, y, b, begin, n, C, False, BN, BC,
                    )  # fmt: skip
                tl.debug_barrier()  # all have read what was taken before
                tl.store(ORDER + begin + step, chosen.to(tl.int64))
                tl.store(TAKEN + begin + chosen, step)


def greedy_order(batch: Batch, order: torch.Tensor) -> None:
    """Fill order [T] int64."""
    after = sums_after(batch, batch.num_classes + 1)
    taken = torch.empty(batch.num_items, dtype=torch.int32, device=order.device)
    batch.launch_tiles(greedy_kernel, group=1, SUMS_AFTER=after, TAKEN=taken, ORDER=order)
