"""By attention: the score where scores are given, else the weight; the mean over heads."""

from __future__ import annotations

from torch import Tensor

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import OrderContext, Ranking, descending
from fastattnerase.reference.instance import Instance


def order(instance: Instance, context: OrderContext) -> Tensor:
    """Sort by descending attention; with one head as given, since weights may underflow to ties."""
    if instance.H == 1:
        return descending(instance.attention[:, 0])
    bad = instance.attention.isnan() | (instance.attention == float("inf"))  # [n, H]
    return descending(instance.weights.mean(1).masked_fill(bad.any(1), float("nan")))


RANKING = Ranking(
    name="attention",
    kind=RankingKind.ATTENTION,
    doc="a_i, by score where scores are given; with several heads mean_h a_{i,h}",
    order=order,
)
