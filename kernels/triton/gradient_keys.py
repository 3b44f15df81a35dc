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
import triton.language as tl

from .common import UNDERFLOW, helper, load_f64, load_score, loop_bound, ordered_key
from .launch import Batch, batch_jit
from .others import first_tile, sums_after, top_two_scores


@helper
def _weights(WEIGHTS, ATTENTION, attention_stride, top, item, inside, RESCALED: tl.constexpr):
    """Load weights [BN], on the scale of the largest score `top` where they underflow."""
    if RESCALED:
        e = load_score(ATTENTION, attention_stride, item, inside)
        return tl.where(e > float("-inf"), tl.exp(e - top), 0.0)
    return tl.load(WEIGHTS + item, mask=inside, other=0.0)


@helper
def _renormalized(
    WEIGHTS, ATTENTION, attention_stride, GRADIENTS, SUMS_AFTER, RENORMALIZED_GRADIENT_KEYS, begin,
    tile_row, n, RESCALED: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the renormalised gradient's keys of one instance, given its gradients."""
    lane = tl.arange(0, BN)
    top = 0.0
    top_position = -1
    if RESCALED:
        top, top_position, second = top_two_scores(ATTENTION, attention_stride, None, begin, n, BN)
        masses = tl.full([BN], 0, tl.float64)
        weighted_sums = tl.full([BN], 0, tl.float64)
        for start in range(0, loop_bound(n), BN):
            position = start + lane
            inside = (position < n) & (position != top_position)
            e = load_score(ATTENTION, attention_stride, begin + position, inside)
            w = tl.where(e > float("-inf"), tl.exp(e - second), 0.0)
            masses += w
            weighted_sums += w * tl.load(GRADIENTS + begin + position, mask=inside, other=0.0)
        mass_without_top = tl.sum(masses, axis=0)
        sum_without_top = tl.sum(weighted_sums, axis=0)

    # Sums after each tile, from the last tile to the first.
    count = (n + BN - 1) // BN
    mass = tl.full([1], 0, tl.float64)
    weighted_sum = tl.full([1], 0, tl.float64)
    for back in range(0, loop_bound(count)):
        tile = count - 1 - back
        place = SUMS_AFTER + (tile_row + tile) * 2 + tl.arange(0, 1)
        tl.store(place, mass)
        tl.store(place + 1, weighted_sum)
        position = tile * BN + lane
        inside = position < n
        w = _weights(WEIGHTS, ATTENTION, attention_stride, top, begin + position, inside, RESCALED)
        g = tl.load(GRADIENTS + begin + position, mask=inside, other=0.0)
        mass += tl.sum(w, axis=0)
        weighted_sum += tl.sum(w * g, axis=0)
    tl.debug_barrier()
    mass = tl.full([1], 0, tl.float64)
    weighted_sum = tl.full([1], 0, tl.float64)
    for tile in range(0, loop_bound(count)):
        place = SUMS_AFTER + (tile_row + tile) * 2 + tl.arange(0, 1)
        position = tile * BN + lane
        inside = position < n
        item = begin + position
        before = (lane > 0) & inside
        w = _weights(WEIGHTS, ATTENTION, attention_stride, top, item - 1, before, RESCALED)
        g = tl.load(GRADIENTS + item - 1, mask=before, other=0.0)
        others = mass + tl.load(place) + tl.cumsum(w, axis=0)
        sums = weighted_sum + tl.load(place + 1) + tl.cumsum(w * g, axis=0)
        after = (lane < BN - 1) & (position + 1 < n)
        w = _weights(WEIGHTS, ATTENTION, attention_stride, top, item + 1, after, RESCALED)
        g = tl.load(GRADIENTS + item + 1, mask=after, other=0.0)
        others += tl.cumsum(w, axis=0, reverse=True)
        sums += tl.cumsum(w * g, axis=0, reverse=True)
        if RESCALED:
            others = tl.where(position == top_position, mass_without_top, others)
            sums = tl.where(position == top_position, sum_without_top, sums)
        a = tl.load(WEIGHTS + item, mask=inside, other=0.0)
        g = tl.load(GRADIENTS + item, mask=inside, other=0.0)
        mean = tl.where(others > 0, sums / tl.where(others > 0, others, 1.0), 0.0)
        tl.store(RENORMALIZED_GRADIENT_KEYS + item, ordered_key(a * (g - mean)), mask=inside)
        w = _weights(WEIGHTS, ATTENTION, attention_stride, top, item, inside, RESCALED)
        mass += tl.sum(w, axis=0)
        weighted_sum += tl.sum(w * g, axis=0)


@batch_jit
def gradient_keys_kernel(
    ATTENTION, attention_stride, CONTRIBUTIONS, WEIGHTS, OFFSETS, LABEL, STATUS, LOG_PROBABILITIES,
    GRADIENTS, SUMS_AFTER, ATTENTION_KEYS, GRADIENT_KEYS, PRODUCT_KEYS, RENORMALIZED_GRADIENT_KEYS,
    B, group, C: tl.constexpr, IS_SCORES: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr,
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
                logp = tl.load(
                    LOG_PROBABILITIES + b * C + c, mask=(c < C) & labelled, other=float("-inf")
                )
                logp_y = tl.load(LOG_PROBABILITIES + b * C + y, mask=labelled, other=0.0)
                ratio = tl.exp(logp - logp_y)
                probability = ratio / tl.where(labelled, tl.sum(ratio, axis=0), 1.0)
                p_y = 1.0 / tl.where(labelled, tl.sum(ratio, axis=0), 1.0)
                for start in range(0, loop_bound(n), BN):
                    position = start + tl.arange(0, BN)
                    inside = position < n
                    item = begin + position
                    if ATTENTION_KEYS is not None:
                        given = load_f64(ATTENTION + item * attention_stride, inside)
                        tl.store(ATTENTION_KEYS + item, ordered_key(given), mask=inside)
                    # What nothing below reads is not compiled.
                    used = inside & labelled
                    s = load_f64(
                        CONTRIBUTIONS + item[:, None] * C + c[None, :],
                        used[:, None] & (c < C)[None, :],
                    )
                    s_y = load_f64(CONTRIBUTIONS + item * C + y, used)
                    gradient = tl.sum((s_y[:, None] - s) * probability[None, :], axis=1) * p_y
                    a = tl.load(WEIGHTS + item, mask=used, other=0.0)
                    if GRADIENT_KEYS is not None:
                        tl.store(GRADIENT_KEYS + item, ordered_key(gradient), mask=inside)
                    if PRODUCT_KEYS is not None:
                        tl.store(PRODUCT_KEYS + item, ordered_key(a * gradient), mask=inside)
                    if RENORMALIZED_GRADIENT_KEYS is not None:
                        tl.store(GRADIENTS + item, gradient, mask=inside)
                        # Without a label this stays: equal keys.
                        equal = tl.full([BN], 0, tl.int64)
                        tl.store(RENORMALIZED_GRADIENT_KEYS + item, equal, mask=inside)
                if RENORMALIZED_GRADIENT_KEYS is not None:
                    tl.debug_barrier()
                    tile_row = first_tile(begin, b, BN)
                    if labelled:
                        if IS_SCORES and (tl.load(STATUS + b) & UNDERFLOW) != 0:
                            _renormalized(
                                WEIGHTS, ATTENTION, attention_stride, GRADIENTS, SUMS_AFTER,
                                RENORMALIZED_GRADIENT_KEYS, begin, tile_row, n, True, BN,
                            )  # fmt: skip
                        else:
                            _renormalized(
                                WEIGHTS, ATTENTION, attention_stride, GRADIENTS, SUMS_AFTER,
                                RENORMALIZED_GRADIENT_KEYS, begin, tile_row, n, False, BN,
                            )  # fmt: skip


def gradient_keys(batch: Batch, keys: dict[str, torch.Tensor | None]) -> None:
    """Fill the wanted keys [T] int64 of the rankings by attention and gradient."""
    if all(row is None for row in keys.values()):
        return
    renormalized = keys["RENORMALIZED_GRADIENT_KEYS"] is not None
    gradients = batch.weights.new_empty(batch.num_items if renormalized else 0)  # [T], float64
    after = sums_after(batch, 2 if renormalized else 0)
    batch.launch_tiles(gradient_keys_kernel, GRADIENTS=gradients, SUMS_AFTER=after, **keys)
