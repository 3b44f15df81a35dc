"""Leave-one-out sums: over all items of an instance but one, for every item, by additions only.

What the single erasures, the greedy order and the renormalised gradient share. A tile's own items
are added before and after each other by two scans over rows shifted by one; whole tiles before are
carried along, whole tiles after were stored by a first pass from the end. Where weights underflow
they are taken relative to the largest score, and the one item that holds it is computed on its
own, relative to the largest score of the others.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import NEVER, helper, load_score, load_tile, loop_bound
from .launch import Batch, tiles


@helper
def remaining_score(ATTENTION, attention_stride, TAKEN, item, inside):
    """Load finite scores [BN] of items not TAKEN away; -inf for the rest."""
    if TAKEN is not None:
        inside = inside & (tl.load(TAKEN + item, mask=inside, other=0) < 0)
    return load_score(ATTENTION, attention_stride, item, inside)


@helper
def top_two_scores(ATTENTION, attention_stride, TAKEN, begin, n, BN: tl.constexpr):
    """Find the largest score, the first position that has it, the largest of the other items.

    Both scores are 0 where there is none, the position then is NEVER.
    """
    highest = tl.full([BN], float("-inf"), tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = remaining_score(ATTENTION, attention_stride, TAKEN, begin + position, position < n)
        highest = tl.maximum(highest, e)
    top = tl.max(highest, axis=0)
    positions = tl.full([BN], NEVER, tl.int32)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = remaining_score(ATTENTION, attention_stride, TAKEN, begin + position, position < n)
        positions = tl.minimum(
            positions, tl.where((e == top) & (e > float("-inf")), position, NEVER)
        )
    top_position = tl.min(positions, axis=0)
    highest = tl.full([BN], float("-inf"), tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = remaining_score(ATTENTION, attention_stride, TAKEN, begin + position, position < n)
        highest = tl.maximum(highest, tl.where(position == top_position, float("-inf"), e))
    second = tl.max(highest, axis=0)
    return (
        tl.where(top > float("-inf"), top, 0.0),
        top_position,
        tl.where(second > float("-inf"), second, 0.0),
    )


@helper
def weighted_tile(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, top, item, inside, bias, y,
    C: tl.constexpr, BC: tl.constexpr, RESCALED: tl.constexpr,
):  # fmt: skip
    """Load weights [BN] and weighted margins [BN, BC] of a tile; 0 for items taken away."""
    a, _reference, difference, _bad = load_tile(
        CONTRIBUTIONS, WEIGHTS, item, inside, bias, y, C, BC
    )
    if RESCALED:
        e = remaining_score(ATTENTION, attention_stride, TAKEN, item, inside)
        weight = tl.where(e > float("-inf"), tl.exp(e - top), 0.0)
    else:
        weight = a
        if TAKEN is not None:
            weight = tl.where(tl.load(TAKEN + item, mask=inside, other=0) < 0, a, 0.0)
    return weight, weight[:, None] * difference


@helper
def store_sums_after(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, SUMS_AFTER, top, begin, n, bias, y,
    C: tl.constexpr, BC: tl.constexpr, RESCALED: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store at SUMS_AFTER [tiles, C + 1] the margin sums and the mass of the tiles after each."""
    c = tl.arange(0, BC)
    count = (n + BN - 1) // BN
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    for back in range(0, loop_bound(count)):
        tile = count - 1 - back
        row = SUMS_AFTER + (begin * 0 + tile) * (C + 1)  # in 64 bits, as `begin` is
        tl.store(row + c, sums, mask=c < C)
        tl.store(row + C + tl.arange(0, 1), mass)
        position = tile * BN + tl.arange(0, BN)
        weight, terms = weighted_tile(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, top, begin + position,
            position < n, bias, y, C, BC, RESCALED,
        )  # fmt: skip
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    tl.debug_barrier()


@helper
def sums_over_others(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, SUMS_AFTER, top, begin, n, tile,
    mass, sums, bias, y, C: tl.constexpr, BC: tl.constexpr, RESCALED: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Add up mass [BN] and margin sums [BN, BC] without each item of a tile, given those before."""
    c = tl.arange(0, BC)
    lane = tl.arange(0, BN)
    position = tile * BN + lane
    item = begin + position
    row = SUMS_AFTER + (begin * 0 + tile) * (C + 1)  # in 64 bits, as `begin` is
    weight, terms = weighted_tile(
        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, top, item - 1,
        (lane > 0) & (position <= n), bias, y, C, BC, RESCALED,
    )  # fmt: skip
    surviving = mass + tl.load(row + C + tl.arange(0, 1)) + tl.cumsum(weight, axis=0)
    after = tl.load(row + c, mask=c < C, other=0.0)
    margins = (sums + after)[None, :] + tl.cumsum(terms, axis=0)
    weight, terms = weighted_tile(
        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, top, item + 1,
        (lane < BN - 1) & (position + 1 < n), bias, y, C, BC, RESCALED,
    )  # fmt: skip
    surviving += tl.cumsum(weight, axis=0, reverse=True)
    margins += tl.cumsum(terms, axis=0, reverse=True)
    return surviving, margins


@helper
def sums_without_top(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, top_position, second, begin, n,
    bias, y, C: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add up mass [1] and margin sums [BC] without the item of the largest score."""
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        weight, terms = weighted_tile(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, TAKEN, second, begin + position,
            (position < n) & (position != top_position), bias, y, C, BC, True,
        )  # fmt: skip
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    return mass, sums


def sums_after(batch: Batch, width: int) -> torch.Tensor:
    """Allocate `width` sums after each tile of each instance, of any tile that launches use."""
    smallest = min(tile.items for tile in tiles(batch.num_classes, batch.num_items))
    count = batch.num_items // smallest + batch.num_instances + 1
    return batch.weights.new_empty(count * width)


@helper
def first_tile(begin, b, BN: tl.constexpr):
    """Find where an instance's tiles start in what `sums_after` allocates."""
    return begin // BN + b
