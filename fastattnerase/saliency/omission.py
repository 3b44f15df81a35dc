"""By deleting a word: the text is one shorter, and is encoded and attended to anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset, collate
from fastattnerase.data.documents import Document
from fastattnerase.models.errors import ModelError
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.registry import Method

Change = Literal["difference", "total_variation"]


def score(
    context: MethodContext, dataset: Dataset, *, change: Change = "difference"
) -> Iterator[Scored]:
    """Compute `f_c(x) − f_c(x without word i)` of every word.

    A text of `n` words takes `n + 1` passes over it, in packed batches.

    Args:
        context: the model, the class, the output and the budget.
        dataset: the documents.
        change: `difference`, of the output; or `total_variation`, `½ Σ_c |p_c(x) − p_c(x without
            word i)|` of all classes' probabilities, Jain and Wallace's leave-one-out.

    Raises:
        ModelError: another change.
    """
    if change not in ("difference", "total_variation"):
        raise ModelError(f"change: given {change!r}, needed difference or total_variation")
    whole: Tensor | None = None  # [C], the logits of the document as it is
    target = torch.zeros(0)  # [1]
    found: list[Tensor] = []
    for pairs in context.batches(_variants(context, dataset)):
        batch = collate([variant for _, variant in pairs]).to(context.device)
        with context.applying():
            every = context.logits(context.embed(batch), batch)  # [M, C]
        begin = 0  # of the variants in this batch that belong to one document
        for end, ((place, left), document) in enumerate(pairs, start=1):
            if whole is None:
                whole, begin = every[end - 1 : end], end
                target = context.targets(whole, [(place, document)])  # [1]
            if left and end < len(pairs):
                continue
            found.append(_change(context, whole, every[begin:end], target, change))
            begin = end
            if left == 0:
                output = float(context.value(whole, target))
                scores = torch.cat(found).cpu()  # [n]
                yield Scored(scores, int(target), details={"output": output})
                whole, found = None, []


def _change(
    context: MethodContext, whole: Tensor, without: Tensor, target: Tensor, change: Change
) -> Tensor:
    """Compare the logits of variants `[m, C]` with those of the document `[1, C]`: `[m]`."""
    if change == "total_variation":
        moved = without.double().softmax(1) - whole.double().softmax(1)  # [m, C]
        return moved.abs().sum(1) / 2
    return context.value(whole, target) - context.value(without, target.expand(len(without)))


def _variants(
    context: MethodContext, dataset: Dataset
) -> Iterator[tuple[tuple[int, int], Document]]:
    """List each document, then without each of its words; its place, and how many follow."""
    for place, document in enumerate(dataset):
        n = len(document)
        yield (place, n), document
        masks = context.masks(document)
        if masks is not None:
            for word in range(n):
                own = document.token_ids.copy()
                own[word] = masks[word]
                yield (place, n - 1 - word), replace(document, token_ids=own, spans=None)
            continue
        ids, tokens = document.token_ids, document.tokens
        sentences = np.repeat(
            np.arange(len(document.sentence_lengths)), document.sentence_lengths
        )  # [n]
        for word, sentence in enumerate(sentences.tolist()):
            lengths, texts = document.sentence_lengths.copy(), document.sentences
            lengths[sentence] -= 1
            if lengths[sentence] == 0:  # no sentence is empty
                lengths = np.delete(lengths, sentence)
                texts = texts[:sentence] + texts[sentence + 1 :]
            yield (
                (place, n - 1 - word),
                Document(
                    document.id,
                    document.label,
                    np.concatenate([ids[:word], ids[word + 1 :]]),
                    lengths,
                    tokens[:word] + tokens[word + 1 :],
                    texts,
                    document.query_ids,
                    document.query_tokens,
                    document.answers,
                    spans=None,  # whose places would be other ones
                ),
            )


METHOD = Method(
    name="omission",
    family="occlusion",
    doc="f_c(x) − f_c(x without word i)",
    source="Li et al. 2016b; Kádár et al. 2017",
    score=score,
)
