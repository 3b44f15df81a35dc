"""One instance in float64: its contributions, weights, label, and the sums over survivors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from fastattnerase.problem import Problem
from fastattnerase.reference.single import Singles, singles
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


def contributions_of(values: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """Project items [n, H, D] with a head [C, H, D] in float64, and say which are not finite.

    Returns the contributions [n, H, C] and the bad items [n].
    """
    wide = values.double()  # [n, H, D]
    # A sum of products a row, not a matrix product: its rounding depends on nothing else.
    contributions = torch.stack([(wide * row).sum(-1) for row in head], dim=-1)  # [n, H, C]
    finite = contributions.isfinite()
    if values.dtype != torch.float64:
        finite &= contributions.float().isfinite()
    return contributions, ~finite.all(2).all(1)


class Attention:
    """The attention of one instance, and weighted sums over its survivors.

    Axes: `n` items, `H` heads. A score or weight that is not finite (but for a score of -inf) has
    weight zero.
    """

    def __init__(self, attention: Tensor, is_scores: bool) -> None:
        self.attention = attention.double()  # [n, H], scores or weights as given
        self.is_scores = is_scores
        self.n, self.H = attention.shape
        self.weights, bad = softmax_over_finite(self.attention, is_scores)  # [n, H]
        self.scores = self.attention.masked_fill(bad, -torch.inf)  # [n, H]
        self.bad_heads = bad  # [n, H], whose own score or weight is not finite
        self.bad_attention = bad.any(1)  # [n]
        self.underflow = [is_scores and self._span(h) > UNDERFLOW_SPAN for h in range(self.H)]
        self.positive = self._positive()  # [n], whether the item has weight in some head

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
    def positions(self) -> Tensor:
        """The items by position, 0 … n - 1: [n], int64."""
        return torch.arange(self.n, device=self.attention.device)

    def tail(self, h: int, order: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
        """Sum weighted `terms` [n, K] over the survivors of every prefix of `order` [n].

        Returns the sums [n + 1, K] and the mass [n + 1], both on a scale of their own.
        """
        if self.underflow[h]:
            return scaled_suffix_sums(self.scores[order, h], terms[order])
        weights = self.weights[order, h]  # [n]
        return suffix_sums(weights[:, None] * terms[order]), suffix_sums(weights)

    def others(self, h: int, items: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
        """Sum weighted `terms` [m, K] over `items` [m] but one, for each: [m, K] and [m]."""
        if self.underflow[h]:
            return scaled_sums_over_others(self.scores[items, h], terms)
        return sums_over_others(self.weights[items, h], terms)


class Instance(Attention, ABC):
    """One instance as rankings see it, in float64, whatever its head.

    Axes: `n` items, `H` heads, `D` features a head, `C` classes. A ranking of your own
    (`register_ranking`) is given one, of which everything is finite.
    """

    finite: bool  # whether all contributions, scores or weights and biases are

    def __init__(
        self, id: int, values: Tensor, attention: Tensor, is_scores: bool, bias: Tensor
    ) -> None:
        super().__init__(attention, is_scores)
        self.id = id  # what random orders depend on
        self.given_values = values  # [n, H, D], any float type
        self.bias = bias  # [C], the logits where no mass survives
        self.C = len(bias)

    @cached_property
    def values(self) -> Tensor:
        """What attention averages: [n, H, D], float64."""
        return self.given_values.double()

    @property
    @abstractmethod
    def logits(self) -> Tensor:
        """The logits of the original decision: [C]."""

    @cached_property
    def label(self) -> int:
        """The original decision, -1 where something is not finite."""
        return int(self.logits.argmax()) if self.finite else -1

    @property
    @abstractmethod
    def gradient(self) -> Tensor:
        """∂d/∂a_i of the decision's probability d = max_c softmax(z)_c: [n, H].

        The weights are free variables: nothing is renormalised.
        """

    @abstractmethod
    def logits_without(self, items: Tensor) -> Tensor:
        """Compute the logits over `items` [m] (positions) but one, for each: [m, C]."""

    @cached_property
    def logits_without_each(self) -> Tensor:
        """The logits without each item alone: [n, C]."""
        return self.logits_without(self.positions)

    @cached_property
    def singles(self) -> Singles:
        """What erasing each item alone does."""
        return singles(self)

    def decide_without_each(self) -> tuple[Tensor, Tensor]:
        """Decide without each item alone: labels [n], and which of them are near-ties [n]."""
        decision = self.logits_without_each.argmax(1)  # [n]
        return decision, torch.zeros_like(decision, dtype=torch.bool)


class LinearInstance(Instance):
    """An instance with a linear head, on the CPU: what the reference computes with.

    Items whose contribution, score or weight is not finite are listed in `bad`; their contribution
    and weight are replaced by zero.
    """

    def __init__(self, problem: Problem, index: int) -> None:
        items = slice(int(problem.offsets[index]), int(problem.offsets[index + 1]))
        given = problem.values[items].cpu()  # [n, H, D]
        head = problem.head_weight.cpu().double()  # [C, H, D]
        bias = problem.head_bias if problem.head_bias.ndim == 1 else problem.head_bias[index]  # [C]
        super().__init__(
            int(problem.ids[index]),
            given,
            problem.attention[items].cpu(),
            problem.is_scores,
            bias.cpu().double(),
        )
        values = given.double()  # [n, H, D]
        contributions, bad = contributions_of(given, head)  # [n, H, C], [n]
        self.bad = self.bad_attention | bad  # [n]
        self.contributions = contributions.masked_fill(self.bad[:, None, None], 0)  # [n, H, C]
        self.bad_bias = not bool(self.bias.isfinite().all())
        self.finite = not self.bad_bias and not bool(self.bad.any())
        # What sums are compared with: max_i ‖h_i‖ · max_c ‖W_c‖ + max_c |b_c|.
        longest = values.flatten(1).norm(dim=1).amax() if self.n else values.new_zeros(())
        steepest = head.flatten(1).norm(dim=1).amax()
        self.scale = float(longest * steepest + self.bias.abs().amax())

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
    def bias_label(self) -> int:
        """The decision where no mass survives, -1 where the bias is not finite."""
        return -1 if self.bad_bias else int(self.bias.argmax())

    @cached_property
    def margins(self) -> Tensor:
        """(s_y + b_y) − (s_c + b_c) of every item, without the weight: [n, C], one head only."""
        shifted = self.contributions[:, 0] + self.bias  # [n, C]
        return shifted[:, self.label, None] - shifted

    @cached_property
    def gradient(self) -> Tensor:
        """∂d/∂a_i = p_y Σ_{c≠y} p_c (s_{i,y} − s_{i,c}), d = max_c softmax(z)_c: [n, H]."""
        y = self.label
        ratios = (self.logits - self.logits[y]).exp()  # [C], p_c / p_y
        probabilities = ratios / ratios.sum()  # [C]
        difference = self.contributions[:, :, y, None] - self.contributions  # [n, H, C]
        return probabilities[y] * (difference * probabilities).sum(-1)

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
        """Mark the near-ties among compared sums [K, C] over survivors of mass [K]: [K]."""
        near = torch.stack([self.is_near_zero(row, mass) for row in sums.T], dim=1)  # [K, C]
        near[:, self.label] = False
        return near.any(1)

    def is_near_zero(self, sums: Tensor, mass: Tensor) -> Tensor:
        """Mark the near-ties among one class's sums [K] over survivors of mass [K]: [K]."""
        return (sums.abs() < NEAR_TIE_TOLERANCE * self.scale * mass) & (mass > 0)

    def logits_without(self, items: Tensor) -> Tensor:
        """Compute the logits over `items` [m] (positions) but one, for each: [m, C]."""
        logits = self.bias.repeat(len(items), 1)  # [m, C]
        for h in range(self.H):
            sums, mass = self.others(h, items, self.contributions[items, h])
            logits += average(sums, mass)
        return logits

    def decide_without_each(self) -> tuple[Tensor, Tensor]:
        """Decide without each item alone: labels [n], and which of them are near-ties [n]."""
        if self.H == 1:
            compared, mass = self.others(0, self.positions, self.margins)  # [n, C], [n]
            decision = decisions_from_margins(compared, mass, self.bias_label)  # [n]
        else:
            logits = self.logits_without_each  # [n, C]
            compared = logits[:, self.label, None] - logits  # [n, C]
            others = self.positive.sum() - self.positive.long()  # [n]
            mass = others.clamp(max=1).double()
            decision = logits.argmax(1)
        return decision, self.near_zero(compared, mass)


def average(sums: Tensor, mass: Tensor) -> Tensor:
    """Divide `sums` [K, C] by `mass` [K], zero where no mass survives."""
    return torch.where(mass[:, None] > 0, sums / mass[:, None], torch.zeros_like(sums))


def decisions_from_margins(sums: Tensor, mass: Tensor, bias_label: int) -> Tensor:
    """Find the class with the smallest sum, the lowest on ties: [K, C] and [K] to [K].

    The label's own sum is exactly zero, so it wins unless another class is below it, or as low
    with a lower number. Where no mass survives the bias decides.
    """
    return torch.where(mass > 0, sums.argmin(1), bias_label)
