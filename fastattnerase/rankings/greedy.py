"""Greedily: at each step the item whose erasure brings the decision closest to a flip."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import OrderContext, Ranking
from fastattnerase.reference.instance import Instance


def order(instance: Instance, context: OrderContext) -> Tensor:
    """Take the smallest min_{c≠y} (z_y − z_c) after erasure, ties by position, n times."""
    if not instance.finite or instance.C == 1:
        return instance.positions
    y = instance.label
    left, taken = instance.positions, instance.positions[:0]  # [m], [n - m]
    while len(left):
        logits = instance.logits_without(left)  # [m, C]
        lead = logits[:, y, None] - logits  # [m, C]
        lead[:, y] = torch.inf
        step = int(lead.amin(1).argmin())
        taken = torch.cat([taken, left[step : step + 1]])
        left = torch.cat([left[:step], left[step + 1 :]])
    return taken


RANKING = Ranking(
    name="greedy",
    kind=RankingKind.GREEDY,
    doc="at each step the item whose erasure leaves the smallest min_{c≠y} (z_y − z_c)",
    order=order,
)
