"""By the gradient of the decision's probability with respect to the weight, signed."""

from __future__ import annotations

from torch import Tensor

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import Ranking, by_key
from fastattnerase.reference.instance import Instance


def gradient(instance: Instance) -> Tensor:
    """∂d/∂a_i = p_y Σ_{c≠y} p_c (s_{i,y} − s_{i,c}), d = max_c softmax(z)_c: [n, H]."""
    y = instance.label
    ratios = (instance.logits - instance.logits[y]).exp()  # [C], p_c / p_y
    probabilities = ratios / ratios.sum()  # [C]
    difference = instance.contributions[:, :, y, None] - instance.contributions  # [n, H, C]
    return probabilities[y] * (difference * probabilities).sum(-1)


RANKING = Ranking(
    name="gradient",
    kind=RankingKind.GRADIENT,
    doc="∂d/∂a_i of d = max_c softmax(z)_c, weights as free variables; summed over heads",
    order=by_key(lambda instance: gradient(instance).sum(1)),
)
