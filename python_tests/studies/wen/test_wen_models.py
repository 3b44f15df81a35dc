"""Fixed attention, fixed representations and adversaries, by their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from wen_study import treebank

from fastattnerase.data import Dataset, PreparedCorpus, collate
from fastattnerase.data.documents import Document
from fastattnerase.data.presets import read_prepared, write_preset
from fastattnerase.models import AttentionClassifier, ModelError, TrainConfig, build_model, train
from fastattnerase.models.adversary import adversary_objective
from fastattnerase.models.fixed_attention import fixed_attention, given_attention, random_weights
from fastattnerase.models.predictions import Predictions
from fastattnerase.models.wen import jain_wallace_model
from fastattnerase.saliency import attribute
from fastattnerase.statistics.divergence import divergence
from fastattnerase.studies.wen.models import fixed_representation

CONFIG = jain_wallace_model(embedding_size=8, hidden_size=4, seed=3)
TRAINING = TrainConfig(epochs=2, learning_rate=0.05, batch_size=16)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("data")
    write_preset("sst", treebank(folder / "root"), folder / "out")
    return read_prepared(folder / "out")[0]


@pytest.fixture(scope="module")
def base(prepared: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> AttentionClassifier:
    model = build_model(CONFIG, prepared.vocabulary, 2)
    folder = tmp_path_factory.mktemp("base")
    train(model, prepared.train, prepared.dev, replace(TRAINING, epochs=4), folder, device="cpu")
    return model


def weights_of(model: AttentionClassifier, dataset: Dataset) -> torch.Tensor:
    return torch.cat([model.eval()(collate([document])).weights.detach() for document in dataset])


@pytest.mark.parametrize("reading", ["uniform", "trained", "random", "parameters"])
def test_fixed_attention(
    reading: str, prepared: PreparedCorpus, base: AttentionClassifier, tmp_path: Path
) -> None:
    model = fixed_attention(reading, CONFIG, prepared, base)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    weights = weights_of(model, prepared.test)
    train(model, prepared.train, prepared.dev, TRAINING, tmp_path, device="cpu")
    for name, parameter in model.named_parameters():
        moved = not torch.equal(parameter, before[name])
        assert moved == (not name.startswith("words.attention.")), name
    after = weights_of(model, prepared.test)
    lengths = [len(document) for document in prepared.test]
    if reading == "uniform":
        assert after.tolist() == pytest.approx([1 / n for n in lengths for _ in range(n)])
    elif reading == "trained":
        torch.testing.assert_close(after, weights_of(base, prepared.test), rtol=0, atol=1e-6)
    elif reading == "random":
        assert torch.equal(after, weights)
        torch.testing.assert_close(
            torch.stack([part.sum() for part in after.split(lengths)]), torch.ones(len(lengths))
        )
        other = fixed_attention(reading, replace(CONFIG, seed=4), prepared, base)
        assert not torch.equal(weights_of(other, prepared.test), after)
    [batch] = list(model.attention_batches(prepared.test))
    if reading in ("trained", "random"):
        assert batch.weights is not None
        torch.testing.assert_close(batch.weights, after)
    else:
        assert batch.scores is not None


@pytest.mark.parametrize("n", [2, 5, 19, 115])
def test_random_weights_are_uniform_on_the_simplex(n: int) -> None:
    """Mean and deviation of the largest of n spacings: Σ 1/i / n, and E[max²] of Rényi's sum."""
    draws = 3_000
    largest = np.array([float(random_weights(7, key, n).max()) for key in range(draws)])
    inverse = 1 / np.arange(1, n + 1)
    mean = inverse.sum() / n  # H_n / n
    # The largest of n exponentials is Σ E_i / i; divided by their sum, which is independent of it.
    second = ((inverse**2).sum() + inverse.sum() ** 2) / (n * (n + 1))
    error = np.sqrt((second - mean**2) / draws)
    assert abs(largest.mean() - mean) < 3 * error
    np.testing.assert_allclose(largest.std(), np.sqrt(second - mean**2), rtol=0.06)


@pytest.mark.parametrize("reading", ["uniform", "trained", "random", "parameters"])
def test_fixed_attention_with_word_vectors_of_their_own_width(
    reading: str, prepared: PreparedCorpus
) -> None:
    vectors = torch.randn(len(prepared.vocabulary), 5)
    with_vectors = prepared._replace(embeddings=vectors)
    base = build_model(CONFIG, prepared.vocabulary, 2, vectors)
    model = fixed_attention(reading, CONFIG, with_vectors, base)
    assert torch.equal(model.embedding.weight, vectors)


@pytest.mark.parametrize("reading", ["trained", "trained_kept", "random"])
def test_fixed_representation(
    reading: str, prepared: PreparedCorpus, base: AttentionClassifier, tmp_path: Path
) -> None:
    model = fixed_representation(reading, CONFIG, prepared, base)
    batch = collate(prepared.test.documents)
    start = model(batch)
    decoder = model.classifier.weight.detach().clone()
    train(model, prepared.train, prepared.dev, TRAINING, tmp_path, device="cpu")
    end, own = model(batch), base.eval()(batch)
    assert torch.equal(start.values, end.values)
    assert torch.equal(end.values, own.values) == (reading != "random")
    assert not torch.equal(start.scores, end.scores)
    assert not torch.equal(start.scores, own.scores)  # attention starts anew
    assert torch.equal(model.classifier.weight, decoder) == (reading == "trained_kept")
    assert torch.equal(model.classifier.weight, base.classifier.weight) == (
        reading == "trained_kept"
    )


def test_unknown_readings(prepared: PreparedCorpus, base: AttentionClassifier) -> None:
    with pytest.raises(ValueError, match="reading: given 'loose', needed one of uniform"):
        fixed_attention("loose", CONFIG, prepared, base)
    with pytest.raises(ValueError, match="reading: given 'loose', needed one of trained"):
        fixed_representation("loose", CONFIG, prepared, base)


def test_the_adversary_s_loss_by_hand(prepared: PreparedCorpus, base: AttentionClassifier) -> None:
    outputs = Predictions.of(base, [prepared.train])
    model = build_model(replace(CONFIG, seed=9), prepared.vocabulary, 2).eval()
    documents = prepared.train.documents[:5]
    batch = collate(documents)
    output = model(batch)
    losses = adversary_objective(outputs, 0.3, 0.5)(model, output, batch)
    begin = 0
    for row, document in enumerate(documents):
        alone = base.eval()(collate([document]))
        a = output.weights[begin : begin + len(document)].detach().double().numpy()
        b = alone.weights.detach().double().numpy()
        begin += len(document)
        p = torch.sigmoid(output.logits[row, 1]).item()
        q = torch.sigmoid(alone.logits[0, 1]).item()
        wanted = 0.5 * abs(p - q) - 0.3 * float(np.sum(a * np.log(a / b)))
        assert losses[row].item() == pytest.approx(wanted, abs=1e-6)


def test_an_adversary_moves_attention_by_its_strength(
    prepared: PreparedCorpus, base: AttentionClassifier, tmp_path: Path
) -> None:
    outputs = Predictions.of(base, [prepared.train])
    keys = [document.id for document in prepared.train]
    training = replace(TRAINING, epochs=12, patience=12, selection="train_loss", loss="sum")
    found = []
    for strength in (0.0, 0.3):
        model = build_model(replace(CONFIG, seed=8), prepared.vocabulary, 2)
        objective = adversary_objective(outputs, strength)
        folder = tmp_path / str(strength)
        train(
            model,
            prepared.train,
            prepared.dev,
            training,
            folder,
            device="cpu",
            objective=objective,
        )
        found.append(divergence(Predictions.of(model, [prepared.train]), outputs, keys))
    assert found[0].tvd < 0.1
    assert found[1].attention_jsd > 2 * found[0].attention_jsd


def test_predictions_are_read_as_they_were_written(
    prepared: PreparedCorpus, base: AttentionClassifier, tmp_path: Path
) -> None:
    found = Predictions.of(base, [prepared.dev, prepared.test])
    found.save(tmp_path / "predictions.safetensors")
    again = Predictions.load(tmp_path / "predictions.safetensors")
    assert dict(again.probability) == dict(found.probability)
    assert list(again.weights) == [d.id for d in (*prepared.dev, *prepared.test)]
    for key, weights in found.weights.items():
        assert torch.equal(again.weights[key], weights)
        assert torch.equal(again.log_weights[key], found.log_weights[key])
        torch.testing.assert_close(weights, found.log_weights[key].exp())


def test_given_weights_are_the_lender_s_to_the_bit_whatever_the_batch(
    prepared: PreparedCorpus, base: AttentionClassifier, tmp_path: Path
) -> None:
    """Bits, in train and test, in another order and other batches, before and after training."""
    lent = Predictions.of(base, [prepared.train, prepared.dev, prepared.test]).weights
    config = jain_wallace_model("mlp", embedding_size=8, hidden_size=4, seed=1)
    model = given_attention(config, prepared, lent)

    def borrowed(documents: Sequence[Document]) -> torch.Tensor:
        return model.eval()(collate(documents)).weights.detach()

    for turn in range(2):
        for split in (prepared.train, prepared.test):
            shuffled = [split[i] for i in torch.randperm(len(split)).tolist()]
            for part in (shuffled, shuffled[3:7], shuffled[:1]):
                assert torch.equal(borrowed(part), torch.cat([lent[d.id] for d in part]))
        train(model, prepared.train, prepared.dev, TRAINING, tmp_path / str(turn), device="cpu")


def test_given_weights_are_of_whole_texts(
    prepared: PreparedCorpus, base: AttentionClassifier
) -> None:
    """Not of a text without one of its words, nor of another text."""
    model = fixed_attention("trained", CONFIG, prepared, base)
    one = next(document for document in prepared.test if len(document) > 1)
    n = len(one)
    wanted = f"document {one.id}: given {n - 1} words, needed all {n}, each of which was given"
    with pytest.raises(ModelError, match=wanted):
        attribute(model, replace(prepared.test, documents=[one]), "omission")
    with pytest.raises(ModelError, match=f"document -1: given {n} words, needed a document that"):
        model(collate([replace(one, id=-1)]))
