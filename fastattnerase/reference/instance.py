"""One instance in float64: its contributions, weights, label, and the sums over survivors."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from fastattnerase.problem import Problem
from fastattnerase.reference.sums import (
    scaled_suffix_sums,
    scaled_sums_over_others,
    suffix_sums,
    sums_over_others,
)
from fastattnerase.status import Status

# Finite scores that span more than this are exponentiated against a running maximum.
UNDERFLOW_SPAN = 600.0
# Compared sums nearer to zero than this, relative to the scale of the logits, are near-ties.
NEAR_TIE_TOLERANCE = 3e-6


def softmax_over_finite(attention: Tensor, is_scores: bool) -> tuple[Tensor, Tensor]:
    """Turn scores or weights [n, H] into weights that sum to one a head, and say which are bad.

    Bad ones (NaN, infinite, but not a score of -inf, which is weight zero) get weight zero.
    """
    bad = ~attention.isfinite()  # [n, H]
    if is_scores:
        bad &= attention != -torch.inf
        scores = attention.masked_fill(bad, -torch.inf)
        top = scores.amax(0) if len(scores) else scores.sum(0)  # [H]
        weights = (scores - top.where(top > -torch.inf, 0)).exp()  # [n, H]
    else:
        weights = attention.masked_fill(bad, 0)
    total = weights.cumsum(0)[-1:]  # [1, H], in position order
    return torch.where(total > 0, weights / total, torch.zeros_like(weights)), bad


class Instance:
    """What every piece of the reference needs of one instance.

    Axes: `n` items, `H` heads, `C` classes. Items whose contribution, score or weight is not
    finite are listed in `bad`; their contribution and weight are replaced by zero.
    """

    def __init__(self, problem: Problem, index: int) -> None:
        begin, end = int(problem.offsets[index]), int(problem.offsets[index + 1])
        values = problem.values[begin:end].double()  # [n, H, D]
        head = problem.head_weight.double()  # [C, H, D]
        attention = problem.attention[begin:end].double()  # [n, H]
        bias = problem.head_bias.double()  # [C] or [B, C]
        self.id = int(problem.ids[index])
        self.n, self.H, self.C = end - begin, values.shape[1], head.shape[0]
        self.bias = bias if bias.ndim == 1 else bias[index]  # [C]
        # A sum of products a row, not a matrix product: its rounding depends on nothing else.
        contributions = torch.stack([(values * row).sum(-1) for row in head], dim=-1)  # [n, H, C]
        finite = contributions.isfinite()
        if problem.values.dtype != torch.float64:
            finite &= contributions.float().isfinite()
        self.weights, bad_attention = softmax_over_finite(attention, problem.is_scores)  # [n, H]
        self.bad_attention = bad_attention.any(1)  # [n]
        self.bad = self.bad_attention | ~finite.all(2).all(1)  # [n]
        self.contributions = contributions.masked_fill(self.bad[:, None, None], 0)  # [n, H, C]
        self.is_scores = problem.is_scores
        self.attention = attention  # [n, H], as given
        self.scores = attention.masked_fill(bad_attention, -torch.inf)  # [n, H]
        self.underflow = [
            problem.is_scores and self._span(h) > UNDERFLOW_SPAN for h in range(self.H)
        ]
        self.positive = self._positive()  # [n], whether the item has weight in some head
        self.bad_bias = not bool(self.bias.isfinite().all())
        self.finite = not self.bad_bias and not bool(self.bad.any())
        # What sums are compared with: max_i ‖h_i‖ · max_c ‖W_c‖ + max_c |b_c|.
        longest = values.flatten(1).norm(dim=1).amax() if self.n else values.new_zeros(())
        steepest = head.flatten(1).norm(dim=1).amax()
        self.scale = float(longest * steepest + self.bias.abs().amax())

    def _span(self, h: int) -> float:
        finite = self.scores[:, h][self.scores[:, h] > -torch.inf]
        return float(finite.max() - finite.min()) if len(finite) else 0.0

    def _positive(self) -> Tensor:
        positive = self.weights > 0  # [n, H]
        for h in range(self.H):
            if self.underflow[h]:
                positive[:, h] = self.scores[:, h] > -torch.inf
        return positive.any(1)

    @property
    def has_mass(self) -> bool:
        """Whether any item has a weight above zero."""
        return bool(self.positive.any())

    @cached_property
    def logits(self) -> Tensor:
        """The original logits [C], from sums in position order."""
        logits = self.bias.clone()
        for h in range(self.H):
            mass = self.weights[:, h].cumsum(0)[-1:]  # [1]
            if bool((mass > 0).any()):
                weighted = self.weights[:, h, None] * self.contributions[:, h]  # [n, C]
                logits += weighted.cumsum(0)[-1] / mass
        return logits

    @cached_property
    def label(self) -> int:
        """The original decision, -1 where something is not finite."""
        return int(self.logits.argmax()) if self.finite else -1

    @cached_property
    def bias_label(self) -> int:
        """The decision where no mass survives, -1 where the bias is not finite."""
        return -1 if self.bad_bias else int(self.bias.argmax())

    @cached_property
    def margins(self) -> Tensor:
        """(s_y + b_y) − (s_c + b_c) of every item, without the weight: [n, C], one head only."""
        shifted = self.contributions[:, 0] + self.bias  # [n, C]
        return shifted[:, self.label, None] - shifted

    @cached_property
    def status(self) -> Status:
        """The flags that depend on the instance alone."""
        status = Status(0)
        if self.n == 0:
            status |= Status.EMPTY
        if self.n == 1:
            status |= Status.SINGLE
        if not self.finite:
            status |= Status.NON_FINITE
        if self.n and not self.has_mass and not bool(self.bad.any()):
            status |= Status.ZERO_MASS
        if any(self.underflow):
            status |= Status.UNDERFLOW
        if self.finite and self.has_mass:
            if self.H == 1:
                sums = (self.weights * self.margins).cumsum(0)[-1:]  # [1, C]
            else:
                sums = (self.logits[self.label] - self.logits)[None]  # [1, C]
            if bool(self.near_zero(sums, torch.ones(1, dtype=sums.dtype)).any()):
                status |= Status.NEAR_TIE
        return status

    def near_zero(self, sums: Tensor, mass: Tensor) -> Tensor:
        """Which compared sums [K, C] over survivors of mass [K] are near-ties: [K]."""
        near = torch.stack([self.is_near_zero(row, mass) for row in sums.T], dim=1)  # [K, C]
        near[:, self.label] = False
        return near.any(1)

    def is_near_zero(self, sums: Tensor, mass: Tensor) -> Tensor:
        """Which of one class's sums [K] over survivors of mass [K] are near-ties: [K]."""
        return (sums.abs() < NEAR_TIE_TOLERANCE * self.scale * mass) & (mass > 0)

    def tail(self, h: int, order: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sums of `terms` [n, K] over the survivors of every prefix of `order`.

        Returns the sums [n + 1, K] and the mass [n + 1], both on a scale of their own.
        """
        if self.underflow[h]:
            return scaled_suffix_sums(self.scores[order, h], terms[order])
        weights = self.weights[order, h]  # [n]
        return suffix_sums(weights[:, None] * terms[order]), suffix_sums(weights)

    def others(self, h: int, items: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sums of `terms` [n, K] over `items` [m] but one, for each: [m, K] and [m]."""
        if self.underflow[h]:
            return scaled_sums_over_others(self.scores[items, h], terms[items])
        return sums_over_others(self.weights[items, h], terms[items])

    def logits_without(self, items: Tensor) -> Tensor:
        """The logits over `items` [m] but one, for each: [m, C]."""
        logits = self.bias.repeat(len(items), 1)  # [m, C]
        for h in range(self.H):
            sums, mass = self.others(h, items, self.contributions[:, h])
            logits += average(sums, mass)
        return logits


def average(sums: Tensor, mass: Tensor) -> Tensor:
    """`sums` [K, C] divided by `mass` [K], zero where no mass survives."""
    return torch.where(mass[:, None] > 0, sums / mass[:, None], torch.zeros_like(sums))


def decisions_from_margins(sums: Tensor, mass: Tensor, bias_label: int) -> Tensor:
    """The class with the smallest sum, the lowest on ties: [K, C] and [K] to [K].

    The label's own sum is exactly zero, so it wins unless another class is below it, or as low
    with a lower number. Where no mass survives the bias decides.
    """
    return torch.where(mass > 0, sums.argmin(1), bias_label)
