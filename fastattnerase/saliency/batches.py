"""Batches of documents under a budget of memory, and a model that derivatives go through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fastattnerase.data.documents import Document
from fastattnerase.models.base import evaluating
from fastattnerase.models.encoders import Encoder
from fastattnerase.models.errors import ModelError
from fastattnerase.models.mechanisms import Mechanism

MAX_BYTES = 1 << 26  # 64 MiB; four times as much leaves the caches and is slower
_FLOAT = 4  # bytes

T = TypeVar("T")


def bytes_of_word(model: nn.Module) -> int:
    """Estimate what a word takes of memory while a model runs and its derivatives are taken.

    Four vectors as wide as its embedding (itself, a copy in reading order for each direction, a
    gradient) and ten as wide as the encoder's output (an LSTM's gates are four). The encoder of
    another model than the package's is taken to be as wide as its widest parameter.
    """
    embeddings = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    widths = [part.output_size for part in model.modules() if isinstance(part, Encoder)]
    if not widths:
        looked_up = {part.weight for part in embeddings}
        others = (parameter for parameter in model.parameters() if parameter not in looked_up)
        widths = [max(parameter.shape, default=1) for parameter in others]
    embedded = max((part.embedding_dim for part in embeddings), default=1)
    return _FLOAT * (4 * embedded + 10 * max(widths, default=1))


def words_in(
    model: nn.Module, max_bytes: int, of_word: Callable[[nn.Module], int] = bytes_of_word
) -> int:
    """Estimate how many words a batch may have.

    Args:
        model: the model.
        max_bytes: of a batch and what the model computes of it.
        of_word: estimates what a word takes.

    Returns:
        The number, at least 1: a document is never cut.

    Raises:
        ModelError: `max_bytes` is no whole number, or not positive.
    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise ModelError(f"max_bytes: given {max_bytes!r}, needed at least 1, a whole number")
    return max(1, max_bytes // of_word(model))


def words_of(document: Document) -> int:
    """Count what a model reads of a document: its words and those of its query."""
    query = document.query_ids
    return len(document) + (0 if query is None else len(query))


def in_batches(
    documents: Iterable[tuple[T, Document]],
    words: int,
    size_of: Callable[[Document], int] = words_of,
) -> Iterator[list[Any]]:
    """Cut documents, each with what belongs to it, into batches of at most so many words.

    Args:
        documents: pairs; a document of more words makes a batch of its own.
        words: of a batch, those of queries included; an empty document counts as one.
        size_of: counts a document's.

    Yields:
        Lists of pairs, in order.
    """
    batch: list[tuple[T, Document]] = []
    found = 0
    for pair in documents:
        size = max(1, size_of(pair[1]))
        if batch and found + size > words:
            yield batch
            batch, found = [], 0
        batch.append(pair)
        found += size
    if batch:
        yield batch


def derivative_bytes_of_word(model: nn.Module) -> int:
    """Estimate what a word takes where derivatives are taken of copies: twice as much, measured.

    Or more where a model is deep: what each linear layer and each normalisation gives is kept until
    the derivative comes back to it.
    """
    once = bytes_of_word(model)
    linear = (part.out_features for part in model.modules() if isinstance(part, nn.Linear))
    norms = (part.weight.numel() for part in model.modules() if isinstance(part, nn.LayerNorm))
    return max(2 * once, once + _FLOAT * (sum(linear) + sum(norms)))


@contextmanager
def differentiable(model: nn.Module, *, hold_attention: bool) -> Iterator[None]:
    """Let derivatives by inputs through a model, without dropout; leave it as it was found.

    Parameters get no gradients meanwhile.

    Args:
        model: the model.
        hold_attention: whether attention weights are constants, at every level of the model.
    """
    parameters = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    hooks = []
    if hold_attention:
        for part in model.modules():
            if isinstance(part, Mechanism):
                hooks.append(part.register_forward_hook(_detached))
    try:
        for parameter, _ in parameters:
            parameter.requires_grad_(False)
        # The derivative of cuDNN's recurrent networks exists in training mode alone.
        with evaluating(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        for parameter, required in parameters:
            parameter.requires_grad_(required)
        for hook in hooks:
            hook.remove()


def _detached(part: nn.Module, given: Any, weights: Tensor) -> Tensor:
    return weights.detach()
