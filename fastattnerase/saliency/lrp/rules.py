"""How one layer hands relevance down to its inputs: functions of tensors, in any float dtype."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fastattnerase.models.errors import ModelError
from fastattnerase.models.packed import gather, offsets_of, segment_pool


class Rule(NamedTuple):
    """The two numbers of the linear rule.

    Attributes:
        epsilon: `ε`, 0 or more, keeps the denominator away from 0 where an output is small.
        delta: `δ`, 1: biases go to the inputs, in equal shares, and relevance is conserved; 0:
            what biases take is lost.
    """

    epsilon: float = 1e-3
    delta: int = 1


def checked_rule(epsilon: float, delta: int) -> Rule:
    """Check the numbers of a rule.

    Raises:
        ModelError: `epsilon` is negative or not finite, `delta` is neither 0 nor 1.
    """
    if not (isinstance(epsilon, (int, float)) and math.isfinite(epsilon) and epsilon >= 0):
        raise ModelError(f"epsilon: given {epsilon!r}, needed a finite number, 0 or more")
    if delta not in (0, 1):
        raise ModelError(f"delta: given {delta!r}, needed 0 or 1")
    return Rule(float(epsilon), int(delta))


class Units(NamedTuple):
    """Relevance of a layer's outputs over the outputs, which each input takes its part of.

    Attributes:
        ratio: `[..., J]`, `s_j = R_j / (z_j + ε sign(z_j))`.
        share: `[..., 1]`, what every input gets of all units: `Σ_j (ε sign(z_j) + δ b_j) s_j / N`.
    """

    ratio: Tensor
    share: Tensor


def divide(relevance: Tensor, outputs: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Divide relevance by outputs kept away from 0: `s = R / (z + ε sign(z))`, `sign(0) = 1`.

    Where `ε = 0` an output of exactly 0 without relevance has the quotient 0; one with relevance
    has an infinite one.

    Args:
        relevance: `[..., J]`, `R`.
        outputs: `[..., J]`, `z`.
        rule: `ε`.

    Returns:
        `s` and `ε sign(z)`, each `[..., J]`.

    Example:
        >>> import torch
        >>> from fastattnerase.saliency.lrp.rules import Rule, divide
        >>> divide(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]), Rule(1.0))
        (tensor([1., 1.]), tensor([1., 1.]))
    """
    stabiliser = torch.full_like(outputs, rule.epsilon)  # [..., J]
    stabiliser.masked_fill_(outputs < 0, -rule.epsilon)
    ratio = relevance / (outputs + stabiliser)  # [..., J]
    if rule.epsilon == 0:
        ratio.masked_fill_(relevance == 0, 0.0)
    return ratio, stabiliser


def linear_units(
    relevance: Tensor, outputs: Tensor, bias: Tensor | None, inputs: int, rule: Rule
) -> Units:
    """Prepare the linear rule for the units `z_j = Σ_i x_i w_ij + b_j` of a layer.

    Args:
        relevance: `[..., J]`, of the outputs.
        outputs: `[..., J]`, `z`, before the activation.
        bias: `[J]` or `[..., J]`; None for none.
        inputs: `N`, how many inputs a unit has.
        rule: `ε` and `δ`.

    Returns:
        What `linear_inputs` needs, for each block of inputs.
    """
    ratio, spread = divide(relevance, outputs, rule)  # [..., J] both
    if bias is not None and rule.delta:
        spread += bias
    return Units(ratio, spread.mul_(ratio).sum(-1, keepdim=True).div_(inputs))


def linear_inputs(values: Tensor, weight: Tensor, units: Units) -> Tensor:
    """Give inputs their relevance by the linear rule.

    `R_i = Σ_j (x_i w_ij + (ε sign(z_j) + δ b_j) / N) / (z_j + ε sign(z_j)) R_j`.

    Args:
        values: `[..., I]`, `x`, all inputs of the units or some of them.
        weight: `[J, I]`, as torch has it.
        units: of `linear_units`.

    Returns:
        `[..., I]`.

    Source:
        Bach et al. 2015; Arras et al. 2017, equation 2, 2019.

    Example:
        Two inputs that give 3 and −1, a bias of 2, so that z = 4; relevance 8:

        >>> import torch
        >>> from fastattnerase.saliency.lrp.rules import Rule, linear_inputs, linear_units
        >>> z, bias, relevance = torch.tensor([4.0]), torch.tensor([2.0]), torch.tensor([8.0])
        >>> units = linear_units(relevance, z, bias, inputs=2, rule=Rule(epsilon=0.0, delta=1))
        >>> linear_inputs(torch.tensor([3.0, 1.0]), torch.tensor([[1.0, -1.0]]), units)
        tensor([8., 0.])
    """
    return (units.ratio @ weight).mul_(values).add_(units.share)


def sum_parts(
    relevance: Tensor, first: Tensor, second: Tensor, total: Tensor, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Part the relevance of a sum of two vectors: the linear rule with identity matrices.

    `z = p + q` is a layer of `N = 2 H` inputs, among which the share of `ε` is spread.

    Args:
        relevance: `[..., H]`, of the sum.
        first: `[..., H]`, `p`.
        second: `[..., H]`, `q`.
        total: `[..., H]`, `z`.
        rule: `ε`.

    Returns:
        The relevance of `p` and of `q`.

    Source: Arras et al. 2017, code.
    """
    ratio, share = linear_units(relevance, total, None, 2 * total.shape[-1], rule)
    return first * ratio + share, (second * ratio).add_(share)


def average(
    relevance: Tensor, values: Tensor, weights: Tensor, lengths: Tensor, rule: Rule
) -> Tensor:
    """Part the relevance of weighted sums among their items: all to the values, none to weights.

    `z_d = Σ_i a_i h_id` is linear in the items: `R_id = (a_i h_id + ε sign(z_d) / n) /
    (z_d + ε sign(z_d)) R_d`. Mean pooling has the weights `1 / n`.

    Args:
        relevance: `[B, D]`, of the sums.
        values: `[T, D]`, packed.
        weights: `[T]`.
        lengths: `[B]`, int64, sum `T`.
        rule: `ε`.

    Returns:
        `[T, D]`.

    Example:
        >>> import torch
        >>> from fastattnerase.saliency.lrp.rules import Rule, average
        >>> average(torch.tensor([[4.0]]), torch.tensor([[1.0], [3.0]]), torch.full((2,), 0.5),
        ...         torch.tensor([2]), Rule(0.0))
        tensor([[1.],
                [3.]])
    """
    pooled = segment_pool(values, weights, lengths)  # [B, D]
    ratio, spread = divide(relevance, pooled, rule)  # [B, D] both
    spread = spread * ratio / lengths.clamp(min=1)[:, None]  # [B, D]
    sequence = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)  # [T]
    parts = gather(ratio, sequence).mul_(values).mul_(weights[:, None])  # [T, D]
    return parts.add_(gather(spread, sequence))


def largest(relevance: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Give the relevance of maxima to the largest item, feature by feature; the first on ties.

    Args:
        relevance: `[B, D]`, of `max_i h_id`.
        values: `[T, D]`, packed.
        lengths: `[B]`, int64, sum `T`.

    Returns:
        `[T, D]`.

    Example:
        >>> import torch
        >>> from fastattnerase.saliency.lrp.rules import largest
        >>> largest(torch.tensor([[5.0]]), torch.tensor([[1.0], [2.0], [2.0]]), torch.tensor([3]))
        tensor([[0.],
                [5.],
                [0.]])
    """
    found = torch.zeros_like(values)  # [T, D]
    if not len(values):
        return found
    columns = torch.arange(int(lengths.max()), device=lengths.device)  # [N]
    real = columns < lengths[:, None]  # [B, N]
    place = (offsets_of(lengths)[:-1, None] + columns).masked_fill(~real, 0)  # [B, N]
    rows = gather(values, place).masked_fill(~real[..., None], -torch.inf)  # [B, N, D]
    # argmax may give any of several: the first is where a maximum first stands.
    top = (rows == rows.amax(1, keepdim=True)).to(torch.uint8).argmax(1)  # [B, D]
    there = lengths > 0  # [B]
    item = (offsets_of(lengths)[:-1, None] + top)[there]  # [b, D]
    return found.scatter_add(0, item, relevance[there])
