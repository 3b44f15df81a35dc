"""Scores and erasure on each device, float32, are those of the same model in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from huggingface.tiny import DEVICES, FAMILIES, TEXT, texts_of, tiny

from fastattnerase import saliency
from fastattnerase.huggingface import TransformerConfig
from fastattnerase.input_erasure import erase_inputs

TEXTS = [TEXT, ["good"], [], ["the", "unbelievably", "dull", "films"]]
METHODS = [
    "attention", "gradient", "product", "gradient_norm", "gradient_x_input",
    "integrated_gradients", "occlusion", "omission",
]  # fmt: skip


def both(family: str, device: str, **config: Any) -> tuple[Any, Any]:
    """Make a model on a device, and the same on the CPU in float64."""
    model = tiny(family, TransformerConfig(**config))
    exact = copy.deepcopy(model).double()
    exact.words = model.words  # the indices of words are theirs
    return model.to(device), exact


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_float64(family: str, method: str, device: str) -> None:
    model, exact = both(family, device)
    dataset = texts_of(model, TEXTS)
    found = saliency.attribute(model, dataset, method)
    expected = saliency.attribute(exact, dataset, method)
    assert found.target.tolist() == expected.target.tolist()
    torch.testing.assert_close(
        found.scores.double(), expected.scores.double(), atol=2e-5, rtol=1e-4
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("erasure", ["remove", "mask"])
@pytest.mark.parametrize("direction", ["erase", "keep"])
def test_erasing_words_is_that_of_float64(direction: Any, erasure: str, device: str) -> None:
    model, exact = both("bert", device, erasure=erasure)
    dataset = texts_of(model, TEXTS)
    scores = torch.rand(sum(map(len, dataset)), generator=torch.manual_seed(1))
    found, expected = (
        erase_inputs(one, dataset, {"given": scores}, direction=direction) for one in (model, exact)
    )
    torch.testing.assert_close(
        found.curves["label_prob"], expected.curves["label_prob"], atol=1e-5, rtol=0.0
    )
    torch.testing.assert_close(found.probabilities, expected.probabilities, atol=1e-5, rtol=0.0)
    assert torch.equal(found.first_flip, expected.first_flip)
