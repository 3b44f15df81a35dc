"""Logits under other weights of the same items (engine contract, section 3b)."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.problem import ReweighedProblem
from fastattnerase.reference.instance import average, contributions_of


def reweighed(problem: ReweighedProblem, logits: Tensor) -> None:
    """Fill `logits` [R, B, C]; all tensors are on the CPU. Each item is projected once."""
    head = problem.head_weight.double()  # [C, H, D]
    for index in range(len(problem.offsets) - 1):
        items = slice(int(problem.offsets[index]), int(problem.offsets[index + 1]))
        bias = problem.head_bias if problem.head_bias.ndim == 1 else problem.head_bias[index]
        contributions, bad = contributions_of(problem.values[items], head)  # [n, H, C], [n]
        weights = problem.weights[:, items].double()  # [R, n, H]
        found = reweighed_instance(contributions, weights, bias.double())  # [R, C]
        if bool(bad.any()) or not bool(bias.isfinite().all()):
            found.fill_(torch.nan)
        logits[:, index] = found.to(logits.dtype)


def reweighed_instance(contributions: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """Average contributions [n, H, C] with each row of weights [R, n, H]: logits [R, C].

    A row without mass has the bias [C]; one with a weight that is negative or not finite has NaN.
    """
    R, n, H = weights.shape
    unusable = (~weights.isfinite() | (weights < 0)).any(2).any(1)  # [R]
    logits = bias.repeat(R, 1)  # [R, C]
    if n:
        for h in range(H):
            # Sums in position order, as of the original decision.
            total = weights[:, :, h].cumsum(1)[:, -1:]  # [R, 1]
            own = torch.where(total > 0, weights[:, :, h] / total, 0)  # [R, n]
            sums = (own[:, :, None] * contributions[:, h]).cumsum(1)[:, -1]  # [R, C]
            logits += average(sums, own.cumsum(1)[:, -1])
    logits[unusable] = torch.nan
    return logits
