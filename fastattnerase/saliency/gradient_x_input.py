"""By derivative times vector: what a word contributes, to first order."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fastattnerase.data.dataset import Dataset
from fastattnerase.saliency import captum_forms
from fastattnerase.saliency.batches import derivative_bytes_of_word
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.derivatives import derivatives
from fastattnerase.saliency.registry import Method


def score(
    context: MethodContext,
    dataset: Dataset,
    *,
    absolute: bool = False,
    hold_attention: bool = False,
    captum: bool = False,
) -> Iterator[Scored]:
    """Compute `∂f_c / ∂x_i · x_i` of every word.

    Args:
        context: the model, the class, the output and the budget.
        dataset: the documents.
        absolute: whether scores are absolute values. With `hold_attention` and the output
            `probability` that is Jain and Wallace's measure.
        hold_attention: whether attention weights are constants, in a model of the package.
        captum: whether Captum computes it, a document at a time.
    """
    if captum:
        found = captum_forms.gradient_x_input(context, dataset, hold_attention=hold_attention)
    else:
        found = (
            Scored(
                torch.sum(one.words.double() * one.gradient.double(), 1),  # [n]
                one.target,
                details={"output": one.output},
            )
            for one in derivatives(context, dataset, hold_attention=hold_attention)
        )
    for one in found:
        yield one._replace(scores=one.scores.abs()) if absolute else one


METHOD = Method(
    name="gradient_x_input",
    family="saliency",
    doc="∂f_c / ∂x_i · x_i",
    source="Denil et al. 2015",
    score=score,
    bytes_of_word=derivative_bytes_of_word,
)
