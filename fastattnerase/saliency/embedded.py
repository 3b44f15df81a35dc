"""Texts as vectors of words, and copies of them in which the vectors are others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset, DocumentBatch, collate
from fastattnerase.data.documents import Document
from fastattnerase.models.packed import offsets_of
from fastattnerase.saliency.context import MethodContext


class Copies(NamedTuple):
    """Copies of documents one after another, as one batch.

    Attributes:
        batch: the batch.
        owner: `[M]`, int64, the document of each copy, its place among those embedded.
        rows: `[t]`, int64, the row of `Embedded.words` that each word of a copy stands for.
        starts: `[M]`, int64, where each copy's words begin among `rows`.
        lengths: `[M]`, int64, words of each copy.
    """

    batch: DocumentBatch
    owner: Tensor
    rows: Tensor
    starts: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class Embedded:
    """Some documents of a data set, looked up and classified.

    Attributes:
        documents: `b` documents.
        batch: they as a batch.
        words: `[t, E]`, the vectors of their words, packed, without gradient.
        lengths: `[b]`, int64, words of each.
        target: `[b]`, int64, the class that is asked about.
        output: `[b]`, float64, `f_c(x)`.
    """

    documents: Sequence[Document]
    batch: DocumentBatch
    words: Tensor
    lengths: Tensor
    target: Tensor
    output: Tensor

    def copies(self, owners: Sequence[int]) -> Copies:
        """Repeat documents, so that each copy can have other vectors.

        Args:
            owners: the document of each copy, by its place; at least one.
        """
        batch = collate([self.documents[place] for place in owners]).to(self.words.device)
        owner = torch.tensor(owners, device=self.words.device)  # [M]
        lengths = self.lengths[owner]  # [M]
        starts = offsets_of(lengths)[:-1]  # [M]
        first = offsets_of(self.lengths)[owner]  # [M], where the document begins
        rows = torch.arange(int(lengths.sum()), device=owner.device)  # [t]
        rows = rows + (first - starts).repeat_interleave(lengths)
        return Copies(batch, owner, rows, starts, lengths)

    def split(self, scores: Tensor) -> Sequence[Tensor]:
        """Cut scores of all words, `[t]`, into those of each document, on the CPU."""
        return torch.split(scores.cpu(), self.lengths.tolist())


def embedded(context: MethodContext, dataset: Dataset) -> Iterator[Embedded]:
    """Look up and classify documents, as many at a time as one pass may have.

    Args:
        context: the model, the class, the output and the budget.
        dataset: the documents.

    Yields:
        Some documents, in order.
    """
    for pairs in context.chunks(dataset):
        documents = [document for _, document in pairs]
        batch = collate(documents).to(context.device)
        with context.applying():
            words = context.embed(batch)  # [t, E]
            logits = context.logits(words, batch)  # [b, C]
            target = context.targets(logits, pairs)  # [b]
            output = context.value(logits, target)  # [b]
        yield Embedded(documents, batch, words, batch.document_lengths, target, output)
