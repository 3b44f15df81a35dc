"""Sums over all items of an instance but one, for every item at once, by additions only.

What the single erasures, the greedy order and the renormalised gradient share. A tile's own items
are added before and after each other by two scans over rows shifted by one; whole tiles before are
carried along, whole tiles after were stored by a first pass from the end. Where weights underflow
they are taken relative to the largest score, and the one item that holds it is computed on its
own, relative to the largest score of the others.
"""

from __future__ import annotations

import triton.language as tl

from .common import FAR, helper, load_score, load_tile, loop_bound


@helper
def remaining_score(SCORE, score_stride, TAKEN, item, inside, MASKED: tl.constexpr):
    """Finite scores [BN] of items still there; -inf for the rest."""
    if MASKED:
        inside = inside & (tl.load(TAKEN + item, mask=inside, other=0) < 0)
    return load_score(SCORE, score_stride, item, inside)


@helper
def leading_scores(SCORE, score_stride, TAKEN, begin, n, MASKED: tl.constexpr, BN: tl.constexpr):
    """The largest score, the first position that has it, the largest score of the other items.

    Both scores are 0 where there is none, the position then is FAR.
    """
    nothing = float("-inf")
    highest = tl.full([BN], float("-inf"), tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = remaining_score(SCORE, score_stride, TAKEN, begin + position, position < n, MASKED)
        highest = tl.maximum(highest, e)
    top = tl.max(highest, axis=0)
    leaders = tl.full([BN], FAR, tl.int32)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = remaining_score(SCORE, score_stride, TAKEN, begin + position, position < n, MASKED)
        leaders = tl.minimum(leaders, tl.where((e == top) & (e > nothing), position, FAR))
    leader = tl.min(leaders, axis=0)
    highest = tl.full([BN], float("-inf"), tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = remaining_score(SCORE, score_stride, TAKEN, begin + position, position < n, MASKED)
        highest = tl.maximum(highest, tl.where(position == leader, nothing, e))
    second = tl.max(highest, axis=0)
    return tl.where(top > nothing, top, 0.0), leader, tl.where(second > nothing, second, 0.0)


@helper
def weighted_tile(
    S, WEIGHT, SCORE, score_stride, TAKEN, top, item, inside, bias, y, C: tl.constexpr,
    BC: tl.constexpr, MASKED: tl.constexpr, UNDER: tl.constexpr,
):  # fmt: skip
    """Weights [BN] and weighted margins [BN, BC] of a tile; 0 for items taken away."""
    a, _reference, difference, _bad = load_tile(S, WEIGHT, item, inside, bias, y, C, BC)
    if UNDER:
        e = remaining_score(SCORE, score_stride, TAKEN, item, inside, MASKED)
        weight = tl.where(e > float("-inf"), tl.exp(e - top), 0.0)
    else:
        weight = a
        if MASKED:
            weight = tl.where(tl.load(TAKEN + item, mask=inside, other=0) < 0, a, 0.0)
    return weight, weight[:, None] * difference


@helper
def store_sums_after(
    S, WEIGHT, SCORE, score_stride, TAKEN, AFTER, top, begin, n, bias, y, C: tl.constexpr,
    BC: tl.constexpr, MASKED: tl.constexpr, UNDER: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Stores at AFTER [tiles, C + 1] the margin sums and the mass of the tiles after each."""
    c = tl.arange(0, BC)
    count = (n + BN - 1) // BN
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    for back in range(0, loop_bound(count)):
        tile = count - 1 - back
        row = AFTER + (begin * 0 + tile) * (C + 1)  # in 64 bits, as `begin` is
        tl.store(row + c, sums, mask=c < C)
        tl.store(row + C + tl.arange(0, 1), mass)
        position = tile * BN + tl.arange(0, BN)
        weight, terms = weighted_tile(
            S, WEIGHT, SCORE, score_stride, TAKEN, top, begin + position, position < n, bias, y, C,
            BC, MASKED, UNDER,
        )  # fmt: skip
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    tl.debug_barrier()


@helper
def sums_over_others(
    S, WEIGHT, SCORE, score_stride, TAKEN, AFTER, top, begin, n, tile, mass, sums, bias, y,
    C: tl.constexpr, BC: tl.constexpr, MASKED: tl.constexpr, UNDER: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Mass [BN] and margin sums [BN, BC] without each item of the tile, given those before it."""
    c = tl.arange(0, BC)
    lane = tl.arange(0, BN)
    position = tile * BN + lane
    item = begin + position
    row = AFTER + (begin * 0 + tile) * (C + 1)  # in 64 bits, as `begin` is
    weight, terms = weighted_tile(
        S, WEIGHT, SCORE, score_stride, TAKEN, top, item - 1, (lane > 0) & (position <= n), bias, y,
        C, BC, MASKED, UNDER,
    )  # fmt: skip
    alive = mass + tl.load(row + C + tl.arange(0, 1)) + tl.cumsum(weight, axis=0)
    after = tl.load(row + c, mask=c < C, other=0.0)
    margins = (sums + after)[None, :] + tl.cumsum(terms, axis=0)
    weight, terms = weighted_tile(
        S, WEIGHT, SCORE, score_stride, TAKEN, top, item + 1, (lane < BN - 1) & (position + 1 < n),
        bias, y, C, BC, MASKED, UNDER,
    )  # fmt: skip
    alive += tl.cumsum(weight, axis=0, reverse=True)
    margins += tl.cumsum(terms, axis=0, reverse=True)
    return alive, margins


@helper
def sums_without_leader(
    S, WEIGHT, SCORE, score_stride, TAKEN, leader, second, begin, n, bias, y, C: tl.constexpr,
    BC: tl.constexpr, MASKED: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Mass [1] and margin sums [BC] without the item of the largest score."""
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        weight, terms = weighted_tile(
            S, WEIGHT, SCORE, score_stride, TAKEN, second, begin + position,
            (position < n) & (position != leader), bias, y, C, BC, MASKED, True,
        )  # fmt: skip
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    return mass, sums


def slot_count(num_items: int, num_instances: int, smallest_tile: int) -> int:
    """Rows of the store of sums after a tile; instance `b` starts at `offsets[b] // BN + b`."""
    return num_items // smallest_tile + num_instances + 1


@helper
def first_slot(begin, b, BN: tl.constexpr):
    """Where an instance's tiles start in the store of sums after a tile."""
    return begin // BN + b
