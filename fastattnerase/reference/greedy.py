"""Greedy removal: at each step the item whose erasure leaves the least margin over any rival."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.exact_problems import GreedyOutputs, GreedyProblem
from fastattnerase.reference.instance import average
from fastattnerase.reference.sums import sums_over_others


def greedy_instance(problem: GreedyProblem, out: GreedyOutputs, b: int) -> None:
    """Fill what belongs to instance `b`; all tensors are on the CPU."""
    items = slice(int(problem.offsets[b]), int(problem.offsets[b + 1]))
    weights, margins = problem.weights[items], problem.margins[items]  # [n], [n, K]
    empty, wins = problem.empty[b], problem.wins[b] > 0  # [K]
    n = len(weights)
    steps = n if problem.steps < 0 else min(problem.steps, n)
    left, taken, certain = torch.arange(n), list[int](), -1
    while len(taken) < steps:
        least = leads(weights[left], margins[left], empty).amin(1)  # [m]
        step = int(least.argmin())
        apart = least - least[step]
        apart[step] = torch.inf
        if certain < 0 and float(apart.min()) < float(problem.tolerance[b]):
            certain = len(taken)
        taken.append(int(left[step]))
        left = torch.cat([left[:step], left[step + 1 :]])
        if problem.until_flip and bool(_flipped(weights[left], margins[left], empty, wins)):
            break
    out.order[items] = torch.cat([torch.tensor(taken, dtype=torch.int64), left])
    out.removed[b] = len(taken)
    out.certain[b] = len(taken) if certain < 0 else certain


def leads(weights: Tensor, margins: Tensor, empty: Tensor) -> Tensor:
    """Compute the margins over each rival without each item, or those without mass: [m, K]."""
    sums, mass = sums_over_others(weights, margins)  # [m, K], [m]
    return torch.where(mass[:, None] > 0, average(sums, mass), empty)


def _flipped(weights: Tensor, margins: Tensor, empty: Tensor, wins: Tensor) -> Tensor:
    """Say whether the survivors are another class's."""
    alive = bool((weights > 0).any())
    lead = (weights[:, None] * margins).cumsum(0)[-1] if alive else empty  # [K]
    return (torch.where(wins, lead <= 0, lead < 0)).any()
