"""Every prefix of every ranking: reverse scan, decision by margins, first flip, curves.

Formula: over the survivors of prefix k, `A_k = sum a_i` and `M_{k,c} = sum a_i [(s_y + b_y) - (s_c
+ b_c)]`, summed from the tail of the ranking in float64. The decision is the class of smallest
`M_{k,c}` (`M_{k,y} = 0`), the lowest on ties, `argmax b` where `A_k = 0`. Logits relative to the
label's are `-M_{k,c} / A_k`: all that probabilities, JS and KL need. Row u of the scan has u
survivors: it is prefix `k = n - u` when erasing and `k = u` when keeping, so one forward scan
serves both.

Data layout: orders [R, T] int64, weights [T] float64 (NaN where bad), contributions [T, C];
results [R, B], curves [R, T + B].

Mapping: a program takes a few instances of one ranking, in tiles of [BN rows, BC classes]; sums
are carried from tile to tile. Instances with status UNDERFLOW go a row at a time: their sums are
kept on the scale of the largest surviving score and rescaled where it changes.

Memory traffic: per ranking and item 8 bytes of order, 8 of weight and 4 C of contributions, the
latter two gathered from the caches; writes are the results and the curves asked for.

Assumptions: orders are permutations wherever the status does not say INVALID.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .common import (
    EMPTY,
    INVALID,
    NEAR_TIE,
    NEVER,
    UNDERFLOW,
    ZERO_MASS,
    decide,
    divergences,
    helper,
    load_bias,
    load_score,
    load_tile,
    loop_bound,
    rescale,
    row_log_probabilities,
)
from .launch import Batch, batch_jit


@helper
def _scan(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, ORDER, BIAS, bias_stride,
    LOG_PROBABILITIES, TOLERANCE, FIRST_FLIP, FLIP_LABEL, REMOVED_MASS, STATUS, CURVE_JS, CURVE_KL,
    CURVE_LABEL_PROB, CURVE_MASS, CURVE_DECISION, CURVE_LOGITS, status, y, b, begin, n, point,
    C: tl.constexpr, KEEP: tl.constexpr, RESCALED: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Scan the prefixes of one ranking of one instance, from everything erased to nothing."""
    c = tl.arange(0, BC)
    is_class = c < C
    nan = float("nan")
    bias, bias_label, bias_finite = load_bias(BIAS, bias_stride, b, C, BC)
    tolerance = tl.load(TOLERANCE + b)
    old = tl.load(LOG_PROBABILITIES + b * C + c, mask=is_class, other=float("-inf"))
    invalid = (status & INVALID) != 0
    flips_matter = (y >= 0) & ((status & (EMPTY | ZERO_MASS)) == 0)

    margin_carry = tl.full([BC], 0, tl.float64)
    weight_carry = tl.full([1], 0, tl.float64)
    mass_carry = tl.full([1], 0, tl.float64)
    reference_carry = tl.full([1], 0, tl.float64)
    running_max = tl.full([1], float("-inf"), tl.float64)
    bad_carry = tl.where(bias_finite, 0, 1)
    first = NEVER
    flip = y * 0 - 1
    removed = mass_carry
    nearest = NEVER
    for start in range(0, loop_bound(n + 1), BN):
        u = start + tl.arange(0, BN)
        inside = u <= n
        k = tl.where(KEEP, u, n - u)
        place = tl.where(KEEP, u - 1, n - u)
        holds = inside & (u > 0)
        position = tl.load(ORDER + place, mask=holds & (invalid == 0), other=0)
        item = begin + position
        a, reference, difference, bad = load_tile(
            CONTRIBUTIONS, WEIGHTS, item, holds, bias, y, C, BC
        )
        weight = a
        if RESCALED:
            e = load_score(ATTENTION, attention_stride, item, holds)  # [1]
            running_max, factor, weight = rescale(running_max, e)
            margin_carry = margin_carry * factor
            weight_carry = weight_carry * factor
            reference_carry = reference_carry * factor
        terms = weight[:, None] * difference
        margins = margin_carry[None, :] + tl.cumsum(terms, axis=0)
        surviving = weight_carry + tl.cumsum(weight, axis=0)
        margin_carry += tl.sum(terms, axis=0)
        weight_carry += tl.sum(weight, axis=0)
        any_bad = (bad_carry + tl.cumsum(bad.to(tl.int32), axis=0)) > 0
        bad_carry += tl.sum(bad.to(tl.int32), axis=0)

        # Whether some class beats the label, and whether it is close: one exchange of one number.
        compared = (is_class & (c != y))[None, :]
        beats = compared & ((margins < 0) | ((margins == 0) & (c < y)[None, :]))
        close = compared & (tl.abs(margins) < tolerance * surviving[:, None])
        counts = tl.sum(beats.to(tl.int32) + close.to(tl.int32) * 65536, axis=1)  # C <= 4096
        weighted = surviving > 0
        stays = tl.where(weighted, counts % 65536 == 0, bias_label == y) | (u == n)
        hit = inside & (k >= 1) & flips_matter & (stays == KEEP)
        nearby = inside & weighted & (counts >= 65536)
        nearest = tl.minimum(nearest, tl.min(tl.where(nearby, k, NEVER), axis=0))
        here = tl.min(tl.where(hit, k, NEVER), axis=0)
        if KEEP:
            taken = (here < NEVER) & (first == NEVER)
            beyond = k > tl.where(taken, here, first)
        else:
            taken = here < NEVER
            beyond = k < tl.where(taken, here, n + 1)
        erased = tl.sum(tl.where(beyond, a, 0.0), axis=0)
        removed = tl.where(taken, 0.0, removed) + erased
        first = tl.where(taken, here, first)
        if taken:
            if KEEP:
                flip = y
            else:
                chosen = (k == here)[:, None]
                sums = tl.sum(tl.where(chosen, margins, 0.0), axis=0)  # [BC]
                best = tl.argmin(tl.where(is_class, sums, float("inf")), axis=0).to(tl.int64)
                mass = tl.sum(tl.where(k == here, surviving, 0.0), axis=0)
                flip = tl.where(mass > 0, best, bias_label)

        if CURVE_MASS is not None:
            remaining = mass_carry + tl.cumsum(a, axis=0)
            mass_carry += tl.sum(a, axis=0)
            tl.store(CURVE_MASS + point + k, tl.where(invalid, nan, remaining), mask=inside)
        if CURVE_DECISION is not None:
            decision = decide(margins, surviving, bias_label, C, BC)
            decision = tl.where((u == n) & (y >= 0), y, decision)
            decision = tl.where(any_bad | invalid, -1, decision)
            tl.store(CURVE_DECISION + point + k, decision, mask=inside)
        if CURVE_LOGITS is not None:
            shared = weight * tl.where(bad, 0.0, reference)
            label_sum = reference_carry + tl.cumsum(shared, axis=0)
            reference_carry += tl.sum(shared, axis=0)
            divisor = tl.where(weighted, surviving, 1.0)[:, None]
            logits = (label_sum[:, None] - margins) / divisor
            logits = tl.where(weighted[:, None], logits, bias[None, :])
            logits = tl.where((any_bad | invalid)[:, None], nan, logits)
            tl.store(
                CURVE_LOGITS + (point + k)[:, None] * C + c[None, :],
                logits.to(CURVE_LOGITS.dtype.element_ty),
                mask=inside[:, None] & is_class[None, :],
            )
        # What nothing below reads is not compiled.
        new = row_log_probabilities(margins, surviving, bias, C, BC)
        js, kl = divergences(new, old)
        if CURVE_JS is not None:
            js = tl.where(y >= 0, js, nan).to(CURVE_JS.dtype.element_ty)
            tl.store(CURVE_JS + point + k, js, mask=inside)
        if CURVE_KL is not None:
            kl = tl.where(y >= 0, kl, nan).to(CURVE_KL.dtype.element_ty)
            tl.store(CURVE_KL + point + k, kl, mask=inside)
        if CURVE_LABEL_PROB is not None:
            label_prob = tl.sum(tl.where((c == y)[None, :], tl.exp(new), 0.0), axis=1)
            label_prob = tl.where(y >= 0, label_prob, nan).to(CURVE_LABEL_PROB.dtype.element_ty)
            tl.store(CURVE_LABEL_PROB + point + k, label_prob, mask=inside)

    found = first < NEVER
    tl.store(FIRST_FLIP + b, tl.where(found, first, -1).to(tl.int64))
    tl.store(FLIP_LABEL + b, flip)
    tl.store(REMOVED_MASS + b + tl.arange(0, 1), tl.where(found, removed, nan))
    if flips_matter & (nearest <= first) & (nearest < NEVER):
        tl.atomic_or(STATUS + b, NEAR_TIE)


@batch_jit
def prefixes_kernel(
    CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, ORDER, OFFSETS, BIAS, bias_stride, LABEL,
    LOG_PROBABILITIES, TOLERANCE, FIRST_FLIP, FLIP_LABEL, REMOVED_MASS, STATUS, CURVE_JS, CURVE_KL,
    CURVE_LABEL_PROB, CURVE_MASS, CURVE_DECISION, CURVE_LOGITS, T, B, group, first_row,
    C: tl.constexpr, KEEP: tl.constexpr, IS_SCORES: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    row = first_row.to(tl.int64) + tl.program_id(1)
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            if (n > LOW) & (n <= HIGH):
                status = tl.load(STATUS + b)
                y = tl.load(LABEL + b)
                point = row * (T.to(tl.int64) + B) + begin + b
                order = ORDER + row * T + begin
                if IS_SCORES and (status & UNDERFLOW) != 0:
                    _scan(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, order, BIAS,
                        bias_stride, LOG_PROBABILITIES, TOLERANCE, FIRST_FLIP + row * B,
                        FLIP_LABEL + row * B, REMOVED_MASS + row * B, STATUS, CURVE_JS, CURVE_KL,
                        CURVE_LABEL_PROB, CURVE_MASS, CURVE_DECISION, CURVE_LOGITS, status, y, b,
                        begin, n, point, C, KEEP, True, 1, BC,
                    )  # fmt: skip
                else:
                    _scan(
                        CONTRIBUTIONS, WEIGHTS, ATTENTION, attention_stride, order, BIAS,
                        bias_stride, LOG_PROBABILITIES, TOLERANCE, FIRST_FLIP + row * B,
                        FLIP_LABEL + row * B, REMOVED_MASS + row * B, STATUS, CURVE_JS, CURVE_KL,
                        CURVE_LABEL_PROB, CURVE_MASS, CURVE_DECISION, CURVE_LOGITS, status, y, b,
                        begin, n, point, C, KEEP, False, BN, BC,
                    )  # fmt: skip


def erase_prefixes(batch: Batch, order: torch.Tensor) -> None:
    """Fill the first flips [R, B] and the wanted curves of the rankings of order [R, T]."""
    batch.launch_tiles(prefixes_kernel, rows=len(order), ORDER=order)
