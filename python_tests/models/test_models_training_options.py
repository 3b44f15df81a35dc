"""Options of training that the published code used: clipping, learning rate, batches, max-norm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fastattnerase.data import (
    DataConfig,
    Dataset,
    Vocabulary,
    collate,
    load_corpus,
    prepare,
    prepare_stored,
)
from fastattnerase.models import ModelConfig, ModelError, TrainConfig, build_model, train

SMALL = {"embedding_size": 6, "hidden_size": 3, "encoder": "noenc"}


def test_clipping_by_value_and_by_norm(
    vocabulary: Vocabulary,
    make_dataset: Callable[..., Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[float, float]] = []
    step = torch.optim.Adam.step

    def record(self: torch.optim.Adam, closure: None = None) -> None:
        gradients = [p.grad.flatten() for g in self.param_groups for p in g["params"]]
        everything = torch.cat(gradients)
        seen.append((float(everything.abs().max()), float(everything.norm())))
        step(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", record)
    data = make_dataset(8)
    largest = {}
    for name, options in {
        "none": {"clip_norm": None},
        "value": {"clip_norm": None, "clip_value": 0.001},
        "norm": {"clip_norm": 0.01},
    }.items():
        seen.clear()
        model = build_model(ModelConfig(**SMALL), vocabulary, 2)
        train(model, data, data, TrainConfig(epochs=1, **options), tmp_path / name)
        largest[name] = [max(column) for column in zip(*seen, strict=True)]
    assert largest["none"][0] > 0.002
    assert largest["none"][1] > 0.02
    assert largest["value"][0] == pytest.approx(0.001)
    assert largest["norm"][1] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("factor", "patience", "rates"),
    [
        (0.5, 0, [8, 8, 4, 2, 1]),
        (0.5, 1, [8, 8, 8, 4, 4]),
        (1.0, 0, [8, 8, 8, 8, 8]),
    ],
)
def test_the_learning_rate_falls_when_the_dev_accuracy_does_not_rise(
    vocabulary: Vocabulary,
    make_dataset: Callable[..., Dataset],
    tmp_path: Path,
    factor: float,
    patience: int,
    rates: list[float],
) -> None:
    # A rate this small changes no decision: only the first epoch is better than none.
    model = build_model(ModelConfig(**SMALL), vocabulary, 2)
    config = TrainConfig(
        epochs=5, patience=9, learning_rate=8e-12, lr_factor=factor, lr_patience=patience
    )
    result = train(model, make_dataset(6), make_dataset(6, 1), config, tmp_path)
    assert [r.learning_rate * 1e12 for r in result.history] == pytest.approx(rates)


def test_embeddings_keep_to_their_largest_norm(vocabulary: Vocabulary) -> None:
    vectors = torch.full((len(vocabulary), 4), 2.0)
    vectors[0] = 0.0
    model = build_model(ModelConfig(embedding_max_norm=1.0), vocabulary, 2, vectors)
    looked_up = model.embedding(torch.tensor([3, 3]))
    torch.testing.assert_close(looked_up.norm(dim=1), torch.ones(2), rtol=1e-4, atol=0)
    assert build_model(ModelConfig(), vocabulary, 2, vectors).embedding.max_norm is None


def test_training_from_disk_is_training_from_memory(tmp_path: Path) -> None:
    rows = [{"text": f"w{i % 5} w{i % 3}. x", "label": i % 2} for i in range(30)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    config = DataConfig(path=str(path))
    results = []
    for name, data in (
        ("memory", prepare(load_corpus(config), config)),
        ("disk", prepare_stored(config, tmp_path / "data")),
    ):
        model = build_model(ModelConfig(kind="han", **SMALL), data.vocabulary, 2)
        options = TrainConfig(epochs=2, batch_size=4, batch_unit="sentence", learning_rate=0.01)
        folder = tmp_path / name
        train(model, data.train, data.dev, options, folder)
        # What either began, the other can take up.
        again = build_model(ModelConfig(kind="han", **SMALL), data.vocabulary, 2)
        assert train(again, data.train, data.dev, options, tmp_path / "memory").best_epoch
        results.append(model(collate([data.test[0]])).logits)
    assert torch.equal(*results)


def test_a_training_does_not_go_on_from_other_word_vectors(
    vocabulary: Vocabulary, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    data, config = make_dataset(6), TrainConfig(epochs=1)
    ones = torch.ones(len(vocabulary), 6)
    for vectors in (ones, ones):
        train(
            build_model(ModelConfig(**SMALL), vocabulary, 2, vectors), data, data, config, tmp_path
        )
    other = build_model(ModelConfig(**SMALL), vocabulary, 2, 2 * ones)
    with pytest.raises(ModelError, match=r"another configuration: initial word vectors is '\w+'"):
        train(other, data, data, config, tmp_path)


@pytest.mark.parametrize(
    "values",
    [{"clip_value": 0.0}, {"lr_factor": 0.0}, {"lr_patience": -1}, {"batch_unit": "word"}],
)
def test_bad_training_options(values: dict[str, object]) -> None:
    [name] = values
    with pytest.raises(ModelError, match=f"{name}: given"):
        TrainConfig(**values)  # type: ignore[arg-type]


def test_bad_max_norm() -> None:
    with pytest.raises(ModelError, match="embedding_max_norm: given 0"):
        ModelConfig(embedding_max_norm=0.0)
