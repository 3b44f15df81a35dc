"""Scores of the last attention layer's items: weights, and derivatives by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.data.dataset import Dataset
from fastattnerase.models.packed import segment_pool, segment_softmax
from fastattnerase.saliency.context import MethodContext


class LayerItems(NamedTuple):
    """The items of one document.

    Attributes:
        weights: `[n]`, float64, sum 1.
        gradient: `[n]`, float64, `∂p_c / ∂a_i` with the weights as free variables.
        target: the class `c`.
    """

    weights: Tensor
    gradient: Tensor
    target: int


def layer_items(context: MethodContext, dataset: Dataset, method: str) -> Iterator[LayerItems]:
    """Compute weights and derivatives of the last attention layer, as the engine defines them.

    Args:
        context: the model and the class.
        dataset: the documents.
        method: the name of the method that asks, for errors.

    Yields:
        For each document, in order.
    """
    model = context.attention_classifier(method)
    place = 0
    for batch, logits in model.attention_outputs(dataset, batch_tokens=context.words):
        documents = [(b, dataset[b]) for b in range(place, place + len(batch))]
        place += len(batch)
        target = context.targets(logits, documents)  # [b]
        weights, gradient = _weights_and_gradient(batch, target)  # [t]
        lengths = batch.lengths.tolist()
        yield from map(
            LayerItems,
            torch.split(weights.cpu(), lengths),
            torch.split(gradient.cpu(), lengths),
            target.tolist(),
        )


def _weights_and_gradient(batch: AttentionBatch, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `a_i` and `∂p_c / ∂a_i = p_c Σ_{k≠c} p_k (s_{i,c} − s_{i,k})`: `[t]` each."""
    values = batch.values.double()  # [t, D]
    if batch.scores is not None:
        weights = segment_softmax(batch.scores.double(), batch.lengths)  # [t]
    else:
        assert batch.weights is not None
        weights = batch.weights.double()  # [t]
    with torch.enable_grad():
        free = weights.detach().requires_grad_()  # [t]
        pooled = segment_pool(values, free, batch.lengths)  # [b, D]
        if batch.head is None:
            weight, bias = batch.linear_head  # [C, 1, D], [C] or [b, C]
            logits = pooled @ weight[:, 0].double().T + bias.double()  # [b, C]
        else:
            rows = torch.arange(len(batch), device=pooled.device)
            logits = batch.call_head(pooled[:, None], rows).double()  # [b, C]
        if len(free) == 0:
            return weights, torch.zeros_like(weights)
        [gradient] = torch.autograd.grad(logits, free, slope_of(logits.detach(), target))
    return weights, gradient


def slope_of(logits: Tensor, target: Tensor) -> Tensor:
    """Compute `∂p_c / ∂z`, from differences of logits: `1 − p_c` would cancel where one is sure.

    Args:
        logits: `[b, C]`.
        target: `[b]`, int64, the class `c` of each.

    Returns:
        `[b, C]`: `−p_c p_k`, and `p_c Σ_{k≠c} p_k` of class `c`.
    """
    column = target[:, None]  # [b, 1]
    ratios = (logits - logits.gather(1, column)).exp()  # [b, C], p_k / p_c
    p = ratios / ratios.sum(1, keepdim=True)  # [b, C]
    own = p.gather(1, column)  # [b, 1]
    others = p.scatter(1, column, 0.0)  # [b, C]
    slope = -own * others  # [b, C]
    return slope.scatter(1, column, own * others.sum(1, keepdim=True))
