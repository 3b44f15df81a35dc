"""What the kernels share: constants, ordered keys, margins of a tile, decisions, divergences."""

from __future__ import annotations

import os

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
# The bits of a result's status, as in params.h.
EMPTY = tl.constexpr(1)
SINGLE = tl.constexpr(2)
ZERO_MASS = tl.constexpr(4)
NON_FINITE = tl.constexpr(8)
UNDERFLOW = tl.constexpr(16)
NEAR_TIE = tl.constexpr(32)
INVALID = tl.constexpr(64)
UNDERFLOW_SPAN = tl.constexpr(600.0)  # of finite scores, see params.h
NEAR_TIE_TOLERANCE = tl.constexpr(3e-6)
NEVER = tl.constexpr(2147483647)  # a prefix length that no instance has


if os.environ.get("TRITON_INTERPRET") == "1":

    def helper(function):
        """Make a function that kernels call; plain Python to the interpreter, which is quicker."""
        return function

    def loop_bound(bound):
        """Convert to an integer: the interpreter's scalars are arrays, no bounds of a range."""
        return bound if isinstance(bound, int) else bound.handle.data.item()

else:
    helper = triton.jit

    @triton.jit
    def loop_bound(bound):
        """Take the bound as it is."""
        return bound


@helper
def load_f64(pointers, mask):
    """Load any float type as float64, 0 where masked."""
    x = tl.load(pointers, mask=mask, other=0.0)
    if x.dtype == tl.bfloat16 or x.dtype == tl.float16:
        x = x.to(tl.float32)
    return x.to(tl.float64)


@helper
def is_finite(x):
    """Test for neither NaN nor infinite."""
    return tl.abs(x) < float("inf")


@helper
def ordered_key(x):
    """Map float64 to int64 so that larger numbers get larger keys, -0 equals +0, NaN is on top."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int64, bitcast=True)
    key = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFFFFFFFFFF)
    return tl.where(x == x, key, 0x7FFFFFFFFFFFFFFF)


@helper
def load_bias(BIAS, bias_stride, b, C: tl.constexpr, BC: tl.constexpr):
    """Load the bias of instance `b` [BC] (0 in padding), its argmax, whether it is all finite."""
    c = tl.arange(0, BC)
    bias = load_f64(BIAS + b * bias_stride + c, c < C)
    label = tl.argmax(tl.where(c < C, bias, float("-inf")), axis=0).to(tl.int64)
    finite = tl.sum((is_finite(bias) & (c < C)).to(tl.int32), axis=0) == C
    return bias, label, finite


@helper
def reference_logit(CONTRIBUTIONS, item, inside, bias, y, C: tl.constexpr, BC: tl.constexpr):
    """Load `s_y + b_y` of each item [BN]; 0 where the instance has no label."""
    c = tl.arange(0, BC)
    bias_y = tl.sum(tl.where(c == y, bias, 0.0), axis=0)
    s_y = load_f64(CONTRIBUTIONS + item * C + y, inside & (y >= 0))
    return tl.where(y >= 0, s_y + bias_y, 0.0)


@helper
def load_tile(CONTRIBUTIONS, WEIGHTS, item, inside, bias, y, C: tl.constexpr, BC: tl.constexpr):
    """Load a tile of items: original weights (0 where bad) [BN], `s_y + b_y` [BN], the differences
    `(s_y + b_y) - (s_c + b_c)` [BN, BC] (0 where bad or padding), which are bad (not finite) [BN].
    """
    c = tl.arange(0, BC)
    is_class = c < C
    a = tl.load(WEIGHTS + item, mask=inside, other=0.0)
    s = load_f64(
        CONTRIBUTIONS + item[:, None] * C + c[None, :], inside[:, None] & is_class[None, :]
    )
    bad = (tl.sum((is_finite(s) == 0).to(tl.int32), axis=1) > 0) | (is_finite(a) == 0)
    reference = reference_logit(CONTRIBUTIONS, item, inside & (bad == 0), bias, y, C, BC)
    difference = reference[:, None] - (s + bias[None, :])
    difference = tl.where((bad == 0)[:, None] & is_class[None, :], difference, 0.0)
    return tl.where(is_finite(a), a, 0.0), reference, difference, bad


@helper
def load_score(ATTENTION, attention_stride, item, inside):
    """Load finite scores [BN]; -inf for weight zero, a bad score and padding."""
    e = load_f64(ATTENTION + item * attention_stride, inside)
    return tl.where(inside & is_finite(e), e, float("-inf"))


@helper
def rescale(running_max, e):
    """Take one more score into a softmax that keeps its sums on the scale of the largest so far.

    Returns the largest, the factor that moves the sums to its scale, and the weight of `e` on it.
    """
    largest = tl.maximum(running_max, e)
    top = tl.where(largest > float("-inf"), largest, 0.0)
    factor = tl.where(running_max > float("-inf"), tl.exp(running_max - top), 0.0)
    return largest, factor, tl.where(e > float("-inf"), tl.exp(e - top), 0.0)


@helper
def decide(margins, mass, bias_label, C: tl.constexpr, BC: tl.constexpr):
    """Decide each row [BN]: the class of the smallest margin sum, the lowest on ties; the bias's
    where no mass survives."""
    c = tl.arange(0, BC)
    padded = tl.where((c < C)[None, :], margins, float("inf"))
    return tl.where(mass > 0, tl.argmin(padded, axis=1).to(tl.int64), bias_label)


@helper
def near_tie(margins, mass, tolerance, y, C: tl.constexpr, BC: tl.constexpr):
    """Test each row [BN] for a compared sum nearer to zero than the tolerance."""
    c = tl.arange(0, BC)
    compared = ((c < C) & (c != y))[None, :]
    close = (tl.abs(margins) < tolerance * mass[:, None]) & compared
    return (mass > 0) & (tl.sum(close.to(tl.int32), axis=1) > 0)


@helper
def log_softmax(logits, C: tl.constexpr, BC: tl.constexpr):
    """Compute log-probabilities [BN, BC]; -inf in padding."""
    is_class = (tl.arange(0, BC) < C)[None, :]
    logits = tl.where(is_class, logits, float("-inf"))
    top = tl.max(logits, axis=1)[:, None]
    total = tl.sum(tl.where(is_class, tl.exp(logits - top), 0.0), axis=1)[:, None]
    return logits - (top + tl.log(total))


@helper
def row_log_probabilities(margins, mass, bias, C: tl.constexpr, BC: tl.constexpr):
    """Compute log-probabilities of `z_c = z_y - M_c / A`, of the bias where no mass survives."""
    some = mass > 0
    logits = tl.where(some[:, None], -margins / tl.where(some, mass, 1.0)[:, None], bias[None, :])
    return log_softmax(logits, C, BC)


@helper
def divergences(log_new, log_old):
    """Compute JS (natural log, in [0, ln 2]) and KL(new || old) of each row [BN, BC]."""
    q = tl.exp(log_new)
    p = tl.exp(log_old)[None, :]
    log_mean = tl.log(tl.where(q + p > 0, q + p, 1.0)) - LN2
    terms = tl.where(q > 0, q * (log_new - log_mean), 0.0)
    terms += tl.where(p > 0, p * (log_old[None, :] - log_mean), 0.0)
    js = tl.minimum(tl.maximum(0.5 * tl.sum(terms, axis=1), 0.0), LN2)
    kl = tl.sum(tl.where(q > 0, q * (log_new - log_old[None, :]), 0.0), axis=1)
    return js, tl.maximum(kl, 0.0)
