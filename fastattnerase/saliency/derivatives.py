"""Derivatives of the output by the words' vectors, batch after batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset, collate
from fastattnerase.models.errors import ModelError
from fastattnerase.saliency.context import MethodContext


class Derivatives(NamedTuple):
    """What one document has.

    Attributes:
        words: `[n, E]`, the vectors of its words, in the model's dtype.
        gradient: `[n, E]`, `∂f_c / ∂x`.
        target: the class `c`.
        output: `f_c(x)`.
    """

    words: Tensor
    gradient: Tensor
    target: int
    output: float


def derivatives(
    context: MethodContext, dataset: Dataset, *, hold_attention: bool = False
) -> Iterator[Derivatives]:
    """Differentiate the output of each document by the vectors of its words.

    Args:
        context: the model, the class and the output.
        dataset: the documents.
        hold_attention: whether attention weights are constants.

    Yields:
        For each document, in order.
    """
    for pairs in context.chunks(dataset):
        batch = collate([document for _, document in pairs]).to(context.device)
        with context.differentiating(hold_attention=hold_attention):
            words = context.embed(batch).detach().requires_grad_()  # [t, E]
            logits = context.logits(words, batch)  # [b, C]
            target = context.targets(logits, pairs)  # [b]
            value = context.value(logits, target)  # [b]
            gradient = gradient_of(value.sum(), words)  # [t, E]
        lengths = batch.document_lengths.tolist()
        yield from map(
            Derivatives,
            torch.split(words.detach(), lengths),
            torch.split(gradient, lengths),
            target.tolist(),
            value.tolist(),
        )


def gradient_of(total: Tensor, words: Tensor) -> Tensor:
    """Differentiate a sum of outputs by the vectors of words: `[T, E]`.

    Raises:
        ModelError: no gradient leads back from the outputs.
    """
    if not len(words):
        return torch.zeros_like(words)
    if not total.requires_grad:
        raise ModelError(
            "model: given logits that no gradient leads back from (detached, or without gradients),"
            " needed logits that are computed from the embeddings"
        )
    [gradient] = torch.autograd.grad(total, words, materialize_grads=True)
    return gradient
