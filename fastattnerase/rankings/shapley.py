"""By what the item adds to the label's lead, averaged over all orders in which items can join."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.rankings.base import Ranking, RankingError, by_key
from fastattnerase.reference.instance import Instance, LinearInstance


def key(instance: Instance) -> Tensor:
    """Shapley values of the label's logit less the runner-up's, or of the output: [n]."""
    if not isinstance(instance, LinearInstance) or instance.H > 1:
        raise RankingError(
            "ranking 'shapley': given a callable head or several attention heads, needed a linear "
            "head and one attention head"
        )
    terms = instance.contributions[:, 0]  # [n, C]
    if instance.C > 1:
        rivals = instance.logits.clone()
        rivals[instance.label] = -torch.inf
        terms = terms[:, instance.label, None] - terms[:, [int(rivals.argmax())]]  # [n, 1]
    logs = instance.scores[:, 0] if instance.is_scores else instance.weights[:, 0].log()  # [n]
    offsets = torch.tensor([0, instance.n])
    values: Tensor = torch.ops.fastattnerase.shapley(
        offsets, torch.zeros(1, dtype=torch.int64), logs, terms, 1e-9, "auto"
    )[0]
    return values[:, 0]


RANKING = Ranking(
    name="shapley",
    kind=None,
    doc="Shapley value of item i of the label's lead over the runner-up",
    order=by_key(key),
)
