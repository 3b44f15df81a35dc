"""Training as Jain & Wallace do it: decay, class weights, sums, selection, frozen parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from fastattnerase.data import Dataset, Vocabulary, collate
from fastattnerase.models import (
    AttentionClassifier,
    Evaluation,
    ModelError,
    TrainConfig,
    build_model,
    evaluate,
    train,
    training,
)
from fastattnerase.models.train_config import jain_wallace_training
from fastattnerase.models.wen import jain_wallace_model

MakeDataset = Callable[..., Dataset]
SMALL = replace(jain_wallace_model(embedding_size=8, hidden_size=4), seed=1)


@pytest.fixture
def model(vocabulary: Vocabulary) -> AttentionClassifier:
    return build_model(SMALL, vocabulary, 2)


def uneven(make_dataset: MakeDataset, count: int, seed: int) -> Dataset:
    """Three quarters of the documents have class 0."""
    documents = make_dataset(2 * count, seed=seed).documents
    return Dataset([d for i, d in enumerate(documents) if d.label == 0 or i % 6 == 1])


def test_the_published_settings_learn(
    model: AttentionClassifier, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    config = replace(jain_wallace_training(epochs=8), learning_rate=0.02)
    result = train(model, make_dataset(160, seed=1), make_dataset(60, seed=2), config, tmp_path)
    assert result.dev_accuracy >= 0.95
    assert result.best_epoch >= 2
    assert len(result.history) == 8
    aucs = [record.dev_auc or 0.0 for record in result.history[1:]]
    assert result.best_epoch == 2 + aucs.index(max(aucs))
    assert {record.learning_rate for record in result.history} == {0.02}


def test_one_step_by_its_definition(
    model: AttentionClassifier, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    """A single batch: weighted sums, and decay on everything but attention."""
    data = uneven(make_dataset, 12, 1)
    counts = torch.bincount(torch.tensor([d.label for d in data]))
    assert counts[0] == 3 * counts[1]
    config = TrainConfig(
        epochs=1,
        batch_size=100,
        clip_norm=None,
        learning_rate=0.01,
        amsgrad=True,
        weight_decay=0.3,
        class_weights="balanced",
        loss="sum",
    )
    start = {name: p.detach().clone() for name, p in model.named_parameters()}

    # The order of a sum changes Adam's first step, a sign, only where the gradient is nearly 0.
    batch = collate(data.documents)
    output = model.double()(batch)
    losses = F.cross_entropy(output.logits, batch.labels, reduction="none")
    (losses * torch.where(batch.labels == 1, 3.0, 1.0)).sum().backward()
    wanted, clear = {}, {}
    for name, p in model.named_parameters():
        assert p.grad is not None
        decay = 0.0 if ".attention." in name else 0.3
        gradient = p.grad.float() + decay * start[name]
        wanted[name] = start[name] - 0.01 * gradient.sign()
        clear[name] = gradient.abs() > 1e-5
        p.grad = None
    result = train(model.float(), data, data, config, tmp_path)
    assert result.history[0].train_loss == pytest.approx(
        float((losses * torch.where(batch.labels == 1, 3.0, 1.0)).detach().mean()), rel=1e-5
    )
    for name, p in model.named_parameters():
        mask = clear[name]
        assert bool(mask.any())
        torch.testing.assert_close(p.detach()[mask], wanted[name][mask], rtol=0, atol=2e-5)


def test_frozen_parameters_stay_and_a_killed_training_goes_on(
    vocabulary: Vocabulary,
    make_dataset: MakeDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, dev = make_dataset(60, seed=1), make_dataset(30, seed=2)
    config = replace(jain_wallace_training(epochs=4), learning_rate=0.02)

    def frozen() -> AttentionClassifier:
        model = build_model(SMALL, vocabulary, 2)
        for parameter in model.get_submodule("words.encoder").parameters():
            parameter.requires_grad_(False)
        return model

    whole = frozen()
    wanted = train(whole, data, dev, config, tmp_path / "whole")
    before = build_model(SMALL, vocabulary, 2).state_dict()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, before[name]) == name.startswith("words.encoder."), name

    class Killed(Exception):
        pass

    def killed(*_: object) -> Evaluation:
        raise Killed

    evaluations = 0

    def counted(model: AttentionClassifier, dataset: Dataset) -> Evaluation:
        nonlocal evaluations
        evaluations += 1
        return killed() if evaluations == 3 else evaluate(model, dataset)

    monkeypatch.setattr(training, "evaluate", counted)
    with pytest.raises(Killed):
        train(frozen(), data, dev, config, tmp_path / "killed")
    monkeypatch.undo()
    resumed = frozen()
    result = train(resumed, data, dev, config, tmp_path / "killed")
    assert result.resumed_epochs == 2
    assert result.best_epoch == wanted.best_epoch
    assert [asdict(r) | {"seconds": 0} for r in result.history] == [
        asdict(r) | {"seconds": 0} for r in wanted.history
    ]
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_objective_of_one_s_own_and_the_lowest_training_loss(
    model: AttentionClassifier, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    data = make_dataset(40, seed=1)
    config = TrainConfig(
        epochs=6, patience=6, learning_rate=0.05, batch_size=8, selection="train_loss"
    )

    def towards_two(_: object, output: object, batch: object) -> torch.Tensor:
        logits: torch.Tensor = output.logits  # type: ignore[attr-defined]
        return (logits[:, 1] - 2.0) ** 2

    result = train(
        model, data, data, config, tmp_path, objective=towards_two, description={"to": 2}
    )
    losses = [record.train_loss for record in result.history]
    assert result.best_epoch == 1 + losses.index(min(losses))
    assert evaluate(model, data).logits[:, 1].mean().item() == pytest.approx(2.0, abs=0.2)
    with pytest.raises(ModelError, match=r"description\.to is 2 there and 3 here"):
        train(model, data, data, config, tmp_path, objective=towards_two, description={"to": 3})


def test_auc_by_hand() -> None:
    logits = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 2.0], [1.0, 0.0]])
    labels = torch.tensor([0, 1, 0, 0])
    # Pairs of the one positive with three negatives: above, tied, above.
    assert Evaluation(0.0, 0.0, labels, logits, labels).auc == pytest.approx(2.5 / 3)
    same = torch.zeros(4, dtype=torch.int64)
    assert str(Evaluation(0.0, 0.0, same, logits, same).auc) == "nan"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"selection": "f1"}, "selection: given 'f1', needed accuracy, auc or train_loss"),
        ({"weight_decay": -1.0}, "weight_decay: given -1.0, needed 0 or a positive number"),
        ({"class_weights": "even"}, "class_weights: given 'even'"),
        ({"loss": "max"}, "loss: given 'max', needed mean or sum"),
        ({"first_epoch": 3, "epochs": 2}, "first_epoch: given 3, needed at most epochs, 2"),
    ],
)
def test_bad_settings(values: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        TrainConfig(**values)  # type: ignore[arg-type]


def test_what_the_data_must_have(
    vocabulary: Vocabulary, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    data = make_dataset(10)
    three = build_model(replace(SMALL, head="softmax"), vocabulary, 3)
    with pytest.raises(ModelError, match="auc with 3 classes, needed accuracy or train_loss"):
        train(three, data, data, TrainConfig(selection="auc"), tmp_path)
    with pytest.raises(ModelError, match="no training document of class 2"):
        train(three, data, data, TrainConfig(class_weights="balanced"), tmp_path)
