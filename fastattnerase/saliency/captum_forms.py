"""Captum's forms of the methods that it has, a document at a time: what ours are checked against.

Captum batches tensors whose first dimension is the instance. Packed texts have none, and padded
ones are another model's, so that each document is an instance of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset
from fastattnerase.extras import needs
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.embedded import Embedded, embedded

Forward = Callable[[Tensor], Tensor]


def gradient_x_input(
    context: MethodContext, dataset: Dataset, *, hold_attention: bool
) -> Iterator[Scored]:
    """Give `captum.attr.InputXGradient`, summed over the dimensions of a word's vector."""
    with needs("saliency"):
        from captum.attr import InputXGradient
    for some in embedded(context, dataset):
        for place, words in enumerate(_documents(some)):
            scores = torch.zeros(len(words), dtype=torch.float64)  # [n]
            if len(words):
                with context.differentiating(hold_attention=hold_attention):
                    by_captum = InputXGradient(_forward(context, some, place))
                    scores = _sum(by_captum.attribute(words[None].requires_grad_()))
            output = float(some.output[place])
            yield Scored(scores, int(some.target[place]), details={"output": output})


def integrated_gradients(
    context: MethodContext, some: Embedded, start: Tensor, steps: int, rule: str
) -> Sequence[Tensor]:
    """Give `captum.attr.IntegratedGradients`, summed over the dimensions of a word's vector."""
    with needs("saliency"):
        from captum.attr import IntegratedGradients
    found = []
    begins = torch.split(start, some.lengths.tolist())
    for place, (words, begin) in enumerate(zip(_documents(some), begins, strict=True)):
        if not len(words):
            found.append(torch.zeros(0, dtype=torch.float64))
            continue
        with context.differentiating():
            scores = IntegratedGradients(_forward(context, some, place)).attribute(
                words[None],
                begin[None],
                n_steps=steps,
                method=rule.replace("gauss_legendre", "gausslegendre"),
                internal_batch_size=max(1, context.words // len(words)),
            )
        found.append(_sum(scores))
    return found


def occlusion(context: MethodContext, some: Embedded) -> Sequence[Tensor]:
    """Give `captum.attr.Occlusion` with a window of one word."""
    with needs("saliency"):
        from captum.attr import Occlusion
    found = []
    for place, words in enumerate(_documents(some)):
        if not len(words):
            found.append(torch.zeros(0, dtype=torch.float64))
            continue
        with context.applying():
            scores = Occlusion(_forward(context, some, place)).attribute(
                words[None],
                sliding_window_shapes=(1, words.shape[1]),
                perturbations_per_eval=max(1, context.words // len(words)),
            )
        found.append(scores[0, :, 0].detach().double().cpu())  # the same in every dimension
    return found


def _documents(some: Embedded) -> Sequence[Tensor]:
    return torch.split(some.words, some.lengths.tolist())


def _forward(context: MethodContext, some: Embedded, place: int) -> Forward:
    """Make the output a function of copies of one document, `[k, n, E]` to `[k]`."""

    def forward(inputs: Tensor) -> Tensor:
        copies = some.copies([place] * len(inputs))
        logits = context.logits(inputs.flatten(0, 1), copies.batch)  # [k, C]
        return context.value(logits, some.target[copies.owner])

    return forward


def _sum(scores: Tensor) -> Tensor:
    """Sum over the dimensions of each word's vector: `[1, n, E]` to `[n]`."""
    return scores[0].detach().double().sum(1).cpu()
