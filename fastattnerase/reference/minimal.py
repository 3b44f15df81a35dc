"""The smallest set of items whose erasure changes the decision (engine contract, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.reference.instance import LinearInstance, decisions_from_margins


@dataclass
class Minimal:
    """The set is the first `size` items of `order`; -1 where no set flips."""

    size: int
    flip_label: int
    order: Tensor  # [n]
    near_tie: bool


def margin_order(instance: LinearInstance, c: int) -> Tensor:
    """Sort items by descending a_i [(s_y + b_y) − (s_c + b_c)], stable, weight zero last: [n]."""
    margin = instance.margins[:, c]  # [n]
    if instance.underflow[0]:
        # a_i underflows, so the sort is by sign, then by log |a_i m_i| = score + log |m_i|.
        size = instance.scores[:, 0] + margin.abs().log()  # [n]
        keys = torch.where(margin > 0, size, -size).where(margin != 0, 0.0)
        by_size = keys.argsort(descending=True, stable=True)
        sign = margin.sign().masked_fill(~instance.positive, -2)
        return by_size[sign[by_size].argsort(descending=True, stable=True)]
    keys = (instance.weights[:, 0] * margin).masked_fill(~instance.positive, -torch.inf)
    return keys.argsort(descending=True, stable=True)


def minimal(instance: LinearInstance) -> Minimal:
    """Find the exact minimal flipping set; one attention head only."""
    y = instance.label
    classes = [c for c in range(instance.C) if c != y]
    if not instance.finite:
        return Minimal(-1, -1, torch.arange(instance.n), False)
    if not instance.has_mass or not classes:
        by_position = instance.positive.long().argsort(descending=True, stable=True)
        return Minimal(-1, -1, by_position, False)
    best: tuple[int, int] | None = None  # size, class
    tails = {}
    for c in classes:
        order = margin_order(instance, c)
        sums, mass = instance.tail(0, order, instance.margins[:, c : c + 1])  # [n + 1, 1]
        tails[c] = order, sums[:, 0], mass
        own = (sums[:, 0] <= 0) if c < y else (sums[:, 0] < 0)  # [n + 1]
        flips = own & (mass > 0)
        flips[0] = False
        if bool(flips.any()):
            candidate = int(flips.long().argmax()), c
            best = candidate if best is None else min(best, candidate)
    total = int(instance.positive.sum())
    last = best[0] if best else total
    near_tie = any(
        bool(instance.is_near_zero(sums[: last + 1], mass[: last + 1]).any())
        for _, sums, mass in tails.values()
    )
    if best is not None:
        size, c = best
        order = tails[c][0]
        sums, mass = instance.tail(0, order, instance.margins)  # [n + 1, C]
        label = decisions_from_margins(sums, mass, instance.bias_label)[size]
        return Minimal(size, int(label), order, near_tie)
    at_start = (instance.weights * instance.margins).cumsum(0)[-1]  # [C]
    runner_up = min(classes, key=lambda c: (float(at_start[c]), c))
    order = tails[runner_up][0]
    if instance.bias_label != y:
        return Minimal(total, instance.bias_label, order, near_tie)
    return Minimal(-1, -1, order, near_tie)
