"""By weight times the derivative of the class's probability: as the engine's."""

from __future__ import annotations

from collections.abc import Iterator

from fastattnerase.data.dataset import Dataset
from fastattnerase.saliency.attention_layer import layer_items
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.registry import Method


def score(context: MethodContext, dataset: Dataset) -> Iterator[Scored]:
    """Score the items of the last attention layer."""
    for items in layer_items(context, dataset, "product"):
        yield Scored(items.weights * items.gradient, items.target)


METHOD = Method(
    name="product",
    family="attention",
    doc="a_i ∂p_c / ∂a_i, signed",
    source="Serrano & Smith 2019",
    score=score,
    output="probability",
    items="attention",
)
