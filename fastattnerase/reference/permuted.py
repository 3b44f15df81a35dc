"""What permuting an instance's weights does to its output (engine contract, section 3b)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fastattnerase.problem import PermutedOutputs, Problem
from fastattnerase.reference.instance import LinearInstance
from fastattnerase.status import Status


def permute_instance(
    instance: LinearInstance, draw: Callable[[int], Tensor], out: PermutedOutputs, index: int
) -> None:
    """Compare the output under each permutation of the weights with the original one.

    `draw` gives permutation `p` as an order [n].
    """
    if not instance.finite:
        write(out, index, -1, torch.nan, instance.status, torch.nan, -1)
        return
    y, status, P, flips = instance.label, instance.status, len(out.tvd), 0
    original = instance.logits.softmax(0)  # [C]
    tvd, one = original.new_zeros(P), original.new_ones(1)
    for p in range(P):
        logits = permuted_logits(instance, draw(p))  # [C]
        tvd[p] = (logits.softmax(0) - original).abs().sum() / 2
        flips += int(logits.argmax()) != y
        if instance.has_mass and bool(instance.near_zero((logits[y] - logits)[None], one).any()):
            status |= Status.NEAR_TIE
    write(out, index, y, original, status, tvd, flips)


def permuted_logits(instance: LinearInstance, order: Tensor) -> Tensor:
    """Compute `Σ_i a_{π(i)} s_i + b`, the order [n] being π: [C].

    Summed as the original logits are, in position order, so that equal weights change nothing.
    """
    logits = instance.bias.clone()
    for h in range(instance.H):
        weights = instance.weights[:, h]  # [n]
        mass = weights.cumsum(0)[-1:]  # [1]
        if bool((mass > 0).any()):
            weighted = weights[order, None] * instance.contributions[:, h]  # [n, C]
            logits += weighted.cumsum(0)[-1] / mass
    return logits


def fill_invalid(problem: Problem, out: PermutedOutputs, index: int) -> None:
    """Write -1 and NaN everywhere and say why."""
    single = int(problem.offsets[index + 1] - problem.offsets[index]) == 1
    status = Status.INVALID | (Status.SINGLE if single else Status(0))
    write(out, index, -1, torch.nan, status, torch.nan, -1)


def write(
    out: PermutedOutputs,
    index: int,
    label: int,
    probabilities: Tensor | float,
    status: Status,
    tvd: Tensor | float,
    flips: int,
) -> None:
    """Write the results of one instance: probabilities [C] and tvd [P], or NaN for all of them."""
    out.label[index], out.status[index], out.flips[index] = label, int(status), flips
    out.probabilities[index] = probabilities
    out.tvd[:, index] = tvd
