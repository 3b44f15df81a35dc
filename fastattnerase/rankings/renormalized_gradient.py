"""By the first-order drop of the decision's probability under erase-and-renormalise."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import Ranking, by_key
from fastattnerase.reference.instance import Instance, average


def first_order_drop(instance: Instance) -> Tensor:
    """Sum a_i (g_i − ḡ_i) over heads, ḡ_i the weighted mean of g over the others or 0: [n]."""
    slopes = instance.gradient  # [n, H]
    drop = torch.zeros_like(slopes[:, 0])  # [n]
    for h in range(instance.H):
        sums, mass = instance.others(h, instance.positions, slopes[:, h, None])
        drop += instance.weights[:, h] * (slopes[:, h] - average(sums, mass)[:, 0])
    return drop


RANKING = Ranking(
    name="renormalized_gradient",
    kind=RankingKind.RENORMALIZED_GRADIENT,
    doc="a_i (g_i − ḡ_i), the first-order drop of d under erasing and renormalising",
    order=by_key(first_order_drop),
)
