"""An attention layer as a module, and the metric in Captum's form, against masks of the items."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from huggingface.tiny import texts_of, tiny
from interop.layers import KINDS, MASK, N, batch_of
from torch import Tensor, nn

import fastattnerase as fae
from fastattnerase.data import Example, Vocabulary, encode
from fastattnerase.huggingface import TransformerConfig
from fastattnerase.interop import AttentionModel, pack_scores
from fastattnerase.interop.captum import prefix_erasure
from fastattnerase.interop.prefixes import DIRECTIONS
from fastattnerase.models import ModelConfig, build_model


def attributions() -> Tensor:
    """Scores [3, N] with NaN where no item is, which nobody may read."""
    draw = torch.Generator().manual_seed(11)
    return torch.randn(3, N, generator=draw).masked_fill(MASK == 0, torch.nan)


def curves(model: AttentionModel, scores: Tensor, target: Tensor, keep: bool) -> list[list[float]]:
    """Probabilities of each instance's class, one forward pass a prefix."""
    found = []
    for b in range(3):
        columns = MASK[b].nonzero()[:, 0]
        order = columns[scores[b, columns].argsort(descending=True)]
        rows = []
        for k in range(len(order) + 1):
            mask = torch.zeros(N) if keep else MASK[b].float()
            mask[order[:k]] = 1.0 if keep else 0.0
            logits = model(mask[None], torch.tensor([b])).detach()
            rows.append(float(logits.softmax(1)[0, target[b]]))
        found.append(rows)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_layer(kind: str) -> None:
    batch = batch_of(kind)
    model = AttentionModel(batch)
    found = fae.erase_prefixes(batch, "attention", logits=True, curves="logits")
    assert torch.equal(model.inputs, MASK.float())
    torch.testing.assert_close(model(model.inputs), found.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(model.inputs[:, None]), model(model.inputs))
    # Nothing left is the last point of every curve.
    empty = found.curves["logits"][0, found.curve_offsets[1:] - 1]
    torch.testing.assert_close(model(torch.zeros(3, N)), empty, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("measure", DIRECTIONS)
@pytest.mark.parametrize("own", [True, False], ids=["decision", "other class"])
def test_prefix_erasure_is_a_forward_pass_a_prefix(kind: str, measure: str, own: bool) -> None:
    model, scores = AttentionModel(batch_of(kind)), attributions()
    label = model(model.inputs).argmax(1)
    target = label if own else (label + 1) % 3
    options = {"preset": "every"} if measure.startswith("aopc") else {}
    found = prefix_erasure(
        model, model.inputs, scores, target=None if own else target, measure=measure, **options
    )
    keep = DIRECTIONS[measure] == "keep"
    for b, curve in enumerate(curves(model, scores, target, keep)):
        n = len(curve) - 1
        whole = curve[-1] if keep else curve[0]
        expected = {
            "aopc": whole - sum(curve[1:]) / n,
            "area": sum((p + q) / 2 for p, q in zip(curve[1:], curve[:-1], strict=True)) / n,
            "at": whole - curve[-(-n // 5)],
        }
        of = "aopc" if "aopc" in measure else "area" if "area" in measure else "at"
        assert float(found[b]) == pytest.approx(expected[of], abs=1e-5)


def test_the_forms_of_captum() -> None:
    model, scores = AttentionModel(batch_of("linear")), attributions()
    one = prefix_erasure(model, model.inputs, scores)
    for again in (
        prefix_erasure(model.forward, model.inputs, scores),
        prefix_erasure(model, (model.inputs[:, None],), (scores[:, None],)),
        prefix_erasure(model, model.inputs, torch.stack([scores, scores], 2)),
        prefix_erasure(model, model.inputs, scores, target=model(model.inputs).argmax(1)),
    ):
        torch.testing.assert_close(again, one, rtol=0, atol=1e-12)
    two = prefix_erasure(model, model.inputs, scores, target=2)
    torch.testing.assert_close(
        two, prefix_erasure(model, model.inputs, scores, target=[2, 2, 2]), rtol=0, atol=0
    )


def test_ferret_takes_positive_words_of_the_attributions() -> None:
    """Items 0, 1, 3 of the second instance have -1, 2, -3: one word is positive, 30 % to 100 %."""
    model = AttentionModel(batch_of("linear"))
    scores = torch.zeros(3, N)
    scores[1, :4] = torch.tensor([-1.0, 2, 9, -3])
    found = prefix_erasure(model, model.inputs, scores, preset="ferret")
    whole = model(model.inputs).softmax(1)[1]
    without = model(torch.tensor([[1.0, 0, 0, 1, 0, 0]]), torch.tensor([1])).softmax(1)[0]
    y = int(whole.argmax())
    assert float(found[1]) == pytest.approx(float(whole[y] - without[y]), abs=1e-6)
    assert bool(found[[0, 2]].isnan().all())


def test_captums_methods_take_the_module() -> None:
    """Feature ablation is erasing each item alone; gradients by the mask agree with differences."""
    from captum.attr import FeatureAblation, IntegratedGradients

    batch = batch_of("linear")
    model = AttentionModel(batch)
    each = fae.erase_each(batch)
    rows, target = torch.arange(3), each.label
    ablation = FeatureAblation(lambda mask, instance: model(mask, instance).softmax(1))
    drops = ablation.attribute(
        model.inputs, baselines=0, target=target, additional_forward_args=(rows,)
    )
    torch.testing.assert_close(
        pack_scores(drops, mask=MASK).scores, each.label_prob_drop, rtol=0, atol=1e-5
    )
    assert prefix_erasure(model, model.inputs, drops).shape == (3,)
    # From half of each item, whose logits are those of the whole, to the whole: nothing in all.
    paths = IntegratedGradients(model).attribute(
        model.inputs, baselines=model.inputs / 2, target=target,
        additional_forward_args=(rows,), n_steps=64,
    )  # fmt: skip
    assert float(paths.abs().sum()) > 1e-3
    np.testing.assert_allclose(paths.sum(1), 0, atol=1e-5)


@pytest.mark.parametrize("kind", ["flan", "han", "pair"])
def test_of_a_model(kind: str) -> None:
    words = Vocabulary(["good", "film", "bad"])
    texts = [
        Example(0, "good film. bad film.", 1, query="good"), Example(1, "bad", 0, query="bad film")
    ]  # fmt: skip
    dataset = encode(texts, words)
    config = ModelConfig(kind=kind, encoder="mlp", embedding_size=4, hidden_size=3, decoder="tanh")
    torch.manual_seed(1)
    model = build_model(config, words, 3 if kind == "pair" else 2)
    made = AttentionModel.of(model, dataset)
    [(_, logits)] = model.attention_outputs(dataset)
    torch.testing.assert_close(made(made.inputs), logits, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="dataset: given no documents, needed at least one"):
        AttentionModel.of(model, dataset[:0])


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_of_a_transformer(unit: Any) -> None:
    """Its batches count positions: two special tokens of a text, and "films" has two pieces."""
    model = tiny("bert", TransformerConfig(unit=unit, special="items"))
    dataset = texts_of(model, [["a", "films"], ["good", "film", "bad"]])
    made = AttentionModel.of(model, dataset)
    # [CLS], words or pieces, [SEP].
    assert made.inputs.sum(1).tolist() == ([4, 5] if unit == "words" else [5, 5])
    [(_, logits)] = model.attention_outputs(dataset)
    torch.testing.assert_close(made(made.inputs), logits, rtol=1e-5, atol=1e-5)
    model = tiny("bert", TransformerConfig(unit=unit))
    with pytest.raises(ValueError, match=r"model: given a transformer .* needed special='items'"):
        AttentionModel.of(model, texts_of(model, [["a", "films"]]))


def test_the_mode_of_a_head_is_that_of_the_module() -> None:
    values, offsets = torch.ones(2, 4), torch.tensor([0, 2])
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)).eval()
    model = AttentionModel(fae.AttentionBatch(values, offsets, weights=torch.ones(2), head=head))
    assert not model.training  # else a library that turns modes back would train the head
    model.train()
    assert head[0].training
    model.eval()
    assert not head[0].training
    torch.testing.assert_close(model(model.inputs), head[1](torch.ones(1, 4)))


def test_an_instance_that_is_not_finite_is_its_own_affair() -> None:
    """The values of other instances stand before columns without an item."""
    values = torch.tensor([[torch.inf], [1.0], [2.0]])
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 2, 3]), weights=torch.ones(3), head_weight=torch.ones(2, 1)
    )
    model = AttentionModel(batch)
    assert model(model.inputs)[1].tolist() == [2.0, 2.0]
    found = prefix_erasure(model, model.inputs, torch.ones(2, 2))
    assert found.isnan().tolist() == [True, False]


def test_what_weighed_next_to_nothing_is_all_that_is_left() -> None:
    """Beside a score of 200, one of 0 has a weight of 1e-87, which float32 has no number for."""
    batch = fae.AttentionBatch(
        torch.eye(3), torch.tensor([0, 3]), scores=torch.tensor([200.0, 1.0, 0.0]),
        head_weight=torch.eye(3),
    )  # fmt: skip
    found = AttentionModel(batch)(torch.tensor([[0.0, 1.0, 1.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.7310586, 0.2689414]]))


@pytest.mark.filterwarnings("ignore:head. one class, so nothing can flip")
def test_one_output_has_no_curves() -> None:
    head = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    batch = fae.AttentionBatch(
        torch.ones(2, 4), torch.tensor([0, 2]), weights=torch.ones(2), head=head
    )
    model = AttentionModel(batch)
    assert model(model.inputs).shape == (1, 1)
    with pytest.raises(ValueError, match="model: given one output, whose probability is always 1"):
        prefix_erasure(model, model.inputs, torch.ones(1, 2))


def test_no_item_at_all() -> None:
    batch = fae.AttentionBatch(
        torch.zeros(0, 4), torch.tensor([0, 0]), weights=torch.zeros(0),
        head_weight=torch.ones(2, 4), head_bias=torch.tensor([1.0, 2.0]),
    )  # fmt: skip
    model = AttentionModel(batch)
    assert model(model.inputs).tolist() == [[1.0, 2.0]]


def test_bad_input_gets_one_line() -> None:
    model, scores = AttentionModel(batch_of("linear")), attributions()
    other = model.inputs.clone()
    other[1, 0] = 0.0
    bad = scores.clone()
    bad[1, 3] = torch.nan
    for inputs, given, options, message in (
        (other, scores, {}, "inputs: given others than model.inputs in row 1, needed 1 where"),
        (other[:2], scores, {}, "inputs: given [2, 6], needed [3, 6] or [3, 1, 6]"),
        ((other, other), scores, {}, "inputs: given 2 tensors, needed one"),
        (model.inputs, scores[:, :5], {}, "attributions: given [3, 5], needed [3, 6], [3, 1, 6]"),
        (model.inputs, bad, {}, "attributions: given NaN in instance 1 at 3, needed numbers"),
        (model.inputs, scores, {"target": 3}, "target: given [3, 3, 3], needed [3] of 0 to 2"),
        (model.inputs, scores, {"measure": "auc"}, "measure: given 'auc', needed one of aopc_"),
        (model.inputs, scores, {"preset": "mine"}, "preset: given 'mine', needed one of eraser"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            prefix_erasure(model, inputs, given, **options)  # type: ignore[arg-type]
    for target, message in (
        (1.7, "target: given torch.float32, needed integers, the classes"),
        (torch.tensor([0.0, 1, 2]), "target: given torch.float32, needed integers"),
        (True, "target: given torch.bool, needed integers"),
        ([None, 1, 2], "target: given [None, 1, 2], needed integers"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            prefix_erasure(model, model.inputs, scores, target=target)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"attributions: given torch\.complex64, needed real"):
        prefix_erasure(model, model.inputs, scores.to(torch.complex64))
    with pytest.raises(TypeError, match="batch: given Linear, needed an AttentionBatch"):
        AttentionModel(nn.Linear(6, 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="forward_func: given Linear, needed an interop"):
        prefix_erasure(nn.Linear(6, 2), model.inputs, scores)
    with pytest.raises(TypeError, match="forward_func: given function, needed an interop"):
        prefix_erasure(lambda x: x, model.inputs, scores)
    with pytest.raises(ValueError, match=re.escape("present: given [3, 5], needed [M, 6] or")):
        model(other[:, :5])
    with pytest.raises(ValueError, match="instance: given none for 2 rows, needed the instance"):
        model(other[:2])
    for rows in ([0, 1, -1], [0, 1, 3], [0]):
        message = f"instance: given {rows}, needed [3] of 0 to 2"
        with pytest.raises(ValueError, match=re.escape(message)):
            model(other, torch.tensor(rows))
    with pytest.raises(TypeError, match=r"instance: given torch\.bool, needed int64"):
        model(other, torch.ones(3).bool())
