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
import triton
import triton.language as tl

from .common import (
    EMPTY,
    FAR,
    INVALID,
    NEAR_TIE,
    UNDERFLOW,
    ZERO_MASS,
    decide,
    divergences,
    group_size,
    helper,
    load_bias,
    load_score,
    load_tile,
    loop_bound,
    row_log_probabilities,
    tiles,
)


@helper
def _scan(
    S, WEIGHT, SCORE, score_stride, ORDER, BIAS, bias_stride, LOGP, TOLERANCE, FIRST, FLIP, REMOVED,
    STATUS, JS, KL, LABEL_PROB, MASS, DECISION, LOGITS, status, y, b, begin, n, point,
    C: tl.constexpr, KEEP: tl.constexpr, WANT_JS: tl.constexpr, WANT_KL: tl.constexpr,
    WANT_LABEL_PROB: tl.constexpr, WANT_MASS: tl.constexpr, WANT_DECISION: tl.constexpr,
    WANT_LOGITS: tl.constexpr, UNDER: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, BC)
    real = c < C
    nan = float("nan")
    bias, bias_label, bias_finite = load_bias(BIAS, bias_stride, b, C, BC)
    tolerance = tl.load(TOLERANCE + b)
    old = tl.load(LOGP + b * C + c, mask=real, other=float("-inf"))
    invalid = (status & INVALID) != 0
    flips_count = (y >= 0) & ((status & (EMPTY | ZERO_MASS)) == 0)

    margin_carry = tl.full([BC], 0, tl.float64)
    weight_carry = tl.full([1], 0, tl.float64)
    mass_carry = tl.full([1], 0, tl.float64)
    reference_carry = tl.full([1], 0, tl.float64)
    peak = tl.full([1], float("-inf"), tl.float64)
    bad_carry = tl.where(bias_finite, 0, 1)
    first = FAR
    flip = y * 0 - 1
    removed = mass_carry
    nearest = FAR
    for start in range(0, loop_bound(n + 1), BN):
        u = start + tl.arange(0, BN)
        inside = u <= n
        k = tl.where(KEEP, u, n - u)
        place = tl.where(KEEP, u - 1, n - u)
        holds = inside & (u > 0)
        position = tl.load(ORDER + place, mask=holds & (invalid == 0), other=0)
        item = begin + position
        a, reference, difference, bad = load_tile(S, WEIGHT, item, holds, bias, y, C, BC)
        weight = a
        if UNDER:
            e = load_score(SCORE, score_stride, item, holds)  # [1]
            top = tl.maximum(peak, e)
            finite_top = tl.where(top > float("-inf"), top, 0.0)
            shrink = tl.where(peak > float("-inf"), tl.exp(peak - finite_top), 0.0)
            weight = tl.where(e > float("-inf"), tl.exp(e - finite_top), 0.0)
            margin_carry = margin_carry * shrink
            weight_carry = weight_carry * shrink
            reference_carry = reference_carry * shrink
            peak = top
        terms = weight[:, None] * difference
        margins = margin_carry[None, :] + tl.cumsum(terms, axis=0)
        alive = weight_carry + tl.cumsum(weight, axis=0)
        margin_carry += tl.sum(terms, axis=0)
        weight_carry += tl.sum(weight, axis=0)
        broken = (bad_carry + tl.cumsum(bad.to(tl.int32), axis=0)) > 0
        bad_carry += tl.sum(bad.to(tl.int32), axis=0)

        # Whether some class beats the label, and whether it is close: one exchange of one number.
        compared = (real & (c != y))[None, :]
        beats = compared & ((margins < 0) | ((margins == 0) & (c < y)[None, :]))
        close = compared & (tl.abs(margins) < tolerance * alive[:, None])
        counts = tl.sum(beats.to(tl.int32) + close.to(tl.int32) * 65536, axis=1)  # C <= 4096
        survive = alive > 0
        stays = tl.where(survive, counts % 65536 == 0, bias_label == y) | (u == n)
        hit = inside & (k >= 1) & flips_count & (stays == KEEP)
        nearby = inside & survive & (counts >= 65536)
        nearest = tl.minimum(nearest, tl.min(tl.where(nearby, k, FAR), axis=0))
        here = tl.min(tl.where(hit, k, FAR), axis=0)
        if KEEP:
            taken = (here < FAR) & (first == FAR)
            beyond = k > tl.where(taken, here, first)
        else:
            taken = here < FAR
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
                best = tl.argmin(tl.where(real, sums, float("inf")), axis=0).to(tl.int64)
                mass = tl.sum(tl.where(k == here, alive, 0.0), axis=0)
                flip = tl.where(mass > 0, best, bias_label)

        if WANT_MASS:
            remaining = mass_carry + tl.cumsum(a, axis=0)
            mass_carry += tl.sum(a, axis=0)
            tl.store(MASS + point + k, tl.where(invalid, nan, remaining), mask=inside)
        if WANT_DECISION:
            decision = decide(margins, alive, bias_label, C, BC)
            decision = tl.where((u == n) & (y >= 0), y, decision)
            decision = tl.where(broken | invalid, -1, decision)
            tl.store(DECISION + point + k, decision, mask=inside)
        if WANT_LOGITS:
            shared = weight * tl.where(bad, 0.0, reference)
            label_sum = reference_carry + tl.cumsum(shared, axis=0)
            reference_carry += tl.sum(shared, axis=0)
            safe = tl.where(alive > 0, alive, 1.0)[:, None]
            logits = (label_sum[:, None] - margins) / safe
            logits = tl.where((alive > 0)[:, None], logits, bias[None, :])
            logits = tl.where((broken | invalid)[:, None], nan, logits)
            tl.store(
                LOGITS + (point + k)[:, None] * C + c[None, :],
                logits.to(LOGITS.dtype.element_ty),
                mask=inside[:, None] & real[None, :],
            )
        if WANT_JS or WANT_KL or WANT_LABEL_PROB:
            new = row_log_probabilities(margins, alive, bias, C, BC)
            if WANT_JS or WANT_KL:
                js, kl = divergences(new, old)
                js = tl.where(y >= 0, js, nan)
                kl = tl.where(y >= 0, kl, nan)
                if WANT_JS:
                    tl.store(JS + point + k, js.to(JS.dtype.element_ty), mask=inside)
                if WANT_KL:
                    tl.store(KL + point + k, kl.to(KL.dtype.element_ty), mask=inside)
            if WANT_LABEL_PROB:
                of_label = tl.sum(tl.where((c == y)[None, :], tl.exp(new), 0.0), axis=1)
                of_label = tl.where(y >= 0, of_label, nan)
                tl.store(
                    LABEL_PROB + point + k, of_label.to(LABEL_PROB.dtype.element_ty), mask=inside
                )

    found = first < FAR
    tl.store(FIRST + b, tl.where(found, first, -1).to(tl.int64))
    tl.store(FLIP + b, flip)
    tl.store(REMOVED + b + tl.arange(0, 1), tl.where(found, removed, nan))
    if flips_count & (nearest <= first) & (nearest < FAR):
        tl.atomic_or(STATUS + b, NEAR_TIE)


# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = [
    "S",
    "WEIGHT",
    "SCORE",
    "ORDER",
    "OFFSETS",
    "BIAS",
    "LABEL",
    "LOGP",
    "TOLERANCE",
    "FIRST",
    "FLIP",
    "REMOVED",
    "STATUS",
    "JS",
    "KL",
    "LABEL_PROB",
    "MASS",
    "DECISION",
    "LOGITS",
]


@triton.jit(
    do_not_specialize=["score_stride", "bias_stride", "T", "B", "group"],
    do_not_specialize_on_alignment=POINTERS,
)
def prefixes_kernel(
    S, WEIGHT, SCORE, score_stride, ORDER, OFFSETS, BIAS, bias_stride, LABEL, LOGP, TOLERANCE,
    FIRST, FLIP, REMOVED, STATUS, JS, KL, LABEL_PROB, MASS, DECISION, LOGITS, T, B, group,
    C: tl.constexpr, KEEP: tl.constexpr, IS_SCORES: tl.constexpr, WANT_JS: tl.constexpr,
    WANT_KL: tl.constexpr, WANT_LABEL_PROB: tl.constexpr, WANT_MASS: tl.constexpr,
    WANT_DECISION: tl.constexpr, WANT_LOGITS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
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
                        S, WEIGHT, SCORE, score_stride, order, BIAS, bias_stride, LOGP, TOLERANCE,
                        FIRST + row * B, FLIP + row * B, REMOVED + row * B, STATUS, JS, KL,
                        LABEL_PROB, MASS, DECISION, LOGITS, status, y, b, begin, n, point, C, KEEP,
                        WANT_JS, WANT_KL, WANT_LABEL_PROB, WANT_MASS, WANT_DECISION, WANT_LOGITS,
                        True, 1, BC,
                    )  # fmt: skip
                else:
                    _scan(
                        S, WEIGHT, SCORE, score_stride, order, BIAS, bias_stride, LOGP, TOLERANCE,
                        FIRST + row * B, FLIP + row * B, REMOVED + row * B, STATUS, JS, KL,
                        LABEL_PROB, MASS, DECISION, LOGITS, status, y, b, begin, n, point, C, KEEP,
                        WANT_JS, WANT_KL, WANT_LABEL_PROB, WANT_MASS, WANT_DECISION, WANT_LOGITS,
                        False, BN, BC,
                    )  # fmt: skip


def erase_prefixes(
    contributions: torch.Tensor,
    weight: torch.Tensor,
    attention: torch.Tensor,
    is_scores: bool,
    order: torch.Tensor,
    offsets: torch.Tensor,
    bias: torch.Tensor,
    keep: bool,
    label: torch.Tensor,
    log_probabilities: torch.Tensor,
    tolerance: torch.Tensor,
    status: torch.Tensor,
    first_flip: torch.Tensor,
    flip_label: torch.Tensor,
    removed_mass: torch.Tensor,
    curves: dict[str, torch.Tensor | None],
) -> None:
    """Fills first_flip, flip_label, removed_mass [R, B] and the wanted curves from order [R, T].

    `curves` has the keys js, kl, label_prob, mass, decision and logits; None is not wanted.
    """
    rows, num_items = order.shape
    num_classes = contributions.shape[1]
    num_instances = len(label)
    if num_instances == 0:
        return
    group = group_size(num_instances, rows)
    for tile in tiles(num_classes, num_items):
        for row in range(0, rows, 65535):  # the second grid axis ends there
            part = slice(row, row + 65535)
            out = {
                name: log_probabilities if curve is None else curve[part]
                for name, curve in curves.items()
            }
            wanted = {f"WANT_{name.upper()}": curve is not None for name, curve in curves.items()}
            prefixes_kernel[(triton.cdiv(num_instances, group), len(order[part]))](
                contributions, weight, attention, attention.stride(0), order[part], offsets, bias,
                bias.stride(0) if bias.ndim == 2 else 0, label, log_probabilities, tolerance,
                first_flip[part], flip_label[part], removed_mass[part], status, out["js"],
                out["kl"], out["label_prob"], out["mass"], out["decision"], out["logits"],
                num_items, num_instances, group, C=num_classes, KEEP=keep, IS_SCORES=is_scores,
                LOW=tile.low, HIGH=tile.high, BN=tile.items, BC=tile.classes, num_warps=tile.warps,
                maxnreg=tile.registers, **wanted,
            )  # fmt: skip
