"""Leave-one-out: how far the output moves when a word is deleted and the text encoded again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastattnerase.data.dataset import Dataset, collate
from fastattnerase.data.documents import Document
from fastattnerase.models.base import AttentionClassifier, evaluating
from fastattnerase.saliency.batches import MAX_BYTES, in_batches, words_in

Floats = NDArray[np.float64]


def leave_one_out(
    model: AttentionClassifier, dataset: Dataset, *, max_bytes: int = MAX_BYTES
) -> Iterator[Floats]:
    """Compute the importance of every word by deleting it.

    `d_t = ½ Σ_c |p_c(x without word t) − p_c(x)|`: the word is gone, the text one shorter, and is
    encoded and attended to anew. A text of `n` words takes `n + 1` passes over it, in packed
    batches.

    Dropout is off; the model's modes, gradients and the random state are left as found.

    Args:
        model: the model.
        dataset: `B` documents; of two texts words of the first are deleted.
        max_bytes: of a batch and what the model computes of it, estimated; a longer document makes
            a batch of its own.

    Yields:
        For each document, in order, `[n]` float64, from 0 to 1.

    Raises:
        ModelError: `max_bytes` is not positive.

    Source:
        Jain & Wallace 2019, section 4.1 and their code.

    Example:
        >>> from fastattnerase.data import Example, Vocabulary, encode
        >>> from fastattnerase.models import ModelConfig, build_model
        >>> from fastattnerase.saliency.leave_one_out import leave_one_out
        >>> words = Vocabulary(["good", "film"])
        >>> model = build_model(ModelConfig(encoder="mlp"), words, 2)
        >>> [scores] = leave_one_out(model, encode([Example(0, "good film", 1)], words))
        >>> scores.shape
        (2,)
    """
    device = model.classifier.weight.device
    whole: Floats | None = None  # [C], the output for the document as it is
    found: list[float] = []
    for pairs in in_batches(_variants(dataset), words_in(model, max_bytes)):
        with evaluating(model):
            logits = model(collate([variant for _, variant in pairs]).to(device)).logits
        every = logits.double().softmax(1).cpu().numpy()  # [M, C]
        for (left, _), p in zip(pairs, every, strict=True):
            if whole is None:
                whole = p
            else:
                found.append(float(np.abs(p - whole).sum()) / 2)
            if left == 0:
                yield np.array(found, dtype=np.float64)
                whole, found = None, []


def _variants(dataset: Dataset) -> Iterator[tuple[int, Document]]:
    """List each document, then without each of its words; and how many of its variants follow."""
    for document in dataset:
        n = len(document)
        yield n, document
        sentences = np.repeat(
            np.arange(len(document.sentence_lengths)), document.sentence_lengths
        )  # [n]
        for place in range(n):
            lengths = document.sentence_lengths.copy()
            lengths[sentences[place]] -= 1
            kept = lengths > 0  # no sentence is empty
            yield (
                n - 1 - place,
                replace(
                    document,
                    token_ids=np.delete(document.token_ids, place),
                    sentence_lengths=lengths[kept],
                    tokens=document.tokens[:place] + document.tokens[place + 1 :],
                    spans=None,  # whose places would be other ones
                    sentences=[text for text, keep in zip(document.sentences, kept, strict=True)
                               if keep],
                ),
            )  # fmt: skip
