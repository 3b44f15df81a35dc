"""Models of two texts: attention over one with the other as query, and their decoders."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fastattnerase as fae
from fastattnerase.data import DataConfig, Dataset, TokenisedText, Vocabulary, collate, encode
from fastattnerase.models import (
    ModelConfig,
    ModelError,
    TrainConfig,
    build_model,
    load_model,
    save_model,
    train,
)
from fastattnerase.models.base import evaluating
from fastattnerase.models.pair import PairClassifier
from fastattnerase.models.train_config import jain_wallace_pair_training
from fastattnerase.models.untrained import with_untrained_attention
from fastattnerase.models.wen import jain_wallace_model

WORDS = ["mary", "john", "went", "home", "took", "milk", "where", "is", "who"]
VOCABULARY = Vocabulary(WORDS)
ENCODERS = ["bilstm", "rnn", "cnn", "conv", "mlp", "noenc"]
DECODERS = ["tanh", "linear", "query"]
ATTENTIONS = ["additive", "deep", "dot", "uniform"]


def text(
    number: int, words: str, query: str, label: int = 0, answers: tuple[int, ...] | None = None
) -> TokenisedText:
    return TokenisedText(number, label, [words.split()], [words], query.split(), answers)


TEXTS = [
    text(0, "mary went home", "where is mary", 0),
    text(1, "john took milk john went home john went home", "who took milk", 1, (1, 2)),
    text(2, "milk", "is", 2, (2,)),
    text(3, "john went home mary took milk home", "where is john milk milk", 0),
]


def documents(*numbers: int) -> Dataset:
    return encode([TEXTS[number] for number in numbers or range(4)], VOCABULARY)


def small(**changes: object) -> PairClassifier:
    values = {
        "kind": "pair",
        "encoder": "bilstm",
        "embedding_size": 6,
        "hidden_size": 4,
        "cnn_widths": (1, 3, 5, 7),
        "seed": 3,
    }
    model = build_model(ModelConfig(**(values | changes)), VOCABULARY, 3)  # type: ignore[arg-type]
    assert isinstance(model, PairClassifier)
    return model.eval()


def test_two_texts_by_hand() -> None:
    # The encoder leaves words as they are; attention is h · q / √2, q the mean of the query.
    config = ModelConfig(kind="pair", encoder="noenc", attention="dot", embedding_size=2)
    vocabulary = Vocabulary(["a", "b", "asks", "more"])
    weights = {"linear": [0.75, 0.5], "query": [0.75 + 1.5 * math.log(3), 0.5]}
    for decoder, expected in weights.items():
        model = build_model(replace(config, decoder=decoder), vocabulary, 2).eval()
        assert isinstance(model, PairClassifier)
        with torch.no_grad():
            model.embedding.weight[1:3] = torch.eye(2)
            # The query's mean is (√2 ln 3, 0): the first word scores ln 3, the second 0.
            scale = 2**0.5 * math.log(3)
            model.query_embedding.weight[3:5] = torch.tensor([[2 * scale, 1], [0, -1]])
            model.classifier.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
            if decoder == "query":
                row = torch.tensor([[1.5 / 2**0.5, 0.0], [0.0, 7.0]])
                model.query_classifier.weight.copy_(row)
        batch = collate(encode([text(0, "a b", "asks more")], vocabulary).documents)
        output = model(batch)
        assert output.weights.tolist() == pytest.approx([0.75, 0.25])
        assert output.query.tolist()[0] == pytest.approx([scale, 0.0])
        assert output.logits.tolist()[0] == pytest.approx(expected)


def test_the_tanh_decoder_by_hand() -> None:
    config = ModelConfig(kind="pair", encoder="noenc", attention="uniform", embedding_size=2)
    model = build_model(config, Vocabulary(["a", "b", "asks"]), 2).eval()
    assert isinstance(model, PairClassifier)
    with torch.no_grad():
        model.embedding.weight[1:3] = torch.eye(2)
        model.query_embedding.weight[3] = torch.tensor([0.25, 0.0])
        model.project.weight.copy_(torch.tensor([[2.0, 1.0]]))
        model.project.bias.fill_(0.5)
        model.project_query.weight.copy_(torch.tensor([[4.0, 0.0]]))
        model.project_query.bias.fill_(-0.25)
        model.classifier.weight.copy_(torch.tensor([[1.0], [-2.0]]))
    data = encode([text(0, "a b", "asks")], Vocabulary(["a", "b", "asks"]))
    hidden = math.tanh(1.5 + 0.5 + 1.0 - 0.25)
    assert model(collate(data.documents)).logits.tolist()[0] == pytest.approx([hidden, -2 * hidden])


def encode_one(encoder: nn.Module, rows: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """The states of one sequence `[N + 2, E]` and its vector as a query, both with torch's own."""
    parameters = dict(encoder.named_parameters())
    if config.encoder in ("bilstm", "rnn"):
        kind = nn.LSTM if config.encoder == "bilstm" else nn.GRU
        whole = kind(config.embedding_size, config.hidden_size, bidirectional=True).double()
        for name, parameter in parameters.items():
            direction, _, own = name.partition(".")
            suffix = "_reverse" if direction == "back" else ""
            getattr(whole, own + suffix).data.copy_(parameter)
        states, last = whole(rows[:, None])
        last = last[0] if config.encoder == "bilstm" else last
        return states[:, 0], torch.cat([last[0, 0], last[1, 0]])
    if config.encoder in ("cnn", "conv"):
        parts = [
            F.conv1d(rows.T[None], layer.weight, layer.bias, padding=layer.kernel_size[0] // 2)
            for layer in encoder.convolutions
        ]
        states = torch.cat(parts, 1)[0].T.relu()
        return states, states[1:-1].amax(0)
    states = rows
    if config.encoder == "mlp":
        states = torch.tanh(rows @ parameters["layer.weight"].T + parameters["layer.bias"])
    return states, states[1:-1].mean(0)


def logits_by_brute_force(
    model: PairClassifier, number: int, keep: list[int] | None = None
) -> Tensor:
    """The logits of one document in float64; `keep` masks the attention of all other words."""
    model, config = copied(model), model.config
    [document] = documents(number)
    words = model.embedding.weight[torch.from_numpy(document.token_ids)]
    asked = model.query_embedding.weight[torch.from_numpy(document.query_ids)]
    start, end = model.markers
    states, _ = encode_one(model.words.encoder, torch.stack([start, *words, end]), config)
    start, end = model.query_markers
    _, query = encode_one(model.query_encoder, torch.stack([start, *asked, end]), config)
    h = states[1:-1]
    attention = model.words.attention
    if config.attention == "additive":
        hidden = torch.tanh(attention.project(h) + attention.project_query(query))
        scores = attention.context(hidden)[:, 0]
    elif config.attention == "deep":
        own = attention.project(h) + query @ attention.project_query.weight.T
        scores = attention.layers(own)[:, 0]
    elif config.attention == "dot":
        scores = h @ query / math.sqrt(len(query))
    else:
        scores = torch.zeros(len(h), dtype=torch.float64)
    if keep is not None:
        gone = [i for i in range(len(h)) if i not in keep]
        scores[gone] = -torch.inf
    context = scores.softmax(0) @ h
    if config.decoder == "tanh":
        logits = model.classifier(torch.tanh(model.project(context) + model.project_query(query)))
    else:
        logits = model.classifier(context)
        if config.decoder == "query":
            logits = logits + model.query_classifier.weight @ query
    allowed = TEXTS[number].answers
    lowered = [0.0 if allowed is None or c in allowed else 100.0 for c in range(3)]
    return logits - torch.tensor(lowered)


def copied(model: PairClassifier) -> PairClassifier:
    twin = build_model(model.config, VOCABULARY, 3).double()
    twin.load_state_dict(model.state_dict())
    assert isinstance(twin, PairClassifier)
    return twin.requires_grad_(False)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_forward_is_that_of_each_document_alone_in_float64(encoder: str, decoder: str) -> None:
    for attention in ATTENTIONS:
        model = small(encoder=encoder, decoder=decoder, attention=attention)
        with evaluating(model):
            logits = model(collate(documents().documents)).logits
        for number in range(4):
            wanted = logits_by_brute_force(model, number)
            assert torch.allclose(logits[number].double(), wanted, atol=3e-5, rtol=0), attention


@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_else_is_in_the_batch_changes_nothing(encoder: str) -> None:
    model = small(encoder=encoder)
    with evaluating(model):
        together = model(collate(documents(0, 1, 2, 3).documents))
        alone = model(collate(documents(2).documents))
    assert torch.allclose(together.query[2], alone.query[0], atol=1e-6, rtol=0)
    assert torch.allclose(together.logits[2], alone.logits[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("encoder", ["bilstm", "cnn", "mlp"])
def test_erasing_is_attention_with_a_mask(encoder: str, decoder: str) -> None:
    model = small(encoder=encoder, decoder=decoder)
    [(batch, logits)] = model.attention_outputs(documents())
    erased = fae.erase_prefixes(batch, "attention", orders=True, logits=True, curves=("logits",))
    assert erased.logits is not None
    assert erased.order is not None
    assert torch.allclose(erased.logits, logits, atol=2e-5)
    for number, length in enumerate(batch.lengths.tolist()):
        begin = int(batch.offsets[number])
        order = erased.order[0, begin : begin + length].tolist()
        for k in range(length):  # all but the last, where nothing is left to attend to
            wanted = logits_by_brute_force(model, number, order[k:])
            found = erased.curves["logits"][0, begin + number + k].double()
            assert torch.allclose(found, wanted, atol=3e-5, rtol=0)


def test_heads_of_batches_are_linear_where_the_decoder_is() -> None:
    plain = documents(0, 3)
    [batch] = small(decoder="linear").attention_batches(plain)
    assert batch.head_bias is not None
    assert batch.head_bias.shape == (3,)
    [batch] = small(decoder="linear").attention_batches(documents())
    assert batch.head_bias is not None
    assert batch.head_bias.tolist() == [[0, 0, 0], [-100, 0, 0], [-100, -100, 0], [0, 0, 0]]
    [batch] = small(decoder="query").attention_batches(plain)
    assert batch.head_bias is not None
    assert batch.head_bias.shape == (2, 3)
    assert fae.minimal_flip_set(batch).size.shape == (2,)
    [batch] = small(decoder="tanh").attention_batches(plain)
    assert batch.head_weight is None
    assert batch.values.shape == (10, 4)  # half as wide as the encoder's output
    with pytest.raises(ModelError, match="decoder: given tanh, needed linear or query"):
        small(decoder="tanh").head()


@pytest.mark.parametrize("decoder", DECODERS)
def test_answers_that_are_not_allowed_are_not_given(decoder: str) -> None:
    model = small(decoder=decoder)
    with torch.no_grad():
        model.classifier.bias.copy_(torch.tensor([50.0, 0.0, 0.0]))
    with evaluating(model):
        decided = model(collate(documents().documents)).logits.argmax(1).tolist()
    assert decided[0] == decided[3] == 0
    assert decided[1] in (1, 2)
    assert decided[2] == 2


def test_training_saving_and_loading(tmp_path: Path) -> None:
    texts = [
        text(i, f"{who} went home {other} took milk", f"who took milk {i}", label)
        for i, (who, other, label) in enumerate([("mary", "john", 0), ("john", "mary", 1)] * 8)
    ]
    data = encode(texts, VOCABULARY)
    config = jain_wallace_model("mlp", decoder="tanh", embedding_size=8, hidden_size=8, seed=1)
    model = build_model(config, VOCABULARY, 2)
    training = replace(jain_wallace_pair_training(epochs=3, batch_size=4), learning_rate=0.01)
    train(model, data, data, training, tmp_path / "a", device="cpu")
    save_model(
        tmp_path / "a",
        model,
        vocabulary=VOCABULARY,
        classes=["john", "mary"],
        data_config=DataConfig(path="x.csv", query_column="question"),
        train_config=training,
    )
    loaded = load_model(tmp_path / "a")
    assert loaded.model.config == config
    assert loaded.data_config.query_column == "question"
    with evaluating(model):
        one = model(collate(data.documents)).logits
        other = loaded.model(collate(data.documents)).logits
    assert torch.equal(one, other)
    # Going on after two of three epochs ends with the same parameters.
    again = build_model(config, VOCABULARY, 2)
    first = replace(training, epochs=2, patience=2, first_epoch=2)
    train(again, data, data, first, tmp_path / "b", device="cpu")
    again = build_model(config, VOCABULARY, 2)
    train(again, data, data, replace(training, first_epoch=2), tmp_path / "b", device="cpu")
    for left, right in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)


def test_weight_decay_of_attention_is_its_own(tmp_path: Path) -> None:
    # With no gradient but decay's, attention keeps its parameters and all else shrinks.
    model = small(attention="additive", decoder="linear")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    config = TrainConfig(epochs=1, weight_decay=0.5, learning_rate=0.01)
    nothing = train(
        model, documents(), documents(), config, tmp_path, device="cpu",
        objective=lambda model, output, batch: output.logits.sum(1) * 0,
    )  # fmt: skip
    assert nothing.best_epoch == 1
    for name, parameter in model.named_parameters():
        moved = not torch.equal(parameter, before[name])
        assert moved == (not name.startswith("words.attention") and bool(before[name].any())), name


def test_untrained_attention_is_the_querys_kind() -> None:
    model = small(attention="additive")
    other = with_untrained_attention(model, 7)
    assert isinstance(other, PairClassifier)
    assert not torch.equal(
        other.words.attention.project.weight, model.words.attention.project.weight
    )
    assert torch.equal(other.project.weight, model.project.weight)
    with evaluating(other):
        assert other(collate(documents().documents)).logits.isfinite().all()


def test_documents_without_a_query_are_refused() -> None:
    bare = encode([TokenisedText(5, 0, [["mary"]], ["mary"])], VOCABULARY)
    with pytest.raises(ModelError, match="documents: given document 5 without a query, needed"):
        small()(collate(bare.documents))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"head": "sigmoid"}, "head: given sigmoid with kind pair, needed softmax"),
        ({"decoder": "gru"}, "decoder: given 'gru', needed"),
        ({"cnn_widths": (2,)}, r"cnn_widths: given \(2,\), needed at least one odd number"),
        ({"cnn_widths": ()}, "cnn_widths: given"),
    ],
)
def test_bad_configurations(values: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ModelConfig(kind="pair", **values)  # type: ignore[arg-type]


def test_configurations_of_other_kinds_are_what_they_were() -> None:
    plain = ModelConfig(kind="sequence", encoder="cnn").to_dict()
    assert not {"decoder", "cnn_widths"} & set(plain)
    config = ModelConfig(kind="pair", encoder="cnn", cnn_widths=(1, 3), decoder="query")
    assert config.to_dict()["cnn_widths"] == [1, 3]
    assert ModelConfig.from_dict(config.to_dict()) == config


def test_widths_of_the_convolutions_are_an_option() -> None:
    model = build_model(ModelConfig(encoder="cnn", cnn_widths=(1, 3, 5, 7)), VOCABULARY, 2)
    assert model.classifier.in_features == 200
    assert build_model(ModelConfig(encoder="cnn"), VOCABULARY, 2).classifier.in_features == 250
