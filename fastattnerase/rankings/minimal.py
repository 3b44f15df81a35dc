"""The exact minimal flipping set first, then the rest by the same margin."""

from __future__ import annotations

from torch import Tensor

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import OrderContext, Ranking
from fastattnerase.reference.instance import Instance, LinearInstance
from fastattnerase.reference.minimal import minimal


def order(instance: Instance, context: OrderContext) -> Tensor:
    """Take the order of the minimal set's margins."""
    assert isinstance(instance, LinearInstance)  # `plan_rankings` refuses callable heads
    return minimal(instance).order


RANKING = Ranking(
    name="minimal",
    kind=RankingKind.MINIMAL,
    doc="the smallest set whose erasure flips, then the rest by the same margin",
    order=order,
)
