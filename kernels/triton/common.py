"""What the kernels share: tile shapes, ordered keys, margins of a tile, divergences.

With few classes every kernel that works an instance at a time is launched twice over the same
instances: once with a one-warp tile for those that fit it, once with a four-warp tile for the
longer ones. Which of the two handles an instance depends on its own length alone, so that its sums
round the same whatever the batch around it: the promise of batch independence holds bit for bit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
EMPTY = tl.constexpr(1)
SINGLE = tl.constexpr(2)
ZERO_MASS = tl.constexpr(4)
NON_FINITE = tl.constexpr(8)
UNDERFLOW = tl.constexpr(16)
NEAR_TIE = tl.constexpr(32)
INVALID = tl.constexpr(64)
UNDERFLOW_SPAN = tl.constexpr(600.0)  # of finite scores, see params.h
NEAR_TIE_TOLERANCE = tl.constexpr(3e-6)
FAR = tl.constexpr(2147483647)  # a prefix length that no instance has


@dataclass(frozen=True)
class Tile:
    """One launch over the instances of `low < n <= high` items."""

    items: int  # rows of a tile
    classes: int  # columns: C rounded up to a power of two
    low: int
    high: int
    warps: int

    @property
    def registers(self) -> int:
        """What a thread may use: all there are, else the assembler spills to fit another block."""
        return min(255, 65536 // (32 * self.warps))


def tiles(num_classes: int, num_items: int) -> list[Tile]:
    """The launches that together cover every instance of a batch of `num_items` items."""
    classes = max(2, triton.next_power_of_2(num_classes))
    long = max(1, min(128, 512 // classes))
    if classes > 8:
        return [Tile(long, classes, -1, 2**31 - 1, min(16, max(8, classes // 128)))]
    short = 128 // classes
    launches = [Tile(short, classes, -1, short, 1)]
    if num_items > short:
        launches.append(Tile(long, classes, short, 2**31 - 1, 4))
    return launches


def group_size(num_instances: int, rows: int) -> int:
    """Instances a program walks through: more than one only where the grid is large anyway."""
    return max(1, min(8, num_instances * rows // 4096))


if os.environ.get("TRITON_INTERPRET") == "1":

    def helper(function):
        """A function that kernels call; plain Python to the interpreter, which is quicker."""
        return function

    def loop_bound(bound):
        """A Python integer: the interpreter's scalars are arrays, no bounds of a range to NumPy."""
        return bound if isinstance(bound, int) else bound.handle.data.item()

else:
    helper = triton.jit

    @triton.jit
    def loop_bound(bound):
        """The bound itself."""
        return bound


@helper
def load_f64(pointers, mask):
    """Loads any float type as float64, 0 where masked."""
    x = tl.load(pointers, mask=mask, other=0.0)
    if x.dtype == tl.bfloat16 or x.dtype == tl.float16:
        x = x.to(tl.float32)
    return x.to(tl.float64)


@helper
def is_finite(x):
    return tl.abs(x) < float("inf")


@helper
def ordered_key(x):
    """Maps float64 to int64 so that larger numbers get larger keys, -0 equals +0, NaN is on top."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int64, bitcast=True)
    key = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFFFFFFFFFF)
    return tl.where(x == x, key, 0x7FFFFFFFFFFFFFFF)


@helper
def load_bias(BIAS, bias_stride, b, C: tl.constexpr, BC: tl.constexpr):
    """The bias of instance `b` [BC] (0 in padding), its argmax, and whether it is all finite."""
    c = tl.arange(0, BC)
    bias = load_f64(BIAS + b * bias_stride + c, c < C)
    label = tl.argmax(tl.where(c < C, bias, float("-inf")), axis=0).to(tl.int64)
    finite = tl.sum((is_finite(bias) & (c < C)).to(tl.int32), axis=0) == C
    return bias, label, finite


@helper
def reference_logit(S, item, inside, bias, y, C: tl.constexpr, BC: tl.constexpr):
    """`s_y + b_y` of each item [BN]; 0 where the instance has no label."""
    c = tl.arange(0, BC)
    bias_y = tl.sum(tl.where(c == y, bias, 0.0), axis=0)
    s_y = load_f64(S + item * C + y, inside & (y >= 0))
    return tl.where(y >= 0, s_y + bias_y, 0.0)


@helper
def load_tile(S, WEIGHT, item, inside, bias, y, C: tl.constexpr, BC: tl.constexpr):
    """Of each item: original weight (0 where bad) [BN], `s_y + b_y` [BN], the differences
    `(s_y + b_y) - (s_c + b_c)` [BN, BC] (0 where bad or padding) and whether it is bad [BN].
    """
    c = tl.arange(0, BC)
    real = c < C
    a = tl.load(WEIGHT + item, mask=inside, other=0.0)
    s = load_f64(S + item[:, None] * C + c[None, :], inside[:, None] & real[None, :])
    bad = (tl.sum((is_finite(s) == 0).to(tl.int32), axis=1) > 0) | (is_finite(a) == 0)
    reference = reference_logit(S, item, inside & (bad == 0), bias, y, C, BC)
    difference = reference[:, None] - (s + bias[None, :])
    difference = tl.where((bad == 0)[:, None] & real[None, :], difference, 0.0)
    return tl.where(is_finite(a), a, 0.0), reference, difference, bad


@helper
def load_score(SCORE, score_stride, item, inside):
    """Finite scores [BN]; -inf for weight zero, a bad score and padding."""
    e = load_f64(SCORE + item * score_stride, inside)
    return tl.where(inside & is_finite(e), e, float("-inf"))


@helper
def decide(margins, mass, bias_label, C: tl.constexpr, BC: tl.constexpr):
    """The decision of each row: the class of smallest margin sum, the lowest on ties; the bias's
    where no mass survives."""
    c = tl.arange(0, BC)
    padded = tl.where((c < C)[None, :], margins, float("inf"))
    return tl.where(mass > 0, tl.argmin(padded, axis=1).to(tl.int64), bias_label)


@helper
def near_tie(margins, mass, tolerance, y, C: tl.constexpr, BC: tl.constexpr):
    """Whether a compared sum of the row is nearer to zero than the tolerance [BN]."""
    c = tl.arange(0, BC)
    compared = ((c < C) & (c != y))[None, :]
    close = (tl.abs(margins) < tolerance * mass[:, None]) & compared
    return (mass > 0) & (tl.sum(close.to(tl.int32), axis=1) > 0)


@helper
def log_softmax(logits, C: tl.constexpr, BC: tl.constexpr):
    """Log-probabilities [BN, BC]; -inf in padding."""
    real = (tl.arange(0, BC) < C)[None, :]
    logits = tl.where(real, logits, float("-inf"))
    top = tl.max(logits, axis=1)[:, None]
    total = tl.sum(tl.where(real, tl.exp(logits - top), 0.0), axis=1)[:, None]
    return logits - (top + tl.log(total))


@helper
def row_log_probabilities(margins, mass, bias, C: tl.constexpr, BC: tl.constexpr):
    """Log-probabilities of `z_c = z_y - M_c / A`, or of the bias where no mass survives."""
    live = mass > 0
    logits = tl.where(live[:, None], -margins / tl.where(live, mass, 1.0)[:, None], bias[None, :])
    return log_softmax(logits, C, BC)


@helper
def divergences(log_new, log_old):
    """JS (natural log, in [0, ln 2]) and KL(new || old) of each row, from log-probabilities."""
    p = tl.exp(log_new)
    q = tl.exp(log_old)[None, :]
    some = (p + q) > 0
    log_mean = tl.log(tl.where(some, p + q, 1.0)) - LN2
    terms = tl.where(p > 0, p * (log_new - log_mean), 0.0)
    terms += tl.where(q > 0, q * (log_old[None, :] - log_mean), 0.0)
    js = tl.minimum(tl.maximum(0.5 * tl.sum(terms, axis=1), 0.0), LN2)
    kl = tl.sum(tl.where(p > 0, p * (log_new - log_old[None, :]), 0.0), axis=1)
    return js, tl.maximum(kl, 0.0)
