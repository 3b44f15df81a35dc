"""Erasing every item alone: decision, JS, KL, drop of the label's probability, ranking keys.

Formula: `M_{-i,c} = sum_{j != i} m_{j,c}`, `A_{-i} = sum_{j != i} a_j`, both by additions (see
`others.py`); decision, probabilities, JS and KL from them as for prefixes.

Data layout: weights [T] float64, contributions [T, C]; results [T]; keys [T] int64
(`ordered_key`).

Mapping: a program per few instances, tiles of [BN items, BC classes].

Memory traffic: weights and contributions four times from the caches, the results once.

Assumptions: none beyond `decide.py`; instances without a label get -1 and NaN, without mass no
flip, JS, KL and drop 0.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import (
    EMPTY,
    NEAR_TIE,
    UNDERFLOW,
    ZERO_MASS,
    decide,
    divergences,
    helper,
    load_bias,
    loop_bound,
    near_tie,
    ordered_key,
    row_log_probabilities,
)
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
def _erase_each(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, BIAS, bias_stride, LOG_PROBABILITIES,
    TOLERANCE, STATUS, SUMS_AFTER, SINGLE_FLIP_LABEL, SINGLE_JS, SINGLE_KL, SINGLE_DROP,
    LEAVE_ONE_OUT_KEYS, LEAVE_ONE_OUT_DROP_KEYS, status, y, b, begin, n, C: tl.constexpr,
    MARK_TIES: tl.constexpr, RESCALED: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Erase each item of one instance alone."""
    c = tl.arange(0, BC)
    bias, bias_label, _finite = load_bias(BIAS, bias_stride, b, C, BC)
    tolerance = tl.load(TOLERANCE + b)
    old = tl.load(LOG_PROBABILITIES + b * C + c, mask=c < C, other=float("-inf"))
    old_label = tl.sum(tl.where(c == y, tl.exp(old), 0.0), axis=0)
    labelled = y >= 0
    weighted = labelled & ((status & (EMPTY | ZERO_MASS)) == 0)
    unweighted = tl.where(labelled, 0.0, float("nan"))  # what is written without weights
    top = 0.0
    top_position = -1
    if RESCALED:
        top, top_position, second = top_two_scores(ATTENTION, attention_stride, None, begin, n, BN)
        surviving_without_top, margins_without_top = sums_without_top(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, None, top_position, second, begin,
            n, bias, y, C, BC, BN,
        )  # fmt: skip
    row = SUMS_AFTER + first_tile(begin, b, BN) * (C + 1)
    store_sums_after(
        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, None, row, top, begin, n, bias, y, C,
        BC, RESCALED, BN,
    )  # fmt: skip
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    close = tl.full([BN], 0, tl.int32)
    for tile in range(0, loop_bound((n + BN - 1) // BN)):
        position = tile * BN + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        surviving, margins = sums_over_others(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, None, row, top, begin, n, tile,
            mass, sums, bias, y, C, BC, RESCALED, BN,
        )  # fmt: skip
        if RESCALED:
            is_top = position == top_position
            surviving = tl.where(is_top, surviving_without_top, surviving)
            margins = tl.where(is_top[:, None], margins_without_top[None, :], margins)
        close += (inside & near_tie(margins, surviving, tolerance, y, C, BC)).to(tl.int32)
        if SINGLE_FLIP_LABEL is not None:
            decision = decide(margins, surviving, bias_label, C, BC)
            flips = weighted & (decision != y)
            tl.store(SINGLE_FLIP_LABEL + item, tl.where(flips, decision, -1), mask=inside)
        # What nothing below reads is not compiled.
        new = row_log_probabilities(margins, surviving, bias, C, BC)
        js, kl = divergences(new, old)
        drop = old_label - tl.sum(tl.where((c == y)[None, :], tl.exp(new), 0.0), axis=1)
        if SINGLE_JS is not None:
            js_or_none = tl.where(weighted, js, unweighted)
            tl.store(SINGLE_JS + item, js_or_none.to(SINGLE_JS.dtype.element_ty), mask=inside)
        if SINGLE_KL is not None:
            kl = tl.where(weighted, kl, unweighted)
            tl.store(SINGLE_KL + item, kl.to(SINGLE_KL.dtype.element_ty), mask=inside)
        if SINGLE_DROP is not None:
            drop_or_none = tl.where(weighted, drop, unweighted)
            tl.store(SINGLE_DROP + item, drop_or_none.to(SINGLE_DROP.dtype.element_ty), mask=inside)
        if LEAVE_ONE_OUT_KEYS is not None:
            key = ordered_key(tl.where(weighted, js, 0.0))
            tl.store(LEAVE_ONE_OUT_KEYS + item, key, mask=inside)
        if LEAVE_ONE_OUT_DROP_KEYS is not None:
            key = ordered_key(tl.where(weighted, drop, 0.0))
            tl.store(LEAVE_ONE_OUT_DROP_KEYS + item, key, mask=inside)
        weight, terms = weighted_tile(
            CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, None, top, item, inside, bias, y,
            C, BC, RESCALED,
        )  # fmt: skip
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    if MARK_TIES and (weighted & (tl.sum(close, axis=0) > 0)):
        tl.atomic_or(STATUS + b, NEAR_TIE)


@batch_jit
def singles_kernel(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, OFFSETS, BIAS, bias_stride, LABEL,
    LOG_PROBABILITIES, TOLERANCE, STATUS, SUMS_AFTER, SINGLE_FLIP_LABEL, SINGLE_JS, SINGLE_KL,
    SINGLE_DROP, LEAVE_ONE_OUT_KEYS, LEAVE_ONE_OUT_DROP_KEYS, B, group, C: tl.constexpr,
    IS_SCORES: tl.constexpr, MARK_TIES: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            if (n > LOW) & (n <= HIGH):
                status = tl.load(STATUS + b)
                y = tl.load(LABEL + b)
                if IS_SCORES and (status & UNDERFLOW) != 0:
                    _erase_each(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, BIAS, bias_stride,
                        LOG_PROBABILITIES, TOLERANCE, STATUS, SUMS_AFTER, SINGLE_FLIP_LABEL,
                        SINGLE_JS, SINGLE_KL, SINGLE_DROP, LEAVE_ONE_OUT_KEYS,
                        LEAVE_ONE_OUT_DROP_KEYS, status, y, b, begin, n, C, MARK_TIES, True, BN, BC,
                    )  # fmt: skip
                else:
                    _erase_each(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, BIAS, bias_stride,
                        LOG_PROBABILITIES, TOLERANCE, STATUS, SUMS_AFTER, SINGLE_FLIP_LABEL,
                        SINGLE_JS, SINGLE_KL, SINGLE_DROP, LEAVE_ONE_OUT_KEYS,
                        LEAVE_ONE_OUT_DROP_KEYS, status, y, b, begin, n, C, MARK_TIES, False, BN,
                        BC,
                    )  # fmt: skip


def erase_each(batch: Batch, keys: dict[str, torch.Tensor | None]) -> None:
    """Fill the wanted single erasures [T] and keys [T] int64 of the rankings by them."""
    results = batch.results.items()
    wanted = any(name.startswith("single_") and result is not None for name, result in results)
    if wanted or any(row is not None for row in keys.values()):
        after = sums_after(batch, batch.num_classes + 1)
        batch.launch_tiles(singles_kernel, SUMS_AFTER=after, MARK_TIES=wanted, **keys)
