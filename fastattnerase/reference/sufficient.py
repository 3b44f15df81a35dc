"""A smallest set of items that alone gives the label.

One item does where all its margins win: a weighted mean never exceeds its largest member, so that
with two classes there is always one. Otherwise every pair is tried, up to `PAIRS` items, and beyond
two the set is built greedily; what was tried in full is the lower bound.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PAIRS = 2048  # items up to which every pair is tried
STEPS = 256  # of the greedy search


class Sufficient(NamedTuple):
    """The chosen items, no smaller set than `least` of them suffices; none where no set does."""

    chosen: list[int]
    least: int
    near: bool


class _Items:
    """Items with weight, and which sums of their margins win."""

    def __init__(self, weights: Tensor, margins: Tensor, wins: Tensor) -> None:
        self.own = (weights > 0).nonzero()[:, 0]  # [m]
        self.margins = margins[self.own]  # [m, K], per unit of weight
        self.weights = weights[self.own]  # [m]
        self.terms = self.weights[:, None] * self.margins  # [m, K]
        self.wins = wins > 0  # [K], where the rival wins a tie

    def win(self, sums: Tensor) -> Tensor:
        """Say which sums [M, K] are ahead of every rival: [M]."""
        return torch.where(self.wins, sums > 0, sums >= 0).all(1)

    def sum(self, chosen: list[int]) -> Tensor:
        """Sum the margins of the chosen, in the order in which they stand: [1, K]."""
        sums = self.terms.new_zeros(self.terms.shape[1])
        for j in chosen:
            sums = sums + self.terms[j]
        return sums[None]


def sufficient(weights: Tensor, margins: Tensor, wins: Tensor, tolerance: float) -> Sufficient:
    """Search the items of weights [n] and margins [n, K] over rivals; `wins` [K] at ties."""
    items = _Items(weights, margins, wins)
    if not len(items.own):
        return Sufficient([], -1, False)
    least = items.margins.amin(1)  # [m]
    near = abs(float(least.max())) < tolerance
    alone = items.win(items.margins)  # [m]
    if bool(alone.any()):
        best = int(least.masked_fill(~alone, -torch.inf).argmax())
        return Sufficient([int(items.own[best])], 1, near)
    if len(items.own) < 2:
        return Sufficient([], -1, near)
    all_pairs = margins.shape[1] > 1 and len(items.own) <= PAIRS
    chosen = _pair(items) if all_pairs else []
    if not chosen:
        chosen = _cover(items)
        if not bool(items.win(items.sum(chosen))):
            return Sufficient([], -1, True)  # the whole is a tie
    mass = float(items.weights[chosen].sum())
    near = near or abs(float(items.sum(chosen).min())) < tolerance * mass
    bound = 3 if all_pairs and len(chosen) > 2 else 2
    return Sufficient([int(items.own[j]) for j in chosen], bound, near)


def _pair(items: _Items) -> list[int]:
    """Find the pair with the largest least mean of those that suffice; none where none does."""
    best, most = [], -torch.inf
    for x in range(len(items.own) - 1):
        sums = items.terms[x] + items.terms[x + 1 :]  # [M, K]
        mass = items.weights[x] + items.weights[x + 1 :]  # [M]
        mean = (sums.amin(1) / mass).masked_fill(~items.win(sums), -torch.inf)  # [M]
        at = int(mean.argmax())
        if float(mean[at]) > most:
            best, most = [x, x + 1 + at], float(mean[at])
    return best


def _cover(items: _Items) -> list[int]:
    """Build a set: a prefix by a min_c m or, where that is smaller, greedily; spare what it can."""
    ranked = (items.weights * items.margins.amin(1)).argsort(descending=True, stable=True)  # [m]
    wins = items.win(items.terms[ranked].cumsum(0))  # [m]
    size = int(wins.long().argmax()) + 1 if bool(wins.any()) else len(ranked)
    chosen = ranked[:size].tolist()
    steps: list[int] = []
    sums = items.terms.new_zeros(1, items.terms.shape[1])  # [1, K]
    taken = torch.zeros(len(items.own), dtype=torch.bool)
    while len(steps) < min(size - 1, STEPS):
        least = (sums + items.terms).amin(1).masked_fill(taken, -torch.inf)  # [m]
        best = int(least.argmax())
        taken[best] = True
        sums = sums + items.terms[best]
        steps.append(best)
        if bool(items.win(sums)):
            chosen = steps
            break
    for j in reversed(range(len(chosen) if len(chosen) <= STEPS else 0)):
        others = chosen[:j] + chosen[j + 1 :]
        if others and bool(items.win(items.sum(others))):
            chosen = others
    return chosen
