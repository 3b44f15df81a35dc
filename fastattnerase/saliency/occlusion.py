"""By replacing a word's vector with zeros: the text stays as long as it is."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset
from fastattnerase.saliency import captum_forms
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.embedded import Embedded, embedded
from fastattnerase.saliency.registry import Method


def score(context: MethodContext, dataset: Dataset, *, captum: bool = False) -> Iterator[Scored]:
    """Compute `f_c(x) − f_c(x | x_i = 0)` of every word.

    A text of `n` words takes `n + 1` passes over it, in packed batches.

    Args:
        context: the model, the class, the output and the budget.
        dataset: the documents.
        captum: whether Captum computes it, a document at a time.
    """
    for some in embedded(context, dataset):
        if captum:
            parts = captum_forms.occlusion(context, some)
        else:
            without = _without_each(context, some)  # [t]
            parts = some.split(some.output.repeat_interleave(some.lengths) - without)
        for place, part in enumerate(parts):
            output = float(some.output[place])
            yield Scored(part, int(some.target[place]), details={"output": output})


def _without_each(context: MethodContext, some: Embedded) -> Tensor:
    """Compute the output with each word's vector zero: `[t]` float64."""
    found = [some.output[:0]]
    jobs = (
        ((place, word), document)
        for place, document in enumerate(some.documents)
        for word in range(len(document))
    )
    for job in context.batches(jobs):
        copies = some.copies([place for (place, _), _ in job])
        zeroed = torch.tensor([word for (_, word), _ in job], device=copies.starts.device)  # [M]
        with context.applying():
            words = some.words[copies.rows]  # [t', E]
            words[copies.starts + zeroed] = 0
            logits = context.logits(words, copies.batch)  # [M, C]
            found.append(context.value(logits, some.target[copies.owner]))
    return torch.cat(found)


METHOD = Method(
    name="occlusion",
    family="occlusion",
    doc="f_c(x) − f_c(x | x_i = 0)",
    source="Zeiler & Fergus 2014; Li et al. 2016b",
    score=score,
)
