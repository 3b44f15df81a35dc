"""Layer-wise relevance propagation by hand, against loops over numbers, and its conservation."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from saliency.lrp_oracle import error_of, relevance_of
from saliency.small_models import LENGTHS, WORDS, dataset_of, model_of
from torch import Tensor, nn

from fastattnerase import saliency
from fastattnerase.data import Dataset, Vocabulary, collate
from fastattnerase.models import ModelConfig, ModelError, build_model
from fastattnerase.models.encoders import Encoder, NoEncoder
from fastattnerase.saliency.lrp.encoders import ENCODER_RULES, encoder_rule
from fastattnerase.saliency.lrp.recurrent import gru, lstm
from fastattnerase.saliency.lrp.rules import Rule, average, largest, linear_inputs, linear_units

ENCODERS = ("rnn", "bilstm", "conv", "cnn", "mlp", "noenc")
ATTENTIONS = ("additive", "deep", "dot", "uniform")
MECHANISMS = ("softmax", "gumbel", "sparsemax")
# Kind, head, more of the configuration.
HEADS: list[tuple[str, str, dict[str, Any]]] = [
    ("flan", "softmax", {}),
    ("flan", "sigmoid", {}),
    ("han", "softmax", {}),
    ("han", "sigmoid", {}),
    ("sequence", "softmax", {}),
    ("sequence", "sigmoid", {}),
    ("pair", "softmax", {"decoder": "tanh"}),
    ("pair", "softmax", {"decoder": "linear"}),
    ("pair", "softmax", {"decoder": "query"}),
]


def allowing(dataset: Dataset) -> Dataset:
    """The same documents, each with classes 0 and 1 allowed alone, but the second with all."""
    return Dataset(
        [
            replace(document, answers=None if n == 1 else np.array([0, 1]))
            for n, document in enumerate(dataset)
        ]
    )


# Each encoder with one mechanism, and each kind and head with each encoder under one rule.
WITH_MECHANISM = list(zip(ENCODERS, (*MECHANISMS, *MECHANISMS), strict=True))
RULES = [(1e-3, 1), (1e-3, 0), (0.3, 1)]
PARTS = [
    (*made, *parts, *RULES[(i + j) % 3])
    for i, made in enumerate(HEADS)
    for j, parts in enumerate(WITH_MECHANISM)
]


@pytest.mark.parametrize(
    ("kind", "head", "more", "encoder", "mechanism", "epsilon", "delta"), PARTS
)
def test_equals_loops_over_numbers(
    kind: str,
    head: str,
    more: dict[str, Any],
    encoder: str,
    mechanism: str,
    epsilon: float,
    delta: int,
) -> None:
    """Batched and padded, against one document at a time: words, sinks, output, error."""
    model = model_of(
        kind, encoder, "additive", head, mechanism=mechanism, cnn_widths=(1, 5), **more
    )
    with torch.no_grad():  # biases are 0 in a new model
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.add_(torch.linspace(-0.5, 0.7, parameter.numel(), dtype=torch.float64))
    dataset = dataset_of([[3, 2], [1], [], [4, 1]])
    if kind == "pair":
        dataset = allowing(dataset)
    targets = [0, 1, 1, 0]
    found = saliency.attribute(model, dataset, "lrp", targets, epsilon=epsilon, delta=delta)
    assert found.delta is not None
    sinks = {name for name in found.details if name.startswith("sink_")}
    for b, scores in enumerate(found.split()):
        if not len(scores):
            assert math.isnan(float(found.delta[b]))
            continue
        words, taken, output = relevance_of(model, dataset[b : b + 1], targets[b], epsilon, delta)
        size = max(1.0, abs(words).sum())
        np.testing.assert_allclose(scores.numpy(), words, rtol=1e-8, atol=1e-9 * size)
        assert float(found.details["output"][b]) == pytest.approx(output, rel=1e-10)
        for name, amount in taken.items():
            assert float(found.details[f"sink_{name}"][b]) == pytest.approx(
                amount, rel=1e-8, abs=1e-9 * size
            )
        assert sinks == {f"sink_{name}" for name in taken} | (sinks & {"sink_query"})
        assert float(found.delta[b]) == pytest.approx(
            error_of(words, taken, output), rel=1e-6, abs=1e-12
        )
        assert (float(found.delta[b]) < 1e-10) == (delta == 1)
        assert float(found.details["magnitude"][b]) == pytest.approx(
            abs(words).sum() + sum(map(abs, taken.values())), rel=1e-8
        )


@pytest.mark.parametrize(("kind", "head", "more"), HEADS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_part_conserves(kind: str, head: str, more: dict[str, Any], encoder: str) -> None:
    dataset = dataset_of([[3, 2], [1]])
    for attention, mechanism in product(ATTENTIONS, MECHANISMS):
        model = model_of(kind, encoder, attention, head, mechanism=mechanism, **more).float()
        found = saliency.attribute(model, dataset, "lrp", 0)
        assert found.delta is not None
        assert float(found.delta.max()) < 1e-10
        with torch.no_grad():
            logits = model.eval()(collate(dataset.documents)).logits  # [B, C], float32
        wanted = logits[:, 0] if head == "softmax" else -logits[:, 1]
        torch.testing.assert_close(found.details["output"], wanted.double(), rtol=1e-4, atol=1e-5)


def one_unit(kind: type[nn.LSTM] | type[nn.GRU]) -> tuple[nn.LSTM | nn.GRU, Tensor, float]:
    """A layer whose gates are all ½, with `tanh` signals .8 and .4, so that states are .4 and .4.

    Of the second signal, `a = artanh(.4)`, the input gives a half, the state before and the bias a
    quarter each. Gives the layer, the inputs `[2, 1, 1]`, and what the bias is of the first signal.
    """
    a, first = math.atanh(0.4), math.atanh(0.8)
    layer = kind(1, 1).double()
    inputs = torch.tensor([[[first - a / 4]], [[a / 2]]], dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.get_parameter("weight_ih_l0")[2] = 1.0
        if kind is nn.LSTM:  # c_1 = .4, h_1 = ½ tanh(.4)
            layer.get_parameter("weight_hh_l0")[2] = a / 4 / (0.5 * math.tanh(0.4))
            layer.get_parameter("bias_ih_l0")[2] = a / 8
            layer.get_parameter("bias_hh_l0")[2] = a / 8
        else:  # h_1 = .4; the reset gate takes half of U h and of its bias
            layer.get_parameter("weight_hh_l0")[2] = a / 4 / (0.5 * 0.4)
            layer.get_parameter("bias_ih_l0")[2] = a / 8
            layer.get_parameter("bias_hh_l0")[2] = a / 4
    return layer, inputs, a / 4 / first


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_two_steps_by_hand(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    """Relevance 1 of the last state, `ε = 0`.

    State 2 is half from state 1, half from signal 2. Of that half the input gets a half and its
    share of the bias, 1/8; state 1 gets a quarter and 1/8. State 1 then has ½ + 3/16 = 11/16, all
    from signal 1: the initial state gets its half of the bias, the input the rest.
    """
    layer, inputs, bias = one_unit(kind)
    run: Any = lstm if kind is nn.LSTM else gru
    last = torch.tensor([[[0.0]], [[1.0]]], dtype=torch.float64)
    with torch.no_grad():
        states, back = run(layer, inputs, Rule(0.0, 1))
        expected, _ = layer(inputs)
        torch.testing.assert_close(states, expected)
        found, initial = back(last)
        wanted = [11 / 16 * (1 - bias / 2), 5 / 16]
        assert found.flatten().tolist() == pytest.approx(wanted, rel=1e-12)
        assert float(initial["h_0"][0]) == pytest.approx(11 / 16 * bias / 2, rel=1e-12)
        assert set(initial) == ({"h_0", "c_0"} if kind is nn.LSTM else {"h_0"})
        assert all(float(initial[name][0]) == 0.0 for name in set(initial) - {"h_0"})
        # Without the bias's shares: 1/4 to the input, 1/2 + 1/8 to state 1.
        found, initial = run(layer, inputs, Rule(0.0, 0))[1](last)
        assert found.flatten().tolist() == pytest.approx([5 / 8 * (1 - bias), 1 / 4], rel=1e-12)
        assert float(initial["h_0"][0]) == 0.0


def test_two_steps_by_hand_with_epsilon() -> None:
    """`ε = 1`, LSTM: each denominator 1 larger, its 1 shared out in halves."""
    layer, inputs, _ = one_unit(nn.LSTM)
    a, first = math.atanh(0.4), math.atanh(0.8)
    last = torch.tensor([[[0.0]], [[1.0]]], dtype=torch.float64)
    assert isinstance(layer, nn.LSTM)
    with torch.no_grad():
        found, initial = lstm(layer, inputs, Rule(1.0, 1))[1](last)
    half = (0.2 + 0.5) / 1.4  # to either summand of c_2 = .2 + .2
    second = (a / 2 + (1 + a / 4) / 2) / (a + 1) * half
    to_cell = half + (a / 4 + (1 + a / 4) / 2) / (a + 1) * half  # of c_1 = 0 + .4
    to_signal, to_c_0 = (0.4 + 0.5) / 1.4 * to_cell, 0.5 / 1.4 * to_cell
    share = (1 + a / 4) / 2
    assert found.flatten().tolist() == pytest.approx(
        [(first - a / 4 + share) / (first + 1) * to_signal, second], rel=1e-12
    )
    assert float(initial["h_0"][0]) == pytest.approx(share / (first + 1) * to_signal, rel=1e-12)
    assert float(initial["c_0"][0]) == pytest.approx(to_c_0, rel=1e-12)


@pytest.mark.parametrize("encoder", ["bilstm", "rnn"])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-6])
@pytest.mark.parametrize("kind", ["flan", "sequence"])
def test_conserved_through_200_steps(encoder: str, epsilon: float, kind: str) -> None:
    config = ModelConfig(kind=kind, encoder=encoder, embedding_size=12, hidden_size=10)
    model = build_model(config, Vocabulary(WORDS), 2)  # float32, as models are trained
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=draw))
    found = saliency.attribute(model, dataset_of([[200], [137, 63], [9]]), "lrp", epsilon=epsilon)
    assert found.delta is not None
    assert float(found.delta.max()) < 1e-4
    states = ("h_0", "c_0") if encoder == "bilstm" else ("h_0",)
    named = {f"sink_words_{s}_{way}" for s in states for way in ("ahead", "back")}
    if kind == "sequence":
        named |= {"sink_words_start_marker", "sink_words_end_marker"}
    assert set(found.details) == named | {"output", "magnitude"}
    assert all(float(found.details[name].abs().max()) > 0 for name in named)
    held = saliency.attribute(model, dataset_of([[200]]), "lrp", epsilon=0.1)
    assert float(held.details["magnitude"][0]) < float(found.details["magnitude"][0])
    lost = saliency.attribute(model, dataset_of([[200]]), "lrp", epsilon=epsilon, delta=0)
    assert lost.delta is not None
    assert float(lost.delta[0]) > 1e-4


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_all_methods_agree_on_a_linear_model(head: str) -> None:
    """`f = w · x̄ + b`: `w · x_i / n`, with `δ = 0` and `ε` next to 0; omission by its form."""
    model = model_of("flan", "noenc", "uniform", head)
    with torch.no_grad():
        model.classifier.bias.add_(0.3)
    dataset = dataset_of([[5, 2]])
    words = model.embed(collate(dataset.documents)).detach()
    weight = model.classifier.weight[0].detach() * (1.0 if head == "softmax" else -1.0)
    wanted = words @ weight / 7
    options: dict[str, dict[str, Any]] = {"lrp": {"delta": 0, "epsilon": 1e-13}}
    for method in ("gradient_x_input", "integrated_gradients", "occlusion", "lrp"):
        found = saliency.attribute(model, dataset, method, 0, **options.get(method, {}))
        torch.testing.assert_close(found.scores, wanted, rtol=1e-9, atol=1e-10)
    found = saliency.attribute(model, dataset, "omission", 0)
    wanted = (words - words.mean(0)) @ weight / 6
    torch.testing.assert_close(found.scores, wanted, rtol=1e-9, atol=1e-12)


def test_margin_is_a_unit_with_the_difference_of_two_weights() -> None:
    """Three classes: the margin's relevance is that of a model of one logit `z_0 − z_r`."""
    model = model_of("flan", "mlp", "additive", "softmax")
    dataset = dataset_of([[4]])
    found = saliency.attribute(model, dataset, "lrp", 0, "margin")
    logits = model.eval()(collate(dataset.documents)).logits[0].detach()
    rival = 1 + int(logits[1:].argmax())
    with torch.no_grad():
        model.classifier.weight[0] -= model.classifier.weight[rival]
        model.classifier.bias[0] -= model.classifier.bias[rival]
    wanted = saliency.attribute(model, dataset, "lrp", 0)
    torch.testing.assert_close(found.scores, wanted.scores, rtol=1e-9, atol=1e-12)
    assert float(found.details["output"][0]) == pytest.approx(float(logits[0] - logits[rival]))


@pytest.mark.parametrize("kind", ["flan", "han", "sequence", "pair"])
@pytest.mark.parametrize("encoder", ["bilstm", "conv"])
def test_scores_do_not_depend_on_the_batch(kind: str, encoder: str) -> None:
    model = model_of(kind, encoder, "additive", "softmax").float()
    modes = [module.training for module in model.modules()]
    dataset = dataset_of(LENGTHS)
    together = saliency.attribute(model, dataset, "lrp")
    one = 8 * (9 * 5 + 20 * 8)  # a word's vectors in float64
    small = saliency.attribute(model, dataset, "lrp", max_bytes=10 * one)
    assert small.chunk == 10
    assert together.chunk > 10
    # Logits are float32 and choose the class alone.
    torch.testing.assert_close(small.scores, together.scores, rtol=1e-9, atol=1e-10)
    for name, amounts in together.details.items():
        torch.testing.assert_close(small.details[name], amounts, rtol=1e-9, atol=1e-10)
    assert [module.training for module in model.modules()] == modes
    assert all(p.dtype == torch.float32 and p.grad is None for p in model.parameters())
    with pytest.raises(ModelError, match=r"max_bytes: given 1,640, needed at least"):
        saliency.attribute(model, dataset, "lrp", max_bytes=one)


def test_an_output_of_exactly_zero() -> None:
    """Words whose vectors are 0 under a bias: every average is 0 and has its share to pass on."""
    model = model_of("flan", "noenc", "uniform", "softmax")
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.classifier.bias.fill_(1.0)
    dataset = dataset_of([[2], []])
    found = saliency.attribute(model, dataset, "lrp", 0)
    # sign(0) = 1: z = 1 + ε, every share is alike.
    assert found.scores.tolist() == pytest.approx([0.5, 0.5], rel=1e-12)
    with pytest.raises(ModelError, match=r"epsilon: given 0.*instance 0 \(id 0\).*exactly 0"):
        saliency.attribute(model, dataset, "lrp", 0, epsilon=0)
    nothing = saliency.attribute(model, dataset, "lrp", 0, epsilon=0, delta=0)
    assert nothing.scores.tolist() == [0.0, 0.0]
    with torch.no_grad():
        model.classifier.bias.zero_()
    none = saliency.attribute(model, dataset, "lrp", 0, epsilon=0)
    assert none.scores.tolist() == [0.0, 0.0]
    assert none.delta is not None
    assert float(none.delta[0]) == 0.0


@pytest.mark.parametrize("encoder", ["bilstm", "rnn", "conv", "mlp"])
def test_padding_words_of_zeros_stay_finite(encoder: str) -> None:
    model = model_of("sequence", encoder, "additive", "sigmoid")
    with torch.no_grad():
        model.embedding.weight[:5] = 0
        model.get_parameter("markers").zero_()
    found = saliency.attribute(model, dataset_of([[6, 3], [2]]), "lrp", epsilon=1e-6)
    assert bool(found.scores.isfinite().all())
    assert found.delta is not None
    assert float(found.delta.max()) < 1e-10


class Normalised(NoEncoder):
    """An encoder with a layer that has no rule."""

    def __init__(self, size: int) -> None:
        nn.Module.__init__(self)
        self.output_size = size
        self.norm = nn.LayerNorm(size)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        return torch.as_tensor(self.norm(values))


def test_what_has_no_rule_is_refused_by_name() -> None:
    dataset = dataset_of([[3]])
    model: Any = model_of("flan", "noenc", "uniform", "softmax")
    model.words.encoder = Normalised(5).double()
    with pytest.raises(ModelError, match=r"layer: given words\.encoder, a Normalised, for which"):
        saliency.attribute(model, dataset, "lrp")
    model = model_of("flan", "rnn", "uniform", "softmax")
    model.words.encoder.ahead = nn.GRU(5, 2, bidirectional=True).double()
    with pytest.raises(ModelError, match=r"layer: given GRU\(5, 2, bidirectional=True\), needed"):
        saliency.attribute(model, dataset, "lrp")
    model = model_of("flan", "noenc", "uniform", "softmax")
    model.classifier = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 3)).double()
    model.classifier.weight = model.classifier[1].weight
    with pytest.raises(ModelError, match="layer: given classifier, a Sequential, for which"):
        saliency.attribute(model, dataset, "lrp")
    own = type("Own", (type(model_of("flan", "noenc", "uniform", "softmax")),), {})
    model = model_of("flan", "noenc", "uniform", "softmax")
    model.__class__ = own
    with pytest.raises(ModelError, match="model: given a Own, whose layers LRP does not know"):
        saliency.attribute(model, dataset, "lrp")


def test_bad_options_are_refused() -> None:
    model, dataset = model_of("flan", "noenc", "uniform", "softmax"), dataset_of([[3]])
    with pytest.raises(ModelError, match="output: given probability, needed logit or margin"):
        saliency.attribute(model, dataset, "lrp", output="probability")
    for epsilon in (-1.0, math.nan, math.inf):
        with pytest.raises(ModelError, match=f"epsilon: given {epsilon}, needed a finite"):
            saliency.attribute(model, dataset, "lrp", epsilon=epsilon)
    with pytest.raises(ModelError, match="delta: given 2, needed 0 or 1"):
        saliency.attribute(model, dataset, "lrp", delta=2)


def test_an_encoder_of_ones_own_brings_its_rule() -> None:
    """Maxima and means of the words, side by side, as every item's state."""

    class Pooled(Encoder):
        output_size = 10

        def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
            texts = values.split(lengths.tolist())
            rows = [torch.cat([text.amax(0), text.mean(0)]).expand(len(text), -1) for text in texts]
            return torch.cat(rows)

    @encoder_rule(Pooled)
    def pooled(encoder: Pooled, values: Tensor, lengths: Tensor, rule: Rule) -> Any:
        def back(relevance: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            total = torch.stack([part.sum(0) for part in relevance.split(lengths.tolist())])
            share = lengths.double().reciprocal().repeat_interleave(lengths)
            to_maxima = largest(total[:, :5], values, lengths)
            return to_maxima + average(total[:, 5:], values, share, lengths, rule), {}

        return encoder(values, lengths), back

    try:
        model: Any = model_of("flan", "noenc", "uniform", "softmax")
        model.words.encoder = Pooled()
        model.classifier = nn.Linear(10, 3).double()
        found = saliency.attribute(model, dataset_of([[3, 4], [1]]), "lrp")
        assert found.delta is not None
        assert float(found.delta.max()) < 1e-12
    finally:
        del ENCODER_RULES[Pooled]


def test_pooling_and_linear_layers_by_hand() -> None:
    values = torch.tensor([[1.0, -1.0], [2.0, -3.0], [2.0, -2.0], [7.0, 0.0]])
    lengths = torch.tensor([3, 0, 1])
    # Largest: the first 2 of a tie; no words, no relevance.
    found = largest(torch.tensor([[5.0, 6.0], [9.0, 9.0], [1.0, 2.0]]), values, lengths)
    assert found.tolist() == [[0.0, 6.0], [5.0, 0.0], [0.0, 0.0], [1.0, 2.0]]
    # Averages 2 · (1, 2, 2) / 10 = 1 and −(1 + 3 + 2) / 5 with ε = 1, whose share is a third.
    weights = torch.tensor([0.2, 0.2, 0.2, 1.0])
    relevance = torch.tensor([[4.0, 11.0], [9.0, 9.0], [8.0, 0.0]])
    found = average(relevance, values, weights, lengths, Rule(1.0))
    third = 1 / 3
    wanted = torch.tensor(
        [
            [2 * (0.2 + third), -5 * (-0.2 - third)],
            [2 * (0.4 + third), -5 * (-0.6 - third)],
            [2 * (0.4 + third), -5 * (-0.4 - third)],
            [8.0, 0.0],
        ]
    )
    torch.testing.assert_close(found, wanted)
    assert found[:3].sum(0).tolist() == pytest.approx([4.0, 11.0], rel=1e-6)
    # z = (3 − 1 + 2, −1): relevance 8 and 4; N = 2; ε = 1, then signs of z.
    z, bias = torch.tensor([4.0, -1.0]), torch.tensor([2.0, 0.0])
    weight = torch.tensor([[3.0, -1.0], [0.0, -1.0]])
    units = linear_units(torch.tensor([8.0, 4.0]), z, bias, 2, Rule(1.0, 1))
    # (3 + 3/2) 8/5 + (−1/2) 4/−2 and (−1 + 3/2) 8/5 + (−1 − 1/2) 4/−2
    assert linear_inputs(torch.ones(2), weight, units).tolist() == pytest.approx([8.2, 3.8])
