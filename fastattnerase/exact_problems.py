"""The records of answers that need no search: what an instance's items give, and what is found.

All reals are float64, whatever the values' type. Axes: `B` instances, `T` items, `C` classes, `K`
outputs (margins of the label over each rival, or one output), `P` points, `R` rankings. Instances
whose `status` has NON_FINITE or INVALID have no answer: -1 and NaN; nor have those with UNDERFLOW,
but for Shapley values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.status import Status

UNANSWERED = int(Status.NON_FINITE | Status.UNDERFLOW | Status.INVALID)


@dataclass(frozen=True)
class EnvelopeProblem:
    """Of which sets the least and the largest output is looked for."""

    offsets: Tensor  # [B + 1], int64
    status: Tensor  # [B], int64
    weights: Tensor  # [T], 0 or more
    outputs: Tensor  # [T, K], what each item gives alone
    empty: Tensor  # [B, K], the outputs without mass
    point_offsets: Tensor  # [B + 1], int64
    kept: Tensor  # [P], int64: items kept at each point, 0 … n
    orders: Tensor  # [R, T], int64, most important first
    keep: bool  # whether the first items of an order are kept, or the last


@dataclass
class EnvelopeOutputs:
    """Bounds by point, and the curve of each order."""

    lower: Tensor  # [P, K]
    upper: Tensor  # [P, K]
    curves: Tensor  # [R, P], the least output over K

    @classmethod
    def allocate(cls, outputs: Tensor, kept: Tensor, orders: Tensor) -> EnvelopeOutputs:
        """Allocate what a problem with these outputs, points and orders gives."""
        P, K, R = kept.shape[0], outputs.shape[1], orders.shape[0]
        empty = outputs.new_empty
        return cls(empty((P, K)), empty((P, K)), empty((R, P)))


@dataclass(frozen=True)
class ShapleyProblem:
    """Items whose Shapley values are looked for."""

    offsets: Tensor  # [B + 1], int64
    status: Tensor  # [B], int64
    log_weights: Tensor  # [T], -inf for no weight
    contributions: Tensor  # [T, C]
    tolerance: float  # of an instance's largest value


@dataclass
class ShapleyOutputs:
    """Values and how sure they are."""

    values: Tensor  # [T, C]
    error: Tensor  # [B]
    efficiency: Tensor  # [B]
    nodes: Tensor  # [B], int64

    @classmethod
    def allocate(cls, offsets: Tensor, contributions: Tensor) -> ShapleyOutputs:
        """Allocate what contributions [T, C] of instances at offsets [B + 1] give."""
        B, (T, C) = offsets.shape[0] - 1, contributions.shape
        empty = contributions.new_empty
        return cls(empty((T, C)), empty(B), empty(B), empty(B, dtype=torch.int64))


@dataclass(frozen=True)
class SufficientProblem:
    """Items of which a smallest set that gives the label is looked for."""

    offsets: Tensor  # [B + 1], int64
    status: Tensor  # [B], int64
    weights: Tensor  # [T], 0 or more
    margins: Tensor  # [T, K], of the label over each rival, biases included
    wins: Tensor  # [B, K], int64: 1 where the rival wins a tie
    tolerance: Tensor  # [B], of near-ties, per unit of mass


@dataclass
class SufficientOutputs:
    """The set of each instance."""

    size: Tensor  # [B], int64
    least: Tensor  # [B], int64: no smaller set suffices
    near: Tensor  # [B], int64: 1 where a sum that decided is nearer to zero than the tolerance
    order: Tensor  # [T], int64: the set, then the rest by position

    @classmethod
    def allocate(cls, offsets: Tensor, weights: Tensor) -> SufficientOutputs:
        """Allocate what weights [T] of instances at offsets [B + 1] give."""
        B, T = offsets.shape[0] - 1, weights.shape[0]
        sizes = (B, B, B, T)
        return cls(*(weights.new_empty(size, dtype=torch.int64) for size in sizes))


@dataclass(frozen=True)
class GreedyProblem:
    """Items that are removed one after the other."""

    offsets: Tensor  # [B + 1], int64
    status: Tensor  # [B], int64
    weights: Tensor  # [T], 0 or more
    margins: Tensor  # [T, K], of the label over each rival, biases included
    empty: Tensor  # [B, K], the margins without mass
    wins: Tensor  # [B, K], int64: 1 where the rival wins a tie
    tolerance: Tensor  # [B], of near-ties, per unit of mass
    steps: int  # items removed at most, -1: all
    until_flip: bool  # whether no further than the first flip


@dataclass
class GreedyOutputs:
    """The order of each instance."""

    order: Tensor  # [T], int64: those removed, then the rest by position
    removed: Tensor  # [B], int64, -1 without an answer
    certain: Tensor  # [B], int64: steps before the first whose next best is within the tolerance

    @classmethod
    def allocate(cls, offsets: Tensor, weights: Tensor) -> GreedyOutputs:
        """Allocate what weights [T] of instances at offsets [B + 1] give."""
        B, T = offsets.shape[0] - 1, weights.shape[0]
        return cls(*(weights.new_empty(size, dtype=torch.int64) for size in (T, B, B)))
