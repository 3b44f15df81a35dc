"""Erasing every item alone (engine contract, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.reference.divergence import js_divergence, kl_divergence
from fastattnerase.reference.instance import Instance, decisions_from_margins


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
    n = instance.n
    never = torch.full((n,), -1)
    if not instance.finite:
        nan = torch.full((n,), torch.nan, dtype=torch.float64)
        return Singles(never, nan, nan, nan, False)
    if not instance.has_mass:
        zero = torch.zeros(n, dtype=torch.float64)
        return Singles(never, zero, zero, zero, False)
    items = torch.arange(n)
    logits = instance.logits_without(items)  # [n, C]
    if instance.H == 1:
        compared, mass = instance.others(0, items, instance.margins)  # [n, C], [n]
        decision = decisions_from_margins(compared, mass, instance.bias_label)
    else:
        compared = logits[:, instance.label, None] - logits  # [n, C]
        others = instance.positive.sum() - instance.positive.long()  # [n]
        mass = others.clamp(max=1).double()
        decision = logits.argmax(1)
    y = instance.label
    drop = instance.logits.softmax(0)[y] - logits.softmax(1)[:, y]  # [n]
    return Singles(
        flip_label=torch.where(decision != y, decision, never),
        js=js_divergence(logits, instance.logits),
        kl=kl_divergence(logits, instance.logits),
        drop=drop,
        near_tie=bool(instance.near_zero(compared, mass).any()),
    )
