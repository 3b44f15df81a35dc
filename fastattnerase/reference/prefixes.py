"""Erasing every prefix of one order of one instance (engine contract, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.reference.divergence import js_divergence, kl_divergence
from fastattnerase.reference.instance import LinearInstance, average, decisions_from_margins
from fastattnerase.reference.sums import suffix_sums


def label_probability(logits: Tensor, label: Tensor) -> Tensor:
    """Find the probabilities of labels [K] under logits [K, C], NaN where a label is -1: [K]."""
    own = logits.softmax(1).gather(1, label.clamp(min=0)[:, None])[:, 0]  # [K]
    return own.masked_fill(label < 0, torch.nan)


# Curves that follow from the logits [K, C] of points, the original's [C] or [K, C] and its label
# at each [K].
CURVES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "js": lambda logits, original, label: js_divergence(logits, original),
    "kl": lambda logits, original, label: kl_divergence(logits, original),
    "label_prob": lambda logits, original, label: label_probability(logits, label),
    "logits": lambda logits, original, label: logits,
}


@dataclass
class Prefixes:
    """The curves of one order, `n + 1` points, and what is read off them."""

    decision: Tensor  # [n + 1], int64, -1 where a survivor is not finite
    logits: Tensor  # [n + 1, C]
    mass: Tensor  # [n + 1], of the survivors, in original weights
    first_flip: int
    flip_label: int
    removed_mass: float
    near_tie: bool


def erase(instance: LinearInstance, order: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find decision, logits, mass and near-tie of every prefix of `order` [n], erased."""
    n = instance.n
    logits = instance.bias.repeat(n + 1, 1)  # [n + 1, C]
    mass = suffix_sums(instance.weights[order].mean(1))  # [n + 1], the mean over heads
    for h in range(instance.H):
        sums, head_mass = instance.tail(h, order, instance.contributions[:, h])
        logits += average(sums, head_mass)
    if not instance.finite:
        if instance.H == 1:
            scores = sums + head_mass[:, None] * instance.bias  # [n + 1, C]
            decision = torch.where(head_mass > 0, scores.argmax(1), instance.bias_label)
        else:
            decision = logits.argmax(1)
        survives = suffix_sums(instance.bad[order].long()) > 0  # [n + 1]
        if instance.bad_bias:
            survives[:] = True
        logits[survives] = torch.nan
        return (
            decision.masked_fill(survives, -1),
            logits,
            mass,
            torch.zeros(n + 1, dtype=torch.bool),
        )
    if instance.H == 1:
        compared, compared_mass = instance.tail(0, order, instance.margins)
        decision = decisions_from_margins(compared, compared_mass, instance.bias_label)
    else:
        compared = logits[:, instance.label, None] - logits  # [n + 1, C]
        compared_mass = suffix_sums(instance.positive[order].long()).clamp(max=1).double()
        decision = logits.argmax(1)
    near = instance.near_zero(compared, compared_mass)
    decision[0] = instance.label
    logits[0] = instance.logits
    return decision, logits, mass, near


def prefixes(instance: LinearInstance, order: Tensor, keep: bool) -> Prefixes:
    """Erase (or keep) every prefix of `order` [n] and find the first flip."""
    decision, logits, mass, near = erase(instance, order.flip(0) if keep else order)
    if keep:  # the top k are what is left after erasing n - k of the reversed order
        decision, logits, mass, near = (x.flip(0) for x in (decision, logits, mass, near))
    result = Prefixes(decision, logits, mass, -1, -1, float("nan"), False)
    if not instance.finite or not instance.has_mass:
        return result
    flips = (decision == instance.label) == keep  # [n + 1]
    flips[0] = False
    last = instance.n
    if bool(flips.any()):
        last = int(flips.long().argmax())
        removed = order[last:] if keep else order[:last]
        result.first_flip = last
        result.flip_label = int(decision[last])
        result.removed_mass = float(suffix_sums(instance.weights[removed].mean(1))[0])
    result.near_tie = bool(near[: last + 1].any())
    return result
