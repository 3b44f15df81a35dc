"""The original decision of every instance: weights, label, logits, probabilities, status.

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
    helper,
    is_finite,
    load_bias,
    load_f64,
    log_softmax,
    loop_bound,
)
from .launch import Batch, batch_jit


@helper
def _decide(
    ATTENTION, attention_stride, CONTRIBUTIONS, NORMS, BIAS, bias_stride, FOUND_INVALID, HEAD_NORM,
    WEIGHTS, LABEL, STATUS, PROBABILITIES, LOGITS, LOG_PROBABILITIES, TOLERANCE, RUNNER_UP,
    POSITIVE, BIAS_LABEL, b, begin, n, C: tl.constexpr, IS_SCORES: tl.constexpr, BN: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Decide one instance and write what is known of it before anything is erased."""
    c = tl.arange(0, BC)
    is_class = c < C
    bias, bias_label, bias_finite = load_bias(BIAS, bias_stride, b, C, BC)
    bad_count = (bias_finite == 0).to(tl.int32)
    invalid_count = tl.load(FOUND_INVALID + b)
    lowest = tl.full([BN], float("inf"), tl.float64)
    highest = tl.full([BN], float("-inf"), tl.float64)
    largest_norms = tl.full([BN], 0, tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        e = load_f64(ATTENTION + item * attention_stride, inside)
        finite = inside & is_finite(e)
        if IS_SCORES:
            bad = inside & (is_finite(e) == 0) & (e != float("-inf"))
        else:
            bad = inside & (is_finite(e) == 0)
            invalid_count += tl.sum((inside & (e < 0)).to(tl.int32), axis=0)
        bad_count += tl.sum(bad.to(tl.int32), axis=0)
        lowest = tl.minimum(lowest, tl.where(finite, e, float("inf")))
        highest = tl.maximum(highest, tl.where(finite, e, float("-inf")))
        s = load_f64(
            CONTRIBUTIONS + item[:, None] * C + c[None, :], inside[:, None] & is_class[None, :]
        )
        bad_count += tl.sum(tl.sum((is_finite(s) == 0).to(tl.int32), axis=1), axis=0)
        norm = tl.load(NORMS + item, mask=inside, other=0.0)
        largest_norms = tl.maximum(largest_norms, tl.where(is_finite(norm), norm, 0.0))
    top = tl.max(highest, axis=0)
    bottom = tl.min(lowest, axis=0)
    # -inf is not: there is no finite score then.
    wide = tl.where(top - bottom > UNDERFLOW_SPAN, 1, 0)
    if not IS_SCORES:
        wide = wide * 0
    underflow = wide > 0
    top = tl.where(is_finite(top), top, 0.0)

    totals = tl.full([BN], 0, tl.float64)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        e = load_f64(ATTENTION + (begin + position) * attention_stride, position < n)
        finite = (position < n) & is_finite(e)
        if IS_SCORES:
            totals += tl.where(finite, tl.exp(tl.where(finite, e - top, 0.0)), 0.0)
        else:
            totals += tl.where(finite, e, 0.0)
    total = tl.sum(totals, axis=0)
    normaliser = tl.where(total > 0, total, 1.0)
    invalid = invalid_count > 0

    masses = tl.full([BN], 0, tl.float64)
    sums = tl.full([BN, BC], 0, tl.float64)
    positives = tl.full([BN], 0, tl.int32)
    for start in range(0, loop_bound(n), BN):
        position = start + tl.arange(0, BN)
        inside = position < n
        item = begin + position
        e = load_f64(ATTENTION + item * attention_stride, inside)
        finite = inside & is_finite(e)
        if IS_SCORES:
            a = tl.where(finite, tl.exp(tl.where(finite, e - top, 0.0)), 0.0) / normaliser
            known = finite | (e == float("-inf"))
            positives += (finite & (underflow | (a > 0))).to(tl.int32)
        else:
            a = tl.where(finite, e, 0.0) / normaliser
            known = finite
            positives += (a > 0).to(tl.int32)
        tl.store(WEIGHTS + item, tl.where(known & (invalid == 0), a, float("nan")), mask=inside)
        s = load_f64(
            CONTRIBUTIONS + item[:, None] * C + c[None, :], inside[:, None] & is_class[None, :]
        )
        masses += a
        sums += a[:, None] * s
    positive = tl.sum(positives, axis=0)
    mass = tl.sum(masses, axis=0)
    weighted_sum = tl.sum(sums, axis=0)

    bad = bad_count > 0
    usable = (invalid == 0) & (bad == 0)
    weighted = usable & (positive > 0)
    logits = tl.where(weighted, weighted_sum / tl.where(mass > 0, mass, 1.0) + bias, bias)
    if LOGITS is not None:
        known_logits = tl.where(usable, logits, float("nan"))
        tl.store(LOGITS + b * C + c, known_logits.to(LOGITS.dtype.element_ty), mask=is_class)
    logits = tl.where(is_class & usable, logits, tl.where(is_class, 0.0, float("-inf")))
    label = tl.where(usable, tl.argmax(logits, axis=0), -1).to(tl.int64)
    logp = tl.reshape(log_softmax(logits[None, :], C, BC), [BC])
    logp = tl.where(usable, logp, float("nan"))

    # Sums compared at k = 0: of the margins, which are a_i [(s_y + b_y) - (s_c + b_c)].
    shifted = tl.where(is_class & weighted, weighted_sum + mass * bias, 0.0)
    margins = tl.sum(tl.where(c == label, shifted, 0.0), axis=0) - shifted
    others = is_class & (c != label)
    largest_bias = tl.max(tl.where(is_class & is_finite(bias), tl.abs(bias), 0.0), axis=0)
    scale = tl.max(largest_norms, axis=0) * tl.load(HEAD_NORM) + largest_bias
    tolerance = NEAR_TIE_TOLERANCE * scale
    close = weighted & (tl.sum((others & (tl.abs(margins) < tolerance)).to(tl.int32), axis=0) > 0)

    status = tl.where(n == 1, SINGLE, 0)
    if invalid:
        status |= INVALID
    else:
        status |= tl.where(n == 0, EMPTY, 0)
        status |= tl.where(bad, NON_FINITE, 0)
        status |= tl.where((n > 0) & (positive == 0) & usable, ZERO_MASS, 0)
        status |= tl.where(underflow, UNDERFLOW, 0)
        status |= tl.where(close, NEAR_TIE, 0)
    tl.store(STATUS + b, status.to(tl.int64))
    tl.store(LABEL + b, label)
    tl.store(BIAS_LABEL + b, bias_label)
    tl.store(POSITIVE + b, positive.to(tl.int64))
    tl.store(TOLERANCE + b, tolerance)
    runner_up = tl.argmin(tl.where(others, margins, float("inf")), axis=0)
    tl.store(RUNNER_UP + b, runner_up.to(tl.int64))
    tl.store(LOG_PROBABILITIES + b * C + c, logp, mask=is_class)
    probabilities = tl.exp(logp).to(PROBABILITIES.dtype.element_ty)
    tl.store(PROBABILITIES + b * C + c, probabilities, mask=is_class)


@batch_jit
def decide_kernel(
    ATTENTION, attention_stride, CONTRIBUTIONS, NORMS, OFFSETS, BIAS, bias_stride, FOUND_INVALID,
    HEAD_NORM, WEIGHTS, LABEL, STATUS, PROBABILITIES, LOGITS, LOG_PROBABILITIES, TOLERANCE,
    RUNNER_UP, POSITIVE, BIAS_LABEL, B, group, C: tl.constexpr, IS_SCORES: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    for step in range(0, loop_bound(group)):
        b = tl.program_id(0).to(tl.int64) * group + step
        if b < B:
            begin = tl.load(OFFSETS + b)
            n = (tl.load(OFFSETS + b + 1) - begin).to(tl.int32)
            if (n > LOW) & (n <= HIGH):
                _decide(
                    ATTENTION, attention_stride, CONTRIBUTIONS, NORMS, BIAS, bias_stride,
                    FOUND_INVALID, HEAD_NORM, WEIGHTS, LABEL, STATUS, PROBABILITIES, LOGITS,
                    LOG_PROBABILITIES, TOLERANCE, RUNNER_UP, POSITIVE, BIAS_LABEL, b, begin, n, C,
                    IS_SCORES, BN, BC,
                )  # fmt: skip


def decide(batch: Batch, found_invalid: torch.Tensor, head_norm: torch.Tensor) -> None:
    """Fill what a batch holds from `weights` on, and label, status, probabilities and logits.

    `found_invalid` [B] int32 marks instances found invalid before, `head_norm` [] float64 is the
    largest `|W_c|`.
    """
    batch.launch_tiles(decide_kernel, FOUND_INVALID=found_invalid, HEAD_NORM=head_norm)
