"""Gradient importance and leave-one-out against their definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from saliency.small_models import LENGTHS, MODELS, WORDS, asked, dataset_of, fix_attention, model_of
from torch import Tensor

from fastattnerase.data import Dataset, TokenisedText, Vocabulary, collate, encode
from fastattnerase.models import ModelConfig, ModelError, build_model
from fastattnerase.saliency.batches import words_in
from fastattnerase.saliency.gradient_importance import gradient_importance
from fastattnerase.saliency.leave_one_out import leave_one_out

Method = Callable[..., Iterator[NDArray[np.float64]]]
METHODS = (gradient_importance, leave_one_out)


@pytest.mark.parametrize("made", MODELS)
@pytest.mark.parametrize("held", [True, False])
def test_gradients_are_numerical_derivatives_by_the_one_hot_entry(
    made: tuple[str, str, str, str], held: bool
) -> None:
    """`x_t (1 + s)` is what a one-hot entry of `1 + s` looks up; the derivative is at s = 0."""
    model = model_of(*made)
    dataset = dataset_of([[4, 2, 1]])
    [scores] = gradient_importance(model, dataset, hold_attention=held)
    model.eval()
    if held:
        fix_attention(model)
    batch = collate(dataset.documents)
    with torch.no_grad():
        words = model.embed(batch)
        before = model.from_embeddings(words, batch).logits.softmax(1)[0]
        label = int(before.argmax())

        def moved(place: int, step: float) -> float:
            longer = words.clone()
            longer[place] *= 1 + step
            return float(model.from_embeddings(longer, batch).logits.softmax(1)[0, label])

        step = 1e-5
        wanted = [abs(moved(t, step) - moved(t, -step)) / (2 * step) for t in range(7)]
    np.testing.assert_allclose(scores, wanted, rtol=1e-6, atol=1e-10)
    assert min(wanted) > 1e-7


@pytest.mark.parametrize("made", MODELS)
def test_leave_one_out_is_one_forward_at_a_time(made: tuple[str, str, str, str]) -> None:
    model = model_of(*made)
    dataset = dataset_of(LENGTHS)
    found = list(leave_one_out(model, dataset))
    model.eval()

    def output(sentences: list[list[str]], number: int) -> Tensor:
        full = [s for s in sentences if s]
        text = TokenisedText(number, 0, full, [" ".join(s) for s in full])
        with torch.no_grad():
            logits = model(collate(asked(encode([text], Vocabulary(WORDS))).documents)).logits
        return logits.softmax(1)[0]

    assert [len(scores) for scores in found] == [5, 1, 0, 8, 2]
    for document, scores in zip(dataset, found, strict=True):
        ends = np.cumsum(document.sentence_lengths).tolist()
        split = [document.tokens[a:b] for a, b in zip([0, *ends][:-1], ends, strict=True)]
        for place, score in enumerate(scores):
            without, at = [list(sentence) for sentence in split], place
            for sentence in without:
                if at < len(sentence):
                    del sentence[at]
                    break
                at -= len(sentence)
            wanted = (output(without, document.id) - output(split, document.id)).abs().sum() / 2
            assert score == pytest.approx(float(wanted), rel=1e-9, abs=1e-12)


def test_by_hand() -> None:
    """Two words, embeddings as values, equal weights, one logit: p = σ((2x₁ + 2x₂)/2)."""
    config = ModelConfig(
        kind="flan", encoder="noenc", attention="uniform", head="sigmoid", embedding_size=1
    )
    vocabulary = Vocabulary(["a", "b"])
    model = build_model(config, vocabulary, 2, torch.tensor([[0.0], [1.0], [3.0], [0.0]]))
    with torch.no_grad():
        model.classifier.weight.fill_(2.0)
    dataset = encode([TokenisedText(0, 0, [["a", "b"]], ["a b"])], vocabulary)
    # Of the words alone logits are 2 and 6, of both 4.
    p = {z: 1 / (1 + np.exp(-z)) for z in (2.0, 4.0, 6.0)}
    [gradient] = gradient_importance(model, dataset)
    np.testing.assert_allclose(gradient, p[4.0] * (1 - p[4.0]) * np.array([1.0, 3.0]), rtol=1e-6)
    [left_out] = leave_one_out(model, dataset)
    np.testing.assert_allclose(left_out, [p[6.0] - p[4.0], p[4.0] - p[2.0]], rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("made", MODELS)
def test_scores_do_not_depend_on_the_batch(method: Method, made: tuple[str, str, str, str]) -> None:
    model = model_of(*made)
    dataset = dataset_of(LENGTHS)
    together = list(method(model, dataset))
    alone = list(method(model, dataset, max_bytes=1))
    assert len(together) == len(alone) == len(LENGTHS)
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_batches_keep_to_their_budget(method: Method) -> None:
    model = model_of(*MODELS[0])
    dataset = Dataset([replace(document, query_ids=None) for document in dataset_of([[4]] * 10)])
    sizes: list[int] = []
    model.embedding.register_forward_hook(lambda module, given, out: sizes.append(len(out)))
    budget = 9 * 4 * (4 * 5 + 10 * 8)  # nine words' floats
    assert words_in(model, budget) == 9
    list(method(model, dataset, max_bytes=budget))
    assert max(sizes) <= 9
    assert len(sizes) < sum(sizes) / 4
    with pytest.raises(ModelError, match="max_bytes: given 0, needed at least 1"):
        next(method(model, dataset, max_bytes=0))


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_left_as_it_was(method: Method) -> None:
    model = model_of(*MODELS[0])
    model.words.eval()
    model.classifier.bias.requires_grad_(False)
    model.markers.grad = torch.ones_like(model.markers)
    before = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    for _ in method(model, dataset_of(LENGTHS)):
        assert torch.is_grad_enabled()
        assert [module.training for module in model.modules()] == before
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())
    assert torch.get_rng_state().equal(random)
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (name != "classifier.bias")
        assert (parameter.grad is None) == (name != "markers")
    assert model.markers.grad.equal(torch.ones_like(model.markers))
    assert not any(module._forward_hooks for module in model.modules())


def test_a_saturated_output_has_no_gradient() -> None:
    model = model_of(*MODELS[0])
    with torch.no_grad():
        model.classifier.bias.fill_(1000.0)
    [scores] = gradient_importance(model, dataset_of([[3]]))
    assert scores.tolist() == [0.0, 0.0, 0.0]
