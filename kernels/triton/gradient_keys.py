"""Keys of the rankings by attention, gradient, product and renormalised gradient.

Formula: `g_i = p_y sum_{c != y} p_c (s_{i,y} - s_{i,c})` with `p` from `exp(log p_c - log p_y)`;
`a_i g_i`; `a_i (g_i - mean of g over the others, weighted by a)`, the others' sums being those
before plus those after, never a total minus the item. Attention is the score or weight as given.

Data layout: keys [T] int64 (`ordered_key`), a row for each ranking; scratch [T] float64 for `g`.

Mapping: a program per few instances, tiles of [BN items, BC classes] for `g`, then tiles of BN
items: backwards for the sums after each tile, forwards for those before.

Memory traffic: attention, weights, contributions and scratch once or twice from the caches, 8
bytes written an item and ranking.

Assumptions: instances without a label (NON_FINITE, INVALID) get equal keys, so that their order is
by position; attention keys are as given even there, NaN on top.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import (
    UNDERFLOW,
    group_size,
    helper,
    load_f64,
    load_score,
    loop_bound,
    ordered_key,
    tiles,
)
from .others import first_slot, leading_scores, slot_count


@helper
def _weights(WEIGHT, SCORE, score_stride, top, item, inside, UNDER: tl.constexpr):
    """Weights [BN] on the scale of the largest score `top` where they underflow."""
    if UNDER:
        e = load_score(SCORE, score_stride, item, inside)
        return tl.where(e > float("-inf"), tl.exp(e - top), 0.0)
    return tl.load(WEIGHT + item, mask=inside, other=0.0)


@helper
def _renormalized(
    WEIGHT, SCORE, score_stride, G, AFTER, KEY, begin, slot, n, UNDER: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, BN)
    top = 0.0
    leader = -1
    if UNDER:
        top, leader, runner = leading_scores(SCORE, score_stride, SCORE, begin, n, False, BN)
        rest_mass = tl.full([BN], 0, tl.float64)
        rest_sum = tl.full([BN], 0, tl.float64)
        for start in range(0, loop_bound(n), BN):
            position = start + lane
            inside = (position < n) & (position != leader)
            e = load_score(SCORE, score_stride, begin + position, inside)
            w = tl.where(e > float("-inf"), tl.exp(e - runner), 0.0)
            rest_mass += w
            rest_sum += w * tl.load(G + begin + position, mask=inside, other=0.0)
        leader_mass = tl.sum(rest_mass, axis=0)
        leader_sum = tl.sum(rest_sum, axis=0)

    # Sums after each tile, from the last tile to the first.
    count = (n + BN - 1) // BN
    mass = tl.full([1], 0, tl.float64)
    slopes = tl.full([1], 0, tl.float64)
    for back in range(0, loop_bound(count)):
        tile = count - 1 - back
        place = AFTER + (slot + tile) * 2 + tl.arange(0, 1)
        tl.store(place, mass)
        tl.store(place + 1, slopes)
        position = tile * BN + lane
        inside = position < n
        w = _weights(WEIGHT, SCORE, score_stride, top, begin + position, inside, UNDER)
        g = tl.load(G + begin + position, mask=inside, other=0.0)
        mass += tl.sum(w, axis=0)
        slopes += tl.sum(w * g, axis=0)
    tl.debug_barrier()
    mass = tl.full([1], 0, tl.float64)
    slopes = tl.full([1], 0, tl.float64)
    for tile in range(0, loop_bound(count)):
        place = AFTER + (slot + tile) * 2 + tl.arange(0, 1)
        position = tile * BN + lane
        inside = position < n
        item = begin + position
        before = (lane > 0) & inside
        w = _weights(WEIGHT, SCORE, score_stride, top, item - 1, before, UNDER)
        g = tl.load(G + item - 1, mask=before, other=0.0)
        others = mass + tl.load(place) + tl.cumsum(w, axis=0)
        sums = slopes + tl.load(place + 1) + tl.cumsum(w * g, axis=0)
        after = (lane < BN - 1) & (position + 1 < n)
        w = _weights(WEIGHT, SCORE, score_stride, top, item + 1, after, UNDER)
        g = tl.load(G + item + 1, mask=after, other=0.0)
        others += tl.cumsum(w, axis=0, reverse=True)
        sums += tl.cumsum(w * g, axis=0, reverse=True)
        if UNDER:
            others = tl.where(position == leader, leader_mass, others)
            sums = tl.where(position == leader, leader_sum, sums)
        a = tl.load(WEIGHT + item, mask=inside, other=0.0)
        g = tl.load(G + item, mask=inside, other=0.0)
        mean = tl.where(others > 0, sums / tl.where(others > 0, others, 1.0), 0.0)
        tl.store(KEY + item, ordered_key(a * (g - mean)), mask=inside)
        w = _weights(WEIGHT, SCORE, score_stride, top, item, inside, UNDER)
        mass += tl.sum(w, axis=0)
        slopes += tl.sum(w * g, axis=0)


# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = [
    "ATT",
    "S",
    "WEIGHT",
    "OFFSETS",
    "LABEL",
    "STATUS",
    "LOGP",
    "G",
    "AFTER",
    "ATTENTION_KEY",
    "GRADIENT_KEY",
    "PRODUCT_KEY",
    "RENORMALIZED_KEY",
]


@triton.jit(
    do_not_specialize=["att_stride", "B", "group"],
    do_not_specialize_on_alignment=POINTERS,
)
def gradient_keys_kernel(
    ATT, att_stride, S, WEIGHT, OFFSETS, LABEL, STATUS, LOGP, G, AFTER, ATTENTION_KEY, GRADIENT_KEY,
    PRODUCT_KEY, RENORMALIZED_KEY, B, group, C: tl.constexpr, IS_SCORES: tl.constexpr,
    WANT_ATTENTION: tl.constexpr, WANT_GRADIENT: tl.constexpr, WANT_PRODUCT: tl.constexpr,
    WANT_RENORMALIZED: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, BN: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            if (n > LOW) & (n <= HIGH):
                y = tl.load(LABEL + b)
                labelled = y >= 0
                c = tl.arange(0, BC)
                logp = tl.load(LOGP + b * C + c, mask=(c < C) & labelled, other=float("-inf"))
                logp_y = tl.load(LOGP + b * C + y, mask=labelled, other=0.0)
                ratio = tl.exp(logp - logp_y)
                probability = ratio / tl.where(labelled, tl.sum(ratio, axis=0), 1.0)
                p_y = 1.0 / tl.where(labelled, tl.sum(ratio, axis=0), 1.0)
                for start in range(0, loop_bound(n), BN):
                    position = start + tl.arange(0, BN)
                    inside = position < n
                    item = begin + position
                    if WANT_ATTENTION:
                        given = load_f64(ATT + item * att_stride, inside)
                        tl.store(ATTENTION_KEY + item, ordered_key(given), mask=inside)
                    if WANT_GRADIENT or WANT_PRODUCT or WANT_RENORMALIZED:
                        used = inside & labelled
                        s = load_f64(
                            S + item[:, None] * C + c[None, :], used[:, None] & (c < C)[None, :]
                        )
                        s_y = load_f64(S + item * C + y, used)
                        slope = tl.sum((s_y[:, None] - s) * probability[None, :], axis=1) * p_y
                        a = tl.load(WEIGHT + item, mask=used, other=0.0)
                        if WANT_GRADIENT:
                            tl.store(GRADIENT_KEY + item, ordered_key(slope), mask=inside)
                        if WANT_PRODUCT:
                            tl.store(PRODUCT_KEY + item, ordered_key(a * slope), mask=inside)
                        if WANT_RENORMALIZED:
                            tl.store(G + item, slope, mask=inside)
                            # Without a label this stays: equal keys.
                            equal = tl.full([BN], 0, tl.int64)
                            tl.store(RENORMALIZED_KEY + item, equal, mask=inside)
                if WANT_RENORMALIZED:
                    tl.debug_barrier()
                    slot = first_slot(begin, b, BN)
                    if labelled:
                        if IS_SCORES and (tl.load(STATUS + b) & UNDERFLOW) != 0:
                            _renormalized(
                                WEIGHT, ATT, att_stride, G, AFTER, RENORMALIZED_KEY, begin, slot, n,
                                True, BN,
                            )  # fmt: skip
                        else:
                            _renormalized(
                                WEIGHT, ATT, att_stride, G, AFTER, RENORMALIZED_KEY, begin, slot, n,
                                False, BN,
                            )  # fmt: skip


def gradient_keys(
    attention: torch.Tensor,
    is_scores: bool,
    contributions: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    label: torch.Tensor,
    status: torch.Tensor,
    log_probabilities: torch.Tensor,
    keys: dict[str, torch.Tensor],
) -> None:
    """Fills the wanted rows of keys, each [T] int64: attention, gradient, product, renormalized."""
    num_items, num_classes = contributions.shape
    num_instances = len(label)
    if num_instances == 0 or not keys:
        return
    group = group_size(num_instances, 1)
    launches = tiles(num_classes, num_items)
    slots = slot_count(num_items, num_instances, min(tile.items for tile in launches))
    slopes = torch.empty(num_items if "renormalized" in keys else 0, dtype=torch.float64,
                         device=weight.device)  # fmt: skip
    after = torch.empty(2 * slots if "renormalized" in keys else 0, dtype=torch.float64,
                        device=weight.device)  # fmt: skip
    names = ("attention", "gradient", "product", "renormalized")
    rows = [keys.get(name, label) for name in names]
    wanted = {f"WANT_{name.upper()}": name in keys for name in names}
    for tile in launches:
        gradient_keys_kernel[(triton.cdiv(num_instances, group),)](
            attention, attention.stride(0), contributions, weight, offsets, label, status,
            log_probabilities, slopes, after, *rows, num_instances, group, C=num_classes,
            IS_SCORES=is_scores, LOW=tile.low, HIGH=tile.high, BN=tile.items, BC=tile.classes,
            num_warps=tile.warps, maxnreg=tile.registers, **wanted,
        )  # fmt: skip
