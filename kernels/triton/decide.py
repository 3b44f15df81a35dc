"""Every instance before anything is erased: weights, label, probabilities, status.

Formula: `a_i = exp(e_i - max e) / sum` (or the given weight over the sum of weights), `z = sum_i
a_i s_i / sum_i a_i + b`, `y = argmax z` (lowest on ties), `p = softmax(z)`; the tolerance of
near-ties `3e-6 (max_i |h_i| max_c |W_c| + max_c |b_c|)`; the runner-up class, the smallest `sum_i
m_{i,c}` over `c != y`. All sums run in position order, in float64.

Data layout: attention [T] with any stride, contributions [T, C], norms [T]; weights [T] float64
come out, NaN for an item whose score or weight is not finite (the mark that later kernels read) and
throughout an instance marked INVALID.

Mapping: a program walks through a few instances, each in tiles of [BN items, BC classes]; three
passes over an instance's items (extremes, normaliser, weights and sums), the last two from cache.

Memory traffic: attention and contributions once from memory, weights once to it.

Assumptions: offsets never decrease and stay within the batch; C <= BC.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import (
    EMPTY,
    INVALID,
    NEAR_TIE,
    NEAR_TIE_TOLERANCE,
    NON_FINITE,
    SINGLE,
    UNDERFLOW,
    UNDERFLOW_SPAN,
    ZERO_MASS,
    group_size,
    helper,
    is_finite,
    load_bias,
    load_f64,
    log_softmax,
    loop_bound,
    tiles,
)


@helper
def _decide(
    ATT, att_stride, S, NORM, BIAS, bias_stride, FLAG, HEAD_NORM, WEIGHT, LABEL, STATUS, PROB, LOGP,
    LOGITS, TOLERANCE, RUNNER, POSITIVE, BIAS_LABEL, b, begin, n, C: tl.constexpr,
    IS_SCORES: tl.constexpr, WANT_LOGITS: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, BC)
    real = c < C
    nothing = float("-inf")
    bias, bias_label, bias_finite = load_bias(BIAS, bias_stride, b, C, BC)
    bad = (bias_finite == 0).to(tl.int32)
    negative = tl.load(FLAG + b)
    lowest = -nothing + tl.full([BN], 0, tl.float64)
    highest = nothing + tl.full([BN], 0, tl.float64)
    longest = tl.full([BN], 0, tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        e = load_f64(ATT + item * att_stride, inside)
        finite = inside & is_finite(e)
        if IS_SCORES:
            bad_items = inside & (is_finite(e) == 0) & (e != nothing)
        else:
            bad_items = inside & (is_finite(e) == 0)
            negative += tl.sum((inside & (e < 0)).to(tl.int32), axis=0)
        bad += tl.sum(bad_items.to(tl.int32), axis=0)
        lowest = tl.minimum(lowest, tl.where(finite, e, -nothing))
        highest = tl.maximum(highest, tl.where(finite, e, nothing))
        s = load_f64(S + item[:, None] * C + c[None, :], inside[:, None] & real[None, :])
        bad += tl.sum(tl.sum((is_finite(s) == 0).to(tl.int32), axis=1), axis=0)
        norm = tl.load(NORM + item, mask=inside, other=0.0)
        longest = tl.maximum(longest, tl.where(is_finite(norm), norm, 0.0))
    top = tl.max(highest, axis=0)
    bottom = tl.min(lowest, axis=0)
    # -inf is not: there is no finite score then.
    wide = tl.where(top - bottom > UNDERFLOW_SPAN, 1, 0)
    if not IS_SCORES:
        wide = wide * 0
    under = wide > 0
    top = tl.where(is_finite(top), top, 0.0)

    totals = tl.full([BN], 0, tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = load_f64(ATT + (begin + position) * att_stride, position < n)
        finite = (position < n) & is_finite(e)
        if IS_SCORES:
            totals += tl.where(finite, tl.exp(tl.where(finite, e - top, 0.0)), 0.0)
        else:
            totals += tl.where(finite, e, 0.0)
    total = tl.sum(totals, axis=0)
    scale = tl.where(total > 0, total, 1.0)
    invalid = negative > 0

    mass = tl.full([BN], 0, tl.float64)
    sums = tl.full([BN, BC], 0, tl.float64)
    positive = tl.full([BN], 0, tl.int32)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        e = load_f64(ATT + item * att_stride, inside)
        finite = inside & is_finite(e)
        if IS_SCORES:
            a = tl.where(finite, tl.exp(tl.where(finite, e - top, 0.0)), 0.0) / scale
            marked = tl.where(finite | (e == nothing), a, float("nan"))
            positive += (finite & (under | (a > 0))).to(tl.int32)
        else:
            a = tl.where(finite, e, 0.0) / scale
            marked = tl.where(finite, a, float("nan"))
            positive += (a > 0).to(tl.int32)
        tl.store(WEIGHT + item, tl.where(invalid, float("nan"), marked), mask=inside)
        s = load_f64(S + item[:, None] * C + c[None, :], inside[:, None] & real[None, :])
        mass += a
        sums += a[:, None] * s
    count = tl.sum(positive, axis=0)
    whole = tl.sum(mass, axis=0)
    pooled = tl.sum(sums, axis=0)

    broken = bad > 0
    usable = (invalid == 0) & (broken == 0)
    weighted = usable & (count > 0)
    logits = tl.where(weighted, pooled / tl.where(whole > 0, whole, 1.0) + bias, bias)
    if WANT_LOGITS:
        known = tl.where(usable, logits, float("nan"))
        tl.store(LOGITS + b * C + c, known.to(LOGITS.dtype.element_ty), mask=real)
    logits = tl.where(real & usable, logits, tl.where(real, 0.0, nothing))
    label = tl.where(usable, tl.argmax(logits, axis=0), -1).to(tl.int64)
    logp = tl.reshape(log_softmax(logits[None, :], C, BC), [BC])
    logp = tl.where(usable, logp, float("nan"))

    # Sums compared at k = 0: of the margins, which are a_i [(s_y + b_y) - (s_c + b_c)].
    shifted = tl.where(real & weighted, pooled + whole * bias, 0.0)
    margins = tl.sum(tl.where(c == label, shifted, 0.0), axis=0) - shifted
    others = real & (c != label)
    bound = tl.max(tl.where(real & is_finite(bias), tl.abs(bias), 0.0), axis=0)
    tolerance = NEAR_TIE_TOLERANCE * (tl.max(longest, axis=0) * tl.load(HEAD_NORM) + bound)
    close = weighted & (tl.sum((others & (tl.abs(margins) < tolerance)).to(tl.int32), axis=0) > 0)

    status = tl.where(n == 1, SINGLE, 0)
    if invalid:
        status |= INVALID
    else:
        status |= tl.where(n == 0, EMPTY, 0)
        status |= tl.where(broken, NON_FINITE, 0)
        status |= tl.where((n > 0) & (count == 0) & usable, ZERO_MASS, 0)
        status |= tl.where(under, UNDERFLOW, 0)
        status |= tl.where(close, NEAR_TIE, 0)
    tl.store(STATUS + b, status.to(tl.int64))
    tl.store(LABEL + b, label)
    tl.store(BIAS_LABEL + b, bias_label)
    tl.store(POSITIVE + b, count.to(tl.int64))
    tl.store(TOLERANCE + b, tolerance)
    tl.store(RUNNER + b, tl.argmin(tl.where(others, margins, -nothing), axis=0).to(tl.int64))
    tl.store(LOGP + b * C + c, logp, mask=real)
    tl.store(PROB + b * C + c, tl.exp(logp).to(PROB.dtype.element_ty), mask=real)


# The alignment of what callers pass differs from batch to batch and must not choose the code.
POINTERS = [
    "ATT",
    "S",
    "NORM",
    "OFFSETS",
    "BIAS",
    "FLAG",
    "HEAD_NORM",
    "WEIGHT",
    "LABEL",
    "STATUS",
    "PROB",
    "LOGP",
    "LOGITS",
    "TOLERANCE",
    "RUNNER",
    "POSITIVE",
    "BIAS_LABEL",
]


@triton.jit(
    do_not_specialize=["att_stride", "bias_stride", "B", "group"],
    do_not_specialize_on_alignment=POINTERS,
)
def decide_kernel(
    ATT, att_stride, S, NORM, OFFSETS, BIAS, bias_stride, FLAG, HEAD_NORM, WEIGHT, LABEL, STATUS,
    PROB, LOGP, LOGITS, TOLERANCE, RUNNER, POSITIVE, BIAS_LABEL, B, group, C: tl.constexpr,
    IS_SCORES: tl.constexpr, WANT_LOGITS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            if (n > LOW) & (n <= HIGH):
                _decide(
                    ATT, att_stride, S, NORM, BIAS, bias_stride, FLAG, HEAD_NORM, WEIGHT, LABEL,
                    STATUS, PROB, LOGP, LOGITS, TOLERANCE, RUNNER, POSITIVE, BIAS_LABEL, b, begin,
                    n, C, IS_SCORES, WANT_LOGITS, BN, BC,
                )  # fmt: skip


def decide(
    attention: torch.Tensor,
    is_scores: bool,
    contributions: torch.Tensor,
    norms: torch.Tensor,
    offsets: torch.Tensor,
    bias: torch.Tensor,
    invalid: torch.Tensor,
    head_norm: torch.Tensor,
    weight: torch.Tensor,
    label: torch.Tensor,
    status: torch.Tensor,
    probabilities: torch.Tensor,
    log_probabilities: torch.Tensor,
    tolerance: torch.Tensor,
    runner_up: torch.Tensor,
    positive: torch.Tensor,
    bias_label: torch.Tensor,
    logits: torch.Tensor | None,
) -> None:
    """Fills all from `weight` on; `invalid` [B] int32 marks instances found invalid before."""
    num_items, num_classes = contributions.shape
    num_instances = len(label)
    if num_instances == 0:
        return
    group = group_size(num_instances, 1)
    for tile in tiles(num_classes, num_items):
        decide_kernel[(triton.cdiv(num_instances, group),)](
            attention, attention.stride(0), contributions, norms, offsets, bias,
            bias.stride(0) if bias.ndim == 2 else 0, invalid, head_norm, weight, label, status,
            probabilities, log_probabilities, probabilities if logits is None else logits,
            tolerance, runner_up, positive, bias_label, num_instances, group, C=num_classes,
            IS_SCORES=is_scores, WANT_LOGITS=logits is not None, LOW=tile.low, HIGH=tile.high,
            BN=tile.items, BC=tile.classes, num_warps=tile.warps, maxnreg=tile.registers,
        )  # fmt: skip
