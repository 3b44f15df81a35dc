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
import triton
import triton.language as tl

from .common import (
    EMPTY,
    NEAR_TIE,
    UNDERFLOW,
    ZERO_MASS,
    decide,
    divergences,
    group_size,
    helper,
    load_bias,
    loop_bound,
    near_tie,
    ordered_key,
    row_log_probabilities,
    tiles,
)
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
def _singles(
    S, WEIGHT, SCORE, score_stride, BIAS, bias_stride, LOGP, TOLERANCE, STATUS, AFTER, FLIP, JS,
    KL, DROP, JS_KEY, DROP_KEY, status, y, b, begin, n, C: tl.constexpr, WANT_FLIP: tl.constexpr,
    WANT_JS: tl.constexpr, WANT_KL: tl.constexpr, WANT_DROP: tl.constexpr,
    WANT_JS_KEY: tl.constexpr, WANT_DROP_KEY: tl.constexpr, UNDER: tl.constexpr, BN: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, BC)
    bias, bias_label, _finite = load_bias(BIAS, bias_stride, b, C, BC)
    tolerance = tl.load(TOLERANCE + b)
    old = tl.load(LOGP + b * C + c, mask=c < C, other=float("-inf"))
    old_label = tl.sum(tl.where(c == y, tl.exp(old), 0.0), axis=0)
    labelled = y >= 0
    weighted = labelled & ((status & (EMPTY | ZERO_MASS)) == 0)
    top = 0.0
    leader = -1
    if UNDER:
        top, leader, second = leading_scores(SCORE, score_stride, SCORE, begin, n, False, BN)
        leader_mass, leader_sums = sums_without_leader(
            S, WEIGHT, SCORE, score_stride, SCORE, leader, second, begin, n, bias, y, C, BC, False,
            BN,
        )  # fmt: skip
    row = AFTER + first_slot(begin, b, BN) * (C + 1)
    store_sums_after(
        S, WEIGHT, SCORE, score_stride, SCORE, row, top, begin, n, bias, y, C, BC, False, UNDER, BN
    )
    mass = tl.full([1], 0, tl.float64)
    sums = tl.full([BC], 0, tl.float64)
    close = tl.full([BN], 0, tl.int32)
    for tile in range(0, loop_bound((n + BN - 1) // BN)):
        position = tile * BN + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        alive, margins = sums_over_others(
            S, WEIGHT, SCORE, score_stride, SCORE, row, top, begin, n, tile, mass, sums, bias, y, C,
            BC, False, UNDER, BN,
        )  # fmt: skip
        if UNDER:
            alive = tl.where(position == leader, leader_mass, alive)
            margins = tl.where((position == leader)[:, None], leader_sums[None, :], margins)
        close += (inside & near_tie(margins, alive, tolerance, y, C, BC)).to(tl.int32)
        if WANT_FLIP:
            decision = decide(margins, alive, bias_label, C, BC)
            flips = weighted & (decision != y)
            tl.store(FLIP + item, tl.where(flips, decision, -1), mask=inside)
        if WANT_JS or WANT_KL or WANT_DROP or WANT_JS_KEY or WANT_DROP_KEY:
            new = row_log_probabilities(margins, alive, bias, C, BC)
            if WANT_JS or WANT_KL or WANT_JS_KEY:
                js, kl = divergences(new, old)
                js = tl.where(weighted, js, tl.where(labelled, 0.0, float("nan")))
                if WANT_JS:
                    tl.store(JS + item, js.to(JS.dtype.element_ty), mask=inside)
                if WANT_KL:
                    kl = tl.where(weighted, kl, tl.where(labelled, 0.0, float("nan")))
                    tl.store(KL + item, kl.to(KL.dtype.element_ty), mask=inside)
                if WANT_JS_KEY:
                    key = ordered_key(tl.where(weighted, js, 0.0))
                    tl.store(JS_KEY + item, key, mask=inside)
            if WANT_DROP or WANT_DROP_KEY:
                new_label = tl.sum(tl.where((c == y)[None, :], tl.exp(new), 0.0), axis=1)
                drop = old_label - new_label
                drop = tl.where(weighted, drop, tl.where(labelled, 0.0, float("nan")))
                if WANT_DROP:
                    tl.store(DROP + item, drop.to(DROP.dtype.element_ty), mask=inside)
                if WANT_DROP_KEY:
                    key = ordered_key(tl.where(weighted, drop, 0.0))
                    tl.store(DROP_KEY + item, key, mask=inside)
        weight, terms = weighted_tile(
            S, WEIGHT, SCORE, score_stride, SCORE, top, item, inside, bias, y, C, BC, False, UNDER
        )
        mass += tl.sum(weight, axis=0)
        sums += tl.sum(terms, axis=0)
    found = weighted & (tl.sum(close, axis=0) > 0)
    if (WANT_FLIP or WANT_JS or WANT_KL or WANT_DROP) and found:
        tl.atomic_or(STATUS + b, NEAR_TIE)


# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = [
    "S",
    "WEIGHT",
    "SCORE",
    "OFFSETS",
    "BIAS",
    "LABEL",
    "LOGP",
    "TOLERANCE",
    "STATUS",
    "AFTER",
    "FLIP",
    "JS",
    "KL",
    "DROP",
    "JS_KEY",
    "DROP_KEY",
]


@triton.jit(
    do_not_specialize=["score_stride", "bias_stride", "B", "group"],
    do_not_specialize_on_alignment=POINTERS,
)
def singles_kernel(
    S, WEIGHT, SCORE, score_stride, OFFSETS, BIAS, bias_stride, LABEL, LOGP, TOLERANCE, STATUS,
    AFTER, FLIP, JS, KL, DROP, JS_KEY, DROP_KEY, B, group, C: tl.constexpr, IS_SCORES: tl.constexpr,
    WANT_FLIP: tl.constexpr, WANT_JS: tl.constexpr, WANT_KL: tl.constexpr, WANT_DROP: tl.constexpr,
    WANT_JS_KEY: tl.constexpr, WANT_DROP_KEY: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
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
                    _singles(
                        S, WEIGHT, SCORE, score_stride, BIAS, bias_stride, LOGP, TOLERANCE, STATUS,
                        AFTER, FLIP, JS, KL, DROP, JS_KEY, DROP_KEY, status, y, b, begin, n, C,
                        WANT_FLIP, WANT_JS, WANT_KL, WANT_DROP, WANT_JS_KEY, WANT_DROP_KEY, True,
                        BN, BC,
                    )  # fmt: skip
                else:
                    _singles(
                        S, WEIGHT, SCORE, score_stride, BIAS, bias_stride, LOGP, TOLERANCE, STATUS,
                        AFTER, FLIP, JS, KL, DROP, JS_KEY, DROP_KEY, status, y, b, begin, n, C,
                        WANT_FLIP, WANT_JS, WANT_KL, WANT_DROP, WANT_JS_KEY, WANT_DROP_KEY, False,
                        BN, BC,
                    )  # fmt: skip


def erase_each(
    contributions: torch.Tensor,
    weight: torch.Tensor,
    attention: torch.Tensor,
    is_scores: bool,
    offsets: torch.Tensor,
    bias: torch.Tensor,
    label: torch.Tensor,
    log_probabilities: torch.Tensor,
    tolerance: torch.Tensor,
    status: torch.Tensor,
    results: dict[str, torch.Tensor | None],
) -> None:
    """Fills the wanted of results: flip, js, kl, drop [T], and js_key, drop_key [T] int64."""
    num_items, num_classes = contributions.shape
    num_instances = len(label)
    if num_instances == 0 or all(result is None for result in results.values()):
        return
    group = group_size(num_instances, 1)
    launches = tiles(num_classes, num_items)
    slots = slot_count(num_items, num_instances, min(tile.items for tile in launches))
    after = torch.empty(slots * (num_classes + 1), dtype=torch.float64, device=weight.device)
    rows = [label if result is None else result for result in results.values()]
    wanted = {f"WANT_{name.upper()}": result is not None for name, result in results.items()}
    for tile in launches:
        singles_kernel[(triton.cdiv(num_instances, group),)](
            contributions, weight, attention, attention.stride(0), offsets, bias,
            bias.stride(0) if bias.ndim == 2 else 0, label, log_probabilities, tolerance, status,
            after, *rows, num_instances, group, C=num_classes, IS_SCORES=is_scores, LOW=tile.low,
            HIGH=tile.high, BN=tile.items, BC=tile.classes, num_warps=tile.warps,
            maxnreg=tile.registers, **wanted,
        )  # fmt: skip
