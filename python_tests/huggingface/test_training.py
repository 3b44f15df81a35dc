"""Fine-tuning: interrupted and gone on it ends with the same numbers; what is saved comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface.tiny import FAMILIES, save_tiny, texts_of

from fastattnerase.data import DataConfig
from fastattnerase.huggingface import (
    FineTuneConfig,
    fine_tune,
    load_transformer,
    new_classifier,
    save_fine_tuned,
)
from fastattnerase.models import EpochRecord, ModelError

NAMES = ["neg", "pos"]
CONFIG = FineTuneConfig(epochs=3, learning_rate=1e-3, batch_size=4, max_pieces=20, seed=3)


def documents(model: Any, count: int) -> Any:
    """Texts whose label, even or odd rows, is said by a word."""
    return texts_of(model, [["the", ["bad", "good"][row % 2], "film"] for row in range(count)])


@pytest.mark.parametrize("family", FAMILIES)
def test_an_interrupted_training_ends_with_the_same_numbers(family: str, tmp_path: Path) -> None:
    checkpoint = save_tiny(family, tmp_path / "checkpoint")

    def begin() -> Any:
        model = new_classifier(checkpoint, NAMES, CONFIG)
        return model, documents(model, 14), documents(model, 6)

    state = torch.random.get_rng_state()
    whole, train, dev = begin()
    straight = fine_tune(whole, train, dev, CONFIG, tmp_path / "straight")
    assert torch.equal(state, torch.random.get_rng_state())

    class Killed(Exception):
        pass

    def kill(record: EpochRecord) -> None:
        raise Killed

    for _ in range(2):
        model, train, dev = begin()
        with pytest.raises(Killed):
            fine_tune(model, train, dev, CONFIG, tmp_path / "killed", ended=kill)
    model, train, dev = begin()
    gone_on = fine_tune(model, train, dev, CONFIG, tmp_path / "killed")
    assert gone_on.resumed_epochs == 2
    numbers = [
        [(r.epoch, r.learning_rate, r.train_loss, r.dev_loss, r.dev_accuracy) for r in one.history]
        for one in (straight, gone_on)
    ]
    assert numbers[0] == numbers[1]
    for one, other in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    model, train, dev = begin()
    again = fine_tune(model, train, dev, CONFIG, tmp_path / "killed")
    assert again.resumed_epochs == 3
    assert again.best_epoch == straight.best_epoch


def test_another_training_in_the_folder_is_refused(tmp_path: Path) -> None:
    checkpoint = save_tiny("bert", tmp_path / "checkpoint")
    short = FineTuneConfig(epochs=1, max_pieces=20)
    model = new_classifier(checkpoint, NAMES, short)
    fine_tune(model, documents(model, 4), documents(model, 2), short, tmp_path / "m")
    other = FineTuneConfig(epochs=1, max_pieces=20, learning_rate=1e-4)
    model = new_classifier(checkpoint, NAMES, short)
    with pytest.raises(ModelError, match=r"a training that differs in train\. Choose another"):
        fine_tune(model, documents(model, 4), documents(model, 2), other, tmp_path / "m")
    model = new_classifier(checkpoint, NAMES, short)
    with pytest.raises(ModelError, match="differs in documents"):
        fine_tune(model, documents(model, 6), documents(model, 2), short, tmp_path / "m")


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    model = new_classifier(save_tiny("roberta", tmp_path / "checkpoint"), NAMES, CONFIG)
    data = DataConfig(path="texts.csv", sentences="spaces")
    save_fine_tuned(
        tmp_path / "m", model, classes=NAMES, data_config=data, train_config=CONFIG,
        metadata={"name": "mine"},
    )  # fmt: skip
    loaded = load_transformer(tmp_path / "m")
    assert loaded.classes == NAMES
    assert loaded.model.model.config.id2label == {0: "neg", 1: "pos"}
    assert loaded.data_config == data
    assert loaded.train_config == CONFIG
    assert loaded.metadata == {"name": "mine"}
    assert loaded.model.config.max_pieces == 20
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert [name for name in names if "bin" in name or "partial" in name] == []
    one, other = (m.model.state_dict() for m in (model, loaded.model))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_head_of_other_classes_is_new_and_of_the_same_goes_on(tmp_path: Path) -> None:
    checkpoint = save_tiny("bert", tmp_path / "checkpoint")  # its classes are bad and good
    same, other, again, seeded = (
        new_classifier(checkpoint, names, FineTuneConfig(seed=seed)).model.classifier.weight
        for names, seed in ((["bad", "good"], 0), (NAMES, 0), (NAMES, 0), (NAMES, 1))
    )
    kept = load_transformer(checkpoint).model.model.classifier.weight
    assert torch.equal(same, kept)
    assert not torch.equal(other, kept)
    assert torch.equal(other, again)
    assert not torch.equal(other, seeded)
    three = new_classifier(checkpoint, ["a", "b", "c"], FineTuneConfig())
    assert three.num_classes == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_a_new_head_is_new(family: str, tmp_path: Path) -> None:
    """Encoders end where the family's own model ends: DistilBERT's head has two layers."""
    checkpoint = save_tiny(family, tmp_path / "checkpoint")
    before = load_transformer(checkpoint).model.model.state_dict()
    after = new_classifier(checkpoint, NAMES, FineTuneConfig()).model.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    head = {"bert": {"classifier"}, "roberta": {"classifier"},
            "distilbert": {"pre_classifier", "classifier"}}[family]  # fmt: skip
    assert {name for name in before if name.partition(".")[0] in head} == set(before) - same


def test_learning_rates_by_hand() -> None:
    config = FineTuneConfig(learning_rate=1.0, warm_up=0.3)
    assert [config.rate(step, 10) for step in range(10)] == pytest.approx(
        [1 / 3, 2 / 3, 1, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]
    )
    assert FineTuneConfig(learning_rate=1.0, warm_up=0.0).rate(0, 4) == 1.0
    for wrong in ({"epochs": 0}, {"learning_rate": 0.0}, {"warm_up": 1.0}, {"clip_norm": 0.0}):
        with pytest.raises(ModelError, match=next(iter(wrong))):
            FineTuneConfig(**wrong)  # type: ignore[arg-type]
