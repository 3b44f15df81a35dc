"""Erasing every item alone (engine contract, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fastattnerase.reference.divergence import js_divergence, kl_divergence

if TYPE_CHECKING:
    from fastattnerase.reference.instance import Instance
else:  # imported where they are used; hints that are read at run time say Any
    Instance = Any


@dataclass
class Singles:
    """Results for every item of an instance."""

    flip_label: Tensor  # [n], int64, -1 where the decision stays
    js: Tensor  # [n]
    kl: Tensor  # [n]
    drop: Tensor  # [n], of the label's probability
    near_tie: bool


def singles(instance: Instance) -> Singles:
    """Erase each item alone: z_{-i} = Σ_{j≠i} a_j s_j / Σ_{j≠i} a_j + b."""
    never = instance.positions.new_full((instance.n,), -1)  # [n]
    if not instance.finite or not instance.has_mass:
        same = instance.weights.new_full((instance.n,), 0.0 if instance.finite else float("nan"))
        return Singles(never, same, same, same, False)
    y, logits = instance.label, instance.logits_without_each  # [n, C]
    decision, near = instance.decide_without_each()  # [n], [n]
    return Singles(
        flip_label=decision.where(decision != y, never),
        js=js_divergence(logits, instance.logits),
        kl=kl_divergence(logits, instance.logits),
        drop=instance.logits.softmax(0)[y] - logits.softmax(1)[:, y],
        near_tie=bool(near.any()),
    )
