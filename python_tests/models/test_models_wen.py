"""The models of Wen et al.: encoders, attentions and mechanisms by their definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

import fastattnerase as fae
from fastattnerase.data import DataConfig, Dataset, Vocabulary, collate
from fastattnerase.models import (
    ATTENTIONS,
    ENCODERS,
    MECHANISMS,
    ModelConfig,
    ModelError,
    build_model,
    load_model,
    save_model,
)
from fastattnerase.models.mechanisms import document_noise
from fastattnerase.models.wen import LSTMEncoder, jain_wallace_model
from fastattnerase.rankings.random import random_keys

MakeDataset = Callable[..., Dataset]
LENGTHS = [7, 0, 1, 30, 12, 2, 0]
NESTED = [[3, 2], [], [1], [4, 4, 9, 1], [2], []]


def sequences(width: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(length, width, generator=generator) for length in LENGTHS]


@pytest.mark.parametrize("encoder", ["bilstm", "cnn", "mlp"])
def test_a_sequence_alone_or_in_a_batch_is_encoded_alike(encoder: str) -> None:
    torch.manual_seed(0)
    module = ENCODERS[encoder](6, ModelConfig(hidden_size=5, conv_dropout=0.0))
    parts = sequences(6)
    together = module(torch.cat(parts), torch.tensor(LENGTHS))
    assert together.shape == (sum(LENGTHS), {"bilstm": 10, "cnn": 25, "mlp": 5}[encoder])
    alone = [module(part, torch.tensor([len(part)])) for part in parts]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-6)


def test_bilstm_is_torch_s_bidirectional_lstm() -> None:
    torch.manual_seed(0)
    encoder = LSTMEncoder(6, ModelConfig(hidden_size=5))
    reference = nn.LSTM(6, 5, bidirectional=True)
    state = dict(encoder.ahead.state_dict())
    state |= {f"{name}_reverse": p for name, p in encoder.back.state_dict().items()}
    reference.load_state_dict(state)
    parts = sequences(6)
    kept = [part for part in parts if len(part)]
    states = unpack_sequence(reference(pack_sequence(kept, enforce_sorted=False))[0])
    got = encoder(torch.cat(parts), torch.tensor(LENGTHS))
    torch.testing.assert_close(got, torch.cat(states), rtol=0, atol=1e-6)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_mlp_by_its_definition(activation: str) -> None:
    module = ENCODERS["mlp"](3, ModelConfig(hidden_size=4, activation=activation))  # type: ignore[arg-type]
    p = module.state_dict()
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    wanted = getattr(torch, activation)(inputs @ p["layer.weight"].T + p["layer.bias"])
    torch.testing.assert_close(module(inputs, torch.tensor([5])), wanted)


def test_deep_and_dot_by_their_definitions() -> None:
    values = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    deep = ATTENTIONS["deep"](4, ModelConfig(attention_size=3, attention_depth=3))
    p = deep.state_dict()
    x = torch.relu(values @ p["layers.0.weight"].T + p["layers.0.bias"])
    for layer in (2, 4):
        x = torch.relu(x @ p[f"layers.{layer}.weight"].T + p[f"layers.{layer}.bias"])
    torch.testing.assert_close(deep(values), x @ p["layers.6.weight"][0])
    assert "layers.6.bias" not in p

    dot = ATTENTIONS["dot"](4, ModelConfig())
    plain = values @ dot.state_dict()["vector.weight"][0]
    torch.testing.assert_close(dot(values), plain)
    scaled = ATTENTIONS["dot"](4, ModelConfig(attention_scaled=True))
    scaled.load_state_dict(dot.state_dict())
    torch.testing.assert_close(scaled(values), plain / 2)
    assert ATTENTIONS["uniform"](4, ModelConfig())(values).tolist() == [0.0] * 6


def sparsemax(scores: torch.Tensor) -> torch.Tensor:
    """The nearest point of the simplex, by bisection of the threshold."""
    low, high = float(scores.max()) - 1, float(scores.max())
    for _ in range(200):
        middle = (low + high) / 2
        if float((scores - middle).clamp(min=0).sum()) > 1:
            low = middle
        else:
            high = middle
    return (scores - low).clamp(min=0)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 1e4])
def test_sparsemax_against_bisection(scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    parts = [scale * torch.randn(n, generator=generator, dtype=torch.float64) for n in LENGTHS]
    module = MECHANISMS["sparsemax"](ModelConfig(mechanism="sparsemax"))
    keys = torch.arange(len(LENGTHS))
    got = module(torch.cat(parts), torch.tensor(LENGTHS), keys).split(LENGTHS)
    for part, weights in zip(parts, got, strict=True):
        if len(part):
            torch.testing.assert_close(weights, sparsemax(part), rtol=0, atol=1e-10)


def test_sparsemax_by_hand_and_its_gradient() -> None:
    module = MECHANISMS["sparsemax"](ModelConfig(mechanism="sparsemax"))
    scores = torch.tensor([1.0, 0.6, -3.0, 0.2, 0.2], dtype=torch.float64, requires_grad=True)
    lengths, keys = torch.tensor([3, 2]), torch.tensor([0, 1])
    weights = module(scores, lengths, keys)
    torch.testing.assert_close(
        weights.detach(), torch.tensor([0.7, 0.3, 0.0, 0.5, 0.5], dtype=torch.float64)
    )
    assert torch.autograd.gradcheck(lambda x: module(x, lengths, keys), (scores,))


def gumbel(**options: object) -> nn.Module:
    return MECHANISMS["gumbel"](ModelConfig(mechanism="gumbel", **options))  # type: ignore[arg-type]


def test_gumbel_without_noise_is_a_softmax_of_scaled_scores() -> None:
    scores = torch.tensor([0.8, 0.0, 5.0])
    lengths, keys = torch.tensor([2, 1]), torch.tensor([4, 7])
    e = np.exp(1.0)
    wanted = torch.tensor([e / (e + 1), 1 / (e + 1), 1.0], dtype=torch.float32)
    torch.testing.assert_close(gumbel().eval()(scores, lengths, keys), wanted)
    noisy = gumbel(gumbel_evaluation="on").eval()
    first = noisy(scores, lengths, keys)
    assert not torch.allclose(first, wanted)
    assert torch.equal(first, noisy(scores, lengths, keys))
    alone = noisy(scores[:2], lengths[:1], keys[:1])  # the noise is the document's own
    assert torch.equal(alone, first[:2])


def test_gumbel_in_training() -> None:
    scores, lengths, keys = torch.zeros(8), torch.tensor([8]), torch.tensor([4])
    torch.manual_seed(0)
    fresh = gumbel().train()
    assert not torch.equal(fresh(scores, lengths, keys), fresh(scores, lengths, keys))
    shared = gumbel(gumbel_noise="shared").train()
    assert torch.equal(shared(scores, lengths, keys), shared(scores, lengths, keys))
    noise = document_noise(0, keys, lengths).float()
    torch.testing.assert_close(shared(scores, lengths, keys), torch.softmax(noise / 0.8, 0))

    hard = gumbel(gumbel_hard=True, gumbel_noise="shared").train()
    inputs = scores.clone().requires_grad_()
    weights = hard(inputs, lengths, keys)
    assert sorted(weights.tolist()) == [0.0] * 7 + [1.0]
    assert int(weights.argmax()) == int(noise.argmax())
    weights[0].backward()
    soft = scores.clone().requires_grad_()
    shared(soft, lengths, keys)[0].backward()
    torch.testing.assert_close(inputs.grad, soft.grad)


def test_the_noise_is_gumbel_s_and_of_the_engine_s_random_keys() -> None:
    noise = document_noise(3, torch.arange(200), torch.full((200,), 100)).numpy()
    assert noise.mean() == pytest.approx(np.euler_gamma, abs=4 * 1.28 / np.sqrt(20_000))
    assert noise.std() == pytest.approx(np.pi / np.sqrt(6), rel=0.03)
    [key] = document_noise(3, torch.tensor([17]), torch.tensor([1])).tolist()
    uniform = ((random_keys_alone(3, 17) >> 11) + 0.5) * 2.0**-53
    assert key == pytest.approx(-np.log(-np.log(uniform)), rel=1e-12)


def random_keys_alone(seed: int, key: int) -> int:
    """The first key of a document, in Python's integers."""
    from fastattnerase.rankings.random import mix64

    golden, word = 0x9E3779B97F4A7C15, 2**64
    stream = mix64((mix64((seed + golden) % word) + key + golden) % word)
    assert stream != random_keys(seed, 0, key, 1)[0]
    return mix64((stream + golden) % word)


COMBINATIONS = [
    (kind, encoder, attention, mechanism)
    for kind in ("flan", "han", "sequence")
    for encoder in ("bilstm", "cnn", "mlp")
    for attention in ("additive", "deep", "dot")
    for mechanism in ("softmax", "gumbel", "sparsemax")
]


@pytest.mark.parametrize(("kind", "encoder", "attention", "mechanism"), COMBINATIONS)
def test_every_combination_hands_its_own_decision_to_the_engine(
    kind: str,
    encoder: str,
    attention: str,
    mechanism: str,
    vocabulary: Vocabulary,
    make_dataset: MakeDataset,
) -> None:
    config = replace(
        jain_wallace_model(
            encoder, attention, mechanism, embedding_size=6, hidden_size=4, channels=2
        ),
        kind=kind,
        gumbel_evaluation="on",
    )
    model = build_model(config, vocabulary, 2)
    dataset = make_dataset(6, lengths=NESTED)
    together = list(model.attention_outputs(dataset))
    [(batch, logits)] = together
    assert (batch.scores is not None) == (mechanism == "softmax")
    result = fae.erase_prefixes(batch, "attention", curves=("logits",), backend="reference")
    whole = result.curves["logits"][0, result.curve_offsets[:-1]]
    torch.testing.assert_close(whole.float(), logits, rtol=0, atol=1e-5)
    for row, document in enumerate(dataset):  # padding leaks nowhere, noise included
        alone = model.eval()(collate([document]))
        torch.testing.assert_close(alone.logits[0], logits[row], rtol=0, atol=1e-6)
    torch.testing.assert_close(model.eval()(collate(dataset.documents)).logits, logits)


def test_markers_are_read_but_not_attended_to(
    vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    config = jain_wallace_model(embedding_size=6, hidden_size=4)
    vectors = torch.randn(len(vocabulary), 6, generator=torch.Generator().manual_seed(0))
    model = build_model(config, vocabulary, 2, vectors)
    assert model.state_dict()["markers"].tolist() == [[0.0] * 6] * 2
    with torch.no_grad():
        model.get_parameter("markers").copy_(torch.randn(2, 6))
    document = make_dataset(1, lengths=[[3, 2]])[0]
    p = model.state_dict()
    words = torch.cat(
        [p["markers"][:1], p["embedding.weight"][document.token_ids], p["markers"][1:]]
    )
    values = model.get_submodule("words.encoder")(words, torch.tensor([7]))[1:-1]
    output = model(collate([document]))
    torch.testing.assert_close(output.values, values)
    assert output.weights.sum().item() == pytest.approx(1.0, abs=1e-6)
    z = p["classifier.weight"][0] @ (output.weights @ values) + p["classifier.bias"][0]
    torch.testing.assert_close(output.logits[0], torch.stack([torch.zeros(()), z]))


def test_saved_and_loaded(
    vocabulary: Vocabulary, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    model = build_model(
        jain_wallace_model("cnn", "deep", "gumbel", embedding_size=6), vocabulary, 2
    )
    save_model(
        tmp_path, model, vocabulary=vocabulary, classes=["n", "y"], data_config=DataConfig(path="x")
    )
    loaded = load_model(tmp_path).model
    assert loaded.config == model.config
    batch = collate(make_dataset(3).documents)
    assert torch.equal(loaded(batch).logits, model.eval()(batch).logits)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mechanism": "hardmax"}, "mechanism: given 'hardmax', needed gumbel, softmax"),
        ({"attention": "loud"}, "attention: given 'loud'"),
        ({"temperature": 0.0}, "temperature: given 0.0, needed a positive number"),
        ({"gumbel_noise": "old"}, "gumbel_noise: given 'old', needed fresh or shared"),
        ({"activation": "elu"}, "activation: given 'elu', needed tanh or relu"),
        ({"attention_depth": 0}, "attention_depth: given 0"),
    ],
)
def test_bad_configurations(
    values: dict[str, object], message: str, vocabulary: Vocabulary
) -> None:
    with pytest.raises(ModelError, match=message):
        build_model(ModelConfig(**values), vocabulary, 2)  # type: ignore[arg-type]


def test_a_sigmoid_needs_two_classes(vocabulary: Vocabulary) -> None:
    with pytest.raises(ModelError, match="head: given sigmoid with 3 classes"):
        build_model(jain_wallace_model(), vocabulary, 3)
