"""Models on disk come back as they were, and damaged ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fastattnerase.data import DataConfig, Dataset, Vocabulary, collate
from fastattnerase.models import (
    ModelConfig,
    ModelError,
    TrainConfig,
    build_model,
    load_model,
    save_model,
)

DATA = DataConfig(path="reviews.csv", max_tokens=400)


def save(directory: Path, vocabulary: Vocabulary, kind: str = "flan", width: int = 6) -> None:
    config = ModelConfig(kind=kind, embedding_size=width, hidden_size=3, seed=4)
    save_model(
        directory,
        build_model(config, vocabulary, 2),
        vocabulary=vocabulary,
        classes=["no", "yes"],
        data_config=DATA,
        train_config=TrainConfig(epochs=3),
        metadata={"dev_accuracy": 0.75},
    )


@pytest.mark.parametrize("kind", ["flan", "han"])
def test_round_trip(
    kind: str, tmp_path: Path, vocabulary: Vocabulary, make_dataset: Callable[..., Dataset]
) -> None:
    save(tmp_path / "m", vocabulary, kind)
    loaded = load_model(tmp_path / "m")
    assert loaded.classes == ["no", "yes"]
    assert loaded.vocabulary.words == vocabulary.words
    assert loaded.data_config == DATA
    assert loaded.train_config == TrainConfig(epochs=3)
    assert loaded.metadata == {"dev_accuracy": 0.75}
    assert loaded.model.config.kind == kind
    assert not loaded.model.training
    batch = collate(make_dataset(5).documents)
    original = build_model(loaded.model.config, vocabulary, 2).eval()
    assert torch.equal(loaded.model(batch).logits, original(batch).logits)
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {"model.json", "model.safetensors", "vocabulary.json"}


def test_saving_replaces_an_older_model(tmp_path: Path, vocabulary: Vocabulary) -> None:
    save(tmp_path, vocabulary)
    save(tmp_path, Vocabulary(["other"]), width=4)
    assert load_model(tmp_path).vocabulary.words == ["other"]


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no saved model: it has no model\.json"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match="given a folder that is not there, needed that of a sav"):
        load_model(tmp_path / "missing")


def test_damaged_models(tmp_path: Path, vocabulary: Vocabulary) -> None:
    save(tmp_path, vocabulary)
    description = tmp_path / "model.json"
    whole = description.read_text()
    values = json.loads(whole)

    description.write_text(json.dumps(values | {"format": 9}))
    with pytest.raises(ModelError, match="given format 9, needed 1"):
        load_model(tmp_path)
    description.write_text(json.dumps(values | {"classes": ["a", "b", "c"]}))
    with pytest.raises(ModelError, match=r"do not belong together: Error.*classifier"):
        load_model(tmp_path)
    description.write_text(json.dumps({k: v for k, v in values.items() if k != "data"}))
    with pytest.raises(ModelError, match="do not belong together: 'data'"):
        load_model(tmp_path)
    description.write_text("[]")
    with pytest.raises(ModelError, match="holds no JSON object"):
        load_model(tmp_path)
    description.write_text(whole)

    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
        load_model(tmp_path)


def test_a_pickle_is_not_loaded(tmp_path: Path, vocabulary: Vocabulary) -> None:
    save(tmp_path, vocabulary)
    torch.save({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
        load_model(tmp_path)
