"""Classifiers of pooled vectors as linear heads: which logits each attention branch feeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fastattnerase.tensor_checks import shape_of

# What does nothing to a vector when a model is evaluated.
_NOTHING = (nn.Identity, nn.Dropout, nn.AlphaDropout, nn.Flatten)
# What keeps the largest of several logits the largest, or the sign of one.
_MONOTONE = (nn.Sigmoid, nn.Softmax, nn.LogSoftmax, nn.LogSigmoid)

Classifier = nn.Module | Sequence[nn.Module] | Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LinearPart:
    """A linear classifier of K pooled vectors.

    Attributes:
        weight: [C, K, H].
        bias: [C].
        a_branch_a_class: whether logit c reads branch c alone.
    """

    weight: Tensor
    bias: Tensor
    a_branch_a_class: bool = False

    def contributions(self, vectors: Tensor) -> Tensor:
        """Project vectors [m, H] to what they add to the logits: [m, K, C] or [m, C, 1]."""
        weight = self.weight.to(vectors.dtype)  # [C, K, H]
        if self.a_branch_a_class:
            return (vectors @ weight.diagonal(dim1=0, dim2=1)).unsqueeze(2)  # [m, C, 1]
        C, K, H = weight.shape
        return (vectors @ weight.reshape(C * K, H).T).reshape(-1, C, K).transpose(1, 2)

    def head(self, binary: bool) -> tuple[Tensor, Tensor]:
        """Give the engine's head on contributions: weight [C', K, V] and bias [C'].

        Args:
            binary: whether one logit `z` stands for two classes, of logits [0, z].
        """
        C, K, _ = self.weight.shape
        like = self.bias
        if self.a_branch_a_class:
            weight = torch.eye(C, dtype=like.dtype).unsqueeze(2)  # [C, C, 1]
        else:
            weight = torch.eye(C, dtype=like.dtype).unsqueeze(1).repeat(1, K, 1)  # [C, K, C]
        if not (binary and C == 1):
            return weight, like
        return torch.cat([weight * 0, weight]), torch.cat([like * 0, like])


def linear_part(classifier: Any, K: int | None) -> LinearPart | None:
    """Read a classifier as a linear one; None where it is another function.

    Args:
        classifier: a module, a list of them (one logit each, of its own branch), or a function.
        K: branches of the attention; None where that is not known yet.

    Returns:
        The linear part; K of its weight is 1 where K is not known.

    Raises:
        ValueError: a list that does not have a linear layer with one output for each branch.
    """
    if isinstance(classifier, (list, tuple, nn.ModuleList)):
        parts = [_layer(one) for one in classifier]
        linear = [one for one in parts if one is not None and one.out_features == 1]
        if not linear or len(linear) != len(parts) or K not in (None, len(parts)):
            raise ValueError(
                f"classifier: given a list of {len(parts)}, needed a linear layer with one output "
                f"for each of {'the' if K is None else K} attention branches"
            )
        C, H = len(linear), linear[0].in_features
        weight = linear[0].weight.new_zeros(C, C, H)
        for c, one in enumerate(linear):
            weight[c, c] = one.weight.detach()[0]
        return LinearPart(weight, torch.cat([_bias(one) for one in linear]), True)
    layer = _layer(classifier)
    if layer is None:
        return None
    C, wide = layer.weight.shape
    branches = K or 1
    if wide % branches:
        raise ValueError(
            f"classifier: given {shape_of(layer.weight)}, needed [C, {branches} H] for {branches} "
            "attention branches"
        )
    return LinearPart(layer.weight.detach().reshape(C, branches, -1), _bias(layer))


def _layer(module: Any) -> nn.Linear | None:
    """Find the one linear layer of a classifier, what evaluates to nothing around it left out."""
    if isinstance(module, nn.Linear):
        return module
    if isinstance(module, nn.Sequential):
        rest = [one for one in module if not isinstance(one, _NOTHING)]
        while rest and isinstance(rest[-1], _MONOTONE):
            rest.pop()
        return _layer(rest[0]) if len(rest) == 1 else None
    # Such as torchmil's LazyLinear, a module that holds one and calls it.
    held = [*module.children()] if isinstance(module, nn.Module) else []
    wrapped = len(held) == 1 and type(module).__name__ == "LazyLinear"
    return _layer(held[0]) if wrapped else None


def _bias(layer: nn.Linear) -> Tensor:
    if layer.bias is None:
        return layer.weight.detach().new_zeros(layer.out_features)
    return layer.bias.detach()
