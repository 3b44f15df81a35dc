"""By the gradient of the decision's probability with respect to the weight, signed."""

from __future__ import annotations

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import Ranking, by_key

RANKING = Ranking(
    name="gradient",
    kind=RankingKind.GRADIENT,
    doc="∂d/∂a_i of d = max_c softmax(z)_c, weights as free variables; summed over heads",
    order=by_key(lambda instance: instance.gradient.sum(1)),
)
