"""By the length of the derivative: how much a small change of a word would matter."""

from __future__ import annotations

from collections.abc import Iterator

from fastattnerase.data.dataset import Dataset
from fastattnerase.saliency.batches import derivative_bytes_of_word
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.derivatives import derivatives
from fastattnerase.saliency.registry import Method


def score(context: MethodContext, dataset: Dataset) -> Iterator[Scored]:
    """Compute `‖∂f_c / ∂x_i‖_2` of every word."""
    for found in derivatives(context, dataset):
        norms = found.gradient.double().norm(dim=1)  # [n]
        yield Scored(norms, found.target, details={"output": found.output})


METHOD = Method(
    name="gradient_norm",
    family="sensitivity",
    doc="‖∂f_c / ∂x_i‖₂",
    source="Li et al. 2016a",
    score=score,
    bytes_of_word=derivative_bytes_of_word,
)
