"""What every test of attention starts from: what a model makes of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.statistics.attention import attention_weights

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Instance:
    """A document as a model sees it.

    Attributes:
        row: Its number in the data set.
        id: Its id.
        predicted: Class that the model predicts.
        probability: Of that class.
        words: Number of its words.
        largest_weight: Largest attention weight; 0 without words.
    """

    row: int
    id: int
    predicted: int
    probability: float
    words: int
    largest_weight: float


def described(
    batch: AttentionBatch, logits: Tensor, rows: Sequence[int]
) -> Iterator[tuple[Instance, Floats]]:
    """Say what a model makes of the documents of a batch.

    Args:
        batch: what the attention layer sees of `B` documents, with their ids.
        logits: `[B, C]`, the model's.
        rows: numbers of the documents in their data set.

    Yields:
        Each document, and the weights `[n]` float64 of its words.
    """
    weights = np.split(attention_weights(batch), batch.offsets[1:-1].tolist())
    p = logits.double().softmax(1).amax(1)  # [B]
    assert batch.ids is not None  # a model names its documents
    for row, key, label, probability, own in zip(
        rows, batch.ids.tolist(), logits.argmax(1).tolist(), p.tolist(), weights, strict=True
    ):
        largest = float(own.max(initial=0.0))
        yield Instance(row, key, label, probability, len(own), largest), own


def instances(model: AttentionClassifier, dataset: Dataset) -> Iterator[tuple[Instance, Floats]]:
    """Stream what a model makes of documents, with the weights of their words.

    Args:
        model: a model whose items are words.
        dataset: the documents.

    Yields:
        Each document, in order, and its weights `[n]` float64.
    """
    row = 0
    for batch, logits in model.attention_outputs(dataset):
        yield from described(batch, logits, range(row, row + len(logits)))
        row += len(logits)


def evenly(count: int, limit: int | None) -> list[int]:
    """Choose at most so many rows, evenly spaced: files can be sorted by class.

    Example:
        >>> evenly(5, 2), evenly(2, None)
        ([0, 2], [0, 1])
    """
    if limit is None or limit >= count:
        return list(range(count))
    return [i * count // limit for i in range(limit)]


def chosen(dataset: Dataset, rows: Sequence[int]) -> Dataset:
    """Give the documents of some rows."""
    return Dataset([dataset[row] for row in rows])
