"""Encoders and attention: sizes and initial values of the paper, and no leak between sequences."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from fastattnerase.data import Vocabulary
from fastattnerase.models import (
    ATTENTIONS,
    ENCODERS,
    ModelConfig,
    ModelError,
    build_model,
)
from fastattnerase.models.encoders import ConvEncoder, GRUEncoder

LENGTHS = [7, 0, 1, 30, 12, 2, 0]


def sequences(width: int, lengths: list[int] = LENGTHS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(length, width, generator=generator) for length in lengths]


@pytest.mark.parametrize("encoder", ["rnn", "conv", "noenc"])
def test_a_sequence_alone_or_in_a_batch_is_encoded_alike(encoder: str) -> None:
    torch.manual_seed(0)
    module = ENCODERS[encoder](6, ModelConfig(hidden_size=5)).eval()
    parts = sequences(6)
    together = module(torch.cat(parts), torch.tensor(LENGTHS))
    assert together.shape == (sum(LENGTHS), module.output_size)
    alone = [module(part, torch.tensor([len(part)])) for part in parts]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-6)
    for order in (torch.arange(6, -1, -1), torch.tensor([3, 0, 5, 1, 6, 2, 4])):
        shuffled = module(
            torch.cat([parts[i] for i in order]), torch.tensor([LENGTHS[i] for i in order])
        )
        wanted = torch.cat([alone[i] for i in order])
        torch.testing.assert_close(shuffled, wanted, rtol=0, atol=1e-6)


def test_gru_is_torch_s_bidirectional_gru() -> None:
    torch.manual_seed(0)
    encoder = GRUEncoder(6, ModelConfig(hidden_size=5, initialisation="code"))
    reference = nn.GRU(6, 5, bidirectional=True)
    state = dict(encoder.ahead.state_dict())
    state |= {f"{name}_reverse": p for name, p in encoder.back.state_dict().items()}
    reference.load_state_dict(state)
    parts = [part for part in sequences(6) if len(part)]
    states = unpack_sequence(reference(pack_sequence(parts, enforce_sorted=False))[0])
    inputs = torch.cat(parts).requires_grad_()
    got = encoder(inputs, torch.tensor(LENGTHS))
    torch.testing.assert_close(got, torch.cat(states), rtol=0, atol=1e-6)

    weights = torch.randn(got.shape, generator=torch.Generator().manual_seed(1))
    (got * weights).sum().backward()
    again = [part.clone().requires_grad_() for part in parts]
    states = unpack_sequence(reference(pack_sequence(again, enforce_sorted=False))[0])
    (torch.cat(states) * weights).sum().backward()
    assert inputs.grad is not None
    wanted = torch.cat([part.grad for part in again if part.grad is not None])
    torch.testing.assert_close(inputs.grad, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        encoder.back.weight_hh_l0.grad, reference.weight_hh_l0_reverse.grad, rtol=1e-4, atol=1e-4
    )


def test_conv_by_its_definition() -> None:
    torch.manual_seed(0)
    encoder = ConvEncoder(3, ModelConfig(hidden_size=2)).eval()
    parts = sequences(3)
    got = encoder(torch.cat(parts), torch.tensor(LENGTHS))
    rows = []
    for part in parts:
        padded = torch.cat([torch.zeros(2, 3), part, torch.zeros(2, 3)])
        for i in range(len(part)):
            channels = []
            for convolution, width in zip(encoder.convolutions, (3, 5), strict=True):
                window = padded[i + 2 - width // 2 : i + 3 + width // 2]  # [width, 3]
                for channel in range(2):
                    kernel = convolution.weight[channel].T  # [width, 3]
                    channels.append((window * kernel).sum() + convolution.bias[channel])
            rows.append(torch.stack(channels).clamp_min(0))
    torch.testing.assert_close(got, torch.stack(rows), rtol=0, atol=1e-5)


def test_conv_has_dropout_on_its_input() -> None:
    encoder = ConvEncoder(3, ModelConfig(hidden_size=2))
    assert encoder.dropout.p == 0.3
    values = torch.ones(50, 3)
    torch.manual_seed(0)
    dropped = encoder(values, torch.tensor([50]))
    assert not torch.equal(dropped, encoder.eval()(values, torch.tensor([50])))


def test_additive_attention_by_its_definition() -> None:
    torch.manual_seed(0)
    attention = ATTENTIONS["additive"](4, ModelConfig(attention_size=3))
    parameters = dict(attention.named_parameters())
    assert {name: list(p.shape) for name, p in parameters.items()} == {
        "project.weight": [3, 4],
        "project.bias": [3],
        "context.weight": [1, 3],
    }
    values = torch.randn(5, 4)
    hidden = torch.tanh(values @ parameters["project.weight"].T + parameters["project.bias"])
    torch.testing.assert_close(attention(values), hidden @ parameters["context.weight"][0])


RNN = [[150, 200], [150, 50], [150], [150]]
SHAPES = {
    "rnn": [*RNN, *RNN],
    "conv": [[50, 200, 3], [50], [50, 200, 5], [50]],
    "noenc": [],
}
SENTENCE_SHAPES = {
    "rnn": [[150, 100], *RNN[1:], [150, 100], *RNN[1:]],
    "conv": [[50, 100, 3], [50], [50, 100, 5], [50]],
    "noenc": [],
}


@pytest.mark.parametrize("encoder", ["rnn", "conv", "noenc"])
@pytest.mark.parametrize("kind", ["flan", "han"])
def test_sizes_of_the_paper(kind: str, encoder: str, vocabulary: Vocabulary) -> None:
    model = build_model(ModelConfig(kind=kind, encoder=encoder), vocabulary, 5)
    width = 200 if encoder == "noenc" else 100
    attention = [[width, width], [width], [1, width]]
    levels = [*SHAPES[encoder], *attention]
    if kind == "han":
        levels += [*SENTENCE_SHAPES[encoder], *attention]
    shapes = [list(p.shape) for p in model.parameters()]
    assert sorted(shapes) == sorted([[18, 200], [5, width], [5], *levels])
    assert model.classifier.weight.shape == (5, width)


@pytest.mark.parametrize("initialisation", ["plain", "code"])
def test_initial_values(initialisation: str, vocabulary: Vocabulary) -> None:
    config = ModelConfig(initialisation=initialisation)  # type: ignore[arg-type]
    model = build_model(config, vocabulary, 3)
    encoder = model.words.encoder
    assert isinstance(encoder, GRUEncoder)
    for gru in (encoder.ahead, encoder.back):
        hidden = gru.weight_hh_l0.detach()
        torch.testing.assert_close(hidden.T @ hidden, torch.eye(50), rtol=0, atol=1e-5)
        bound = (6 / (200 + 150)) ** 0.5
        inputs = gru.weight_ih_l0.detach()
        assert 0.98 * bound < inputs.abs().max() <= bound
        assert gru.bias_ih_l0.abs().sum() == 0
        wanted = torch.zeros(150)
        if initialisation == "code":
            wanted[37:74] = 1.0  # 13 reset and 24 update gates of 50 each
        assert torch.equal(gru.bias_hh_l0.detach(), wanted)
    bound = (6 / (100 + 3)) ** 0.5
    assert 0.9 * bound < model.classifier.weight.detach().abs().max() <= bound
    assert model.classifier.bias.abs().sum() == 0
    embeddings = model.embedding.weight.detach()
    assert embeddings[0].abs().sum() == 0
    assert embeddings[1:].norm(dim=1).mean() == pytest.approx(1, abs=0.05)


def test_the_seed_decides_the_initial_values_and_the_random_state_stays(
    vocabulary: Vocabulary,
) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (
        build_model(ModelConfig(seed=seed), vocabulary, 2).state_dict() for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])


def test_embeddings_set_the_width(vocabulary: Vocabulary) -> None:
    table = torch.randn(18, 7, generator=torch.Generator().manual_seed(0))
    table[0] = 0
    model = build_model(ModelConfig(encoder="noenc"), vocabulary, 2, table)
    assert model.config.embedding_size == 7
    assert torch.equal(model.embedding.weight.detach(), table)
    assert model.classifier.weight.shape == (2, 7)
    assert model.embedding.weight.requires_grad
    with pytest.raises(ModelError, match=r"embeddings: given shape \[17, 7\], needed \[18, 7\]"):
        build_model(ModelConfig(), vocabulary, 2, table[1:])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "tree"}, "kind: given 'tree', needed flan, han, pair or sequence"),
        ({"encoder": "lstm2"}, "encoder: given 'lstm2', needed bilstm, cnn, conv"),
        ({"attention": "max"}, "attention: given 'max', needed additive, deep, dot"),
    ],
)
def test_unknown_parts(values: dict[str, str], message: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(ModelError, match=message):
        build_model(ModelConfig(**values), vocabulary, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: given 0"),
        ({"attention_size": 0}, "attention_size: given 0"),
        ({"dropout_output": 1.0}, "dropout_output: given 1.0"),
        ({"dropout_style": "none"}, "dropout_style: given 'none', needed paper or code"),
        ({"initialisation": "zero"}, "initialisation: given 'zero', needed plain or code"),
    ],
)
def test_bad_configurations(values: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ModelConfig(**values)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="unknown 'colour'"):
        ModelConfig.from_dict({"colour": 1})


def test_one_class_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(ModelError, match="num_classes: given 1, needed at least 2"):
        build_model(ModelConfig(), vocabulary, 1)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ModelError, match="encoder 'rnn' is registered already"):
        ENCODERS.register("rnn")(GRUEncoder)
