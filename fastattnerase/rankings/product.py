"""By gradient times attention, signed."""

from __future__ import annotations

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import Ranking, by_key

RANKING = Ranking(
    name="product",
    kind=RankingKind.PRODUCT,
    doc="a_i ∂d/∂a_i, summed over heads",
    order=by_key(lambda instance: (instance.weights * instance.gradient).sum(1)),
)
