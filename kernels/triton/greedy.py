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
import triton
import triton.language as tl

from .common import FAR, INVALID, UNDERFLOW, helper, load_bias, loop_bound, tiles
from .others import (
    first_slot,
    leading_scores,
    slot_count,
    store_sums_after,
    sums_over_others,
    sums_without_leader,
    weighted_tile,
)


@helper
def _greedy_step(
    S, WEIGHT, SCORE, score_stride, BIAS, bias_stride, TAKEN, AFTER, y, b, begin, n,
    C: tl.constexpr, UNDER: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The position taken next."""
    c = tl.arange(0, BC)
    compared = ((c < C) & (c != y))[None, :]
    bias, _label, _finite = load_bias(BIAS, bias_stride, b, C, BC)
    bias_lead = tl.sum(tl.where(c == y, bias, 0.0), axis=0) - bias
    top = 0.0
    leader = -1
    if UNDER:
        top, leader, second = leading_scores(SCORE, score_stride, TAKEN, begin, n, True, BN)
        leader_mass, leader_sums = sums_without_leader(
            S, WEIGHT, SCORE, score_stride, TAKEN, leader, second, begin, n, bias, y, C, BC, True,
            BN,
        )  # fmt: skip
    row = AFTER + first_slot(begin, b, BN) * (C + 1)
    store_sums_after(
        S, WEIGHT, SCORE, score_stride, TAKEN, row, top, begin, n, bias, y, C, BC, True, UNDER, BN
    )
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    best = tl.min(tl.full([BN], float("inf"), tl.float64), axis=0)
    chosen = tl.min(tl.full([BN], FAR, tl.int32), axis=0)
    for tile in range(0, loop_bound((n + BN - 1) // BN)):
        position = tile * BN + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        left = inside & (tl.load(TAKEN + item, mask=inside, other=0) < 0)
        alive, margins = sums_over_others(
            S, WEIGHT, SCORE, score_stride, TAKEN, row, top, begin, n, tile, mass, sums, bias, y, C,
            BC, True, UNDER, BN,
        )  # fmt: skip
        if UNDER:
            alive = tl.where(position == leader, leader_mass, alive)
            margins = tl.where((position == leader)[:, None], leader_sums[None, :], margins)
        lead = margins / tl.where(alive > 0, alive, 1.0)[:, None]
        lead = tl.where((alive > 0)[:, None], lead, bias_lead[None, :])
        lead = tl.min(tl.where(compared, lead, float("inf")), axis=1)
        here = tl.min(tl.where(left, lead, float("inf")), axis=0)
        place = tl.min(tl.where(left & (lead == here), position, FAR), axis=0)
        better = (place < FAR) & ((here < best) | (chosen == FAR))
        best = tl.where(better, here, best)
        chosen = tl.where(better, place, chosen)
        weight, terms = weighted_tile(
            S, WEIGHT, SCORE, score_stride, TAKEN, top, item, inside, bias, y, C, BC, True, UNDER
        )
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    return chosen


# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = ["S", "WEIGHT", "SCORE", "OFFSETS", "BIAS", "LABEL", "STATUS", "AFTER", "TAKEN", "ORDER"]


@triton.jit(
    do_not_specialize=["score_stride", "bias_stride"],
    do_not_specialize_on_alignment=POINTERS,
)
def greedy_kernel(
    S, WEIGHT, SCORE, score_stride, OFFSETS, BIAS, bias_stride, LABEL, STATUS, AFTER, TAKEN, ORDER,
    C: tl.constexpr, IS_SCORES: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr,
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
                        S, WEIGHT, SCORE, score_stride, BIAS, bias_stride, TAKEN, AFTER, y, b,
                        begin, n, C, True, BN, BC,
                    )  # fmt: skip
                else:
                    chosen = _greedy_step(
                        S, WEIGHT, SCORE, score_stride, BIAS, bias_stride, TAKEN, AFTER, y, b,
                        begin, n, C, False, BN, BC,
                    )  # fmt: skip
                tl.debug_barrier()  # all have read what was taken before
                tl.store(ORDER + begin + step, chosen.to(tl.int64))
                tl.store(TAKEN + begin + chosen, step)


def greedy_order(
    contributions: torch.Tensor,
    weight: torch.Tensor,
    attention: torch.Tensor,
    is_scores: bool,
    offsets: torch.Tensor,
    bias: torch.Tensor,
    label: torch.Tensor,
    status: torch.Tensor,
    order: torch.Tensor,
) -> None:
    """Fills order [T] int64."""
    num_items, num_classes = contributions.shape
    num_instances = len(label)
    if num_instances == 0:
        return
    launches = tiles(num_classes, num_items)
    slots = slot_count(num_items, num_instances, min(tile.items for tile in launches))
    after = torch.empty(slots * (num_classes + 1), dtype=torch.float64, device=weight.device)
    taken = torch.empty(num_items, dtype=torch.int32, device=weight.device)
    for tile in launches:
        greedy_kernel[(num_instances,)](
            contributions, weight, attention, attention.stride(0), offsets, bias,
            bias.stride(0) if bias.ndim == 2 else 0, label, status, after, taken, order,
            C=num_classes, IS_SCORES=is_scores, LOW=tile.low, HIGH=tile.high, BN=tile.items,
            BC=tile.classes, num_warps=tile.warps, maxnreg=tile.registers,
        )  # fmt: skip
