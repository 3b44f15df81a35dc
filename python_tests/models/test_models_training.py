"""Training: it learns, repeats, resumes to the same numbers, and refuses what cannot be right."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.progress import Progress
from safetensors.torch import load_file, save_file

from fastattnerase.data import Dataset, Vocabulary
from fastattnerase.models import (
    AttentionClassifier,
    EpochRecord,
    Evaluation,
    ModelConfig,
    ModelError,
    TrainConfig,
    TrainResult,
    build_model,
    checkpoint,
    evaluate,
    train,
    training,
)

MakeDataset = Callable[..., Dataset]
MODEL = ModelConfig(encoder="rnn", embedding_size=8, hidden_size=4, dropout_embedding=0.2)
CONFIG = TrainConfig(epochs=5, learning_rate=0.02, batch_size=8, patience=5)


@pytest.fixture
def model(vocabulary: Vocabulary) -> AttentionClassifier:
    return build_model(MODEL, vocabulary, 2)


@pytest.fixture
def data(make_dataset: MakeDataset) -> tuple[Dataset, Dataset]:
    return make_dataset(80, seed=1), make_dataset(40, seed=2)


def numbers(result: TrainResult) -> list[Any]:
    """Everything but the clock and the count of resumed epochs."""
    history = [asdict(record) | {"seconds": 0} for record in result.history]
    return [result.best_epoch, result.dev_accuracy, history]


def weights(model: AttentionClassifier) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("kind", ["flan", "han"])
@pytest.mark.parametrize("encoder", ["rnn", "conv", "noenc"])
def test_every_model_learns_a_word_that_gives_the_class_away(
    kind: str,
    encoder: str,
    vocabulary: Vocabulary,
    make_dataset: MakeDataset,
    tmp_path: Path,
) -> None:
    config = replace(MODEL, kind=kind, encoder=encoder, dropout_sentence=0.1, conv_dropout=0.1)
    model = build_model(config, vocabulary, 2)
    dev = make_dataset(60, seed=2)
    long = replace(CONFIG, epochs=8)
    result = train(model, make_dataset(200, seed=1), dev, long, tmp_path)
    assert result.dev_accuracy >= 0.95
    judged = evaluate(model, dev)
    assert judged.accuracy == result.dev_accuracy  # the best epoch's parameters are back
    assert judged.loss == pytest.approx(result.history[result.best_epoch - 1].dev_loss, rel=1e-6)
    assert not model.training


def test_a_run_repeats_and_leaves_the_random_state(
    vocabulary: Vocabulary, data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    runs = []
    for name in ("a", "b"):
        torch.manual_seed(len(runs))  # must not matter
        before = torch.get_rng_state()
        model = build_model(MODEL, vocabulary, 2)
        result = train(model, *data, CONFIG, tmp_path / name)
        assert torch.equal(torch.get_rng_state(), before)
        runs.append((numbers(result), weights(model)))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    model = build_model(MODEL, vocabulary, 2)
    other = train(model, *data, replace(CONFIG, seed=1), tmp_path / "c")
    assert numbers(other) != runs[0][0]


@pytest.mark.parametrize("stop_after", [0, 1, 3])
@pytest.mark.parametrize("batch", [0, 4])
def test_an_interrupted_training_ends_with_the_same_numbers(
    stop_after: int,
    batch: int,
    vocabulary: Vocabulary,
    data: tuple[Dataset, Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = build_model(MODEL, vocabulary, 2)
    wanted = train(whole, *data, CONFIG, tmp_path / "whole")

    calls = stop_after * 10 + batch  # ten batches an epoch
    original = training.collate

    def interrupted(documents: Any) -> Any:
        nonlocal calls
        if calls == 0:
            raise KeyboardInterrupt
        calls -= 1
        return original(documents)

    with monkeypatch.context() as patch:
        patch.setattr(training, "collate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(build_model(MODEL, vocabulary, 2), *data, CONFIG, tmp_path / "cut")
    torch.manual_seed(99)
    again = build_model(MODEL, vocabulary, 2)
    result = train(again, *data, CONFIG, tmp_path / "cut")
    assert result.resumed_epochs == stop_after
    assert numbers(result) == numbers(wanted)
    assert torch.equal(weights(again), weights(whole))


@pytest.mark.parametrize("moment", ["tensors", "json"])
def test_an_interruption_while_a_checkpoint_is_written(
    moment: str,
    vocabulary: Vocabulary,
    data: tuple[Dataset, Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = build_model(MODEL, vocabulary, 2)
    wanted = train(whole, *data, CONFIG, tmp_path / "whole")
    name = {"tensors": "write_tensors", "json": "write_json"}[moment]
    original = getattr(checkpoint, name)
    calls = 2

    def interrupted(path: Path, content: Any) -> None:
        nonlocal calls
        calls -= 1
        if calls == 0:
            path.with_name(path.name + ".1.partial").write_bytes(b"half")
            raise KeyboardInterrupt
        original(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(build_model(MODEL, vocabulary, 2), *data, CONFIG, tmp_path / "cut")
    again = build_model(MODEL, vocabulary, 2)
    result = train(again, *data, CONFIG, tmp_path / "cut")
    assert not list((tmp_path / "cut" / "checkpoint").glob("*.safetensors.*"))
    assert result.resumed_epochs == 1
    assert numbers(result) == numbers(wanted)
    assert torch.equal(weights(again), weights(whole))


def test_a_finished_training_is_loaded(
    vocabulary: Vocabulary,
    data: tuple[Dataset, Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build_model(MODEL, vocabulary, 2)
    first = train(model, *data, CONFIG, tmp_path)
    files = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    # The best epoch, and the last one for more epochs.
    kept = {f"epoch-{epoch:04d}.safetensors" for epoch in (first.best_epoch, len(first.history))}
    assert files == [*sorted(kept), "progress.json"]
    monkeypatch.setattr(training, "_train_epoch", None)
    again = build_model(MODEL, vocabulary, 2)
    second = train(again, *data, CONFIG, tmp_path)
    assert numbers(second) == numbers(first)
    assert second.history == first.history
    assert second.resumed_epochs == len(first.history)
    assert torch.equal(weights(again), weights(model))


@pytest.mark.parametrize("between", [1, 3])
def test_more_epochs_end_with_the_numbers_of_so_many_from_the_start(
    between: int, vocabulary: Vocabulary, data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    config = replace(CONFIG, epochs=5, patience=5)
    whole = build_model(MODEL, vocabulary, 2)
    wanted = train(whole, *data, config, tmp_path / "whole")
    assert len(wanted.history) == 5
    for epochs in (between, 5):
        model = build_model(MODEL, vocabulary, 2)
        # Jain & Wallace's patience is as long as the training.
        shorter = replace(config, epochs=epochs, patience=epochs)
        found = train(model, *data, shorter, tmp_path / "parts")
    assert found.resumed_epochs == between
    assert numbers(found) == numbers(wanted)
    assert torch.equal(weights(model), weights(whole))
    with pytest.raises(ModelError, match=r"train\.epochs is 5 there and 4 here"):
        train(
            build_model(MODEL, vocabulary, 2), *data, replace(config, epochs=4), tmp_path / "parts"
        )


def test_more_epochs_of_a_training_out_of_patience(
    vocabulary: Vocabulary,
    data: tuple[Dataset, Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def judged(model: AttentionClassifier, dataset: Dataset) -> Evaluation:
        return Evaluation(0.5, 1.0, *[torch.zeros(0)] * 3)  # never better than the first

    monkeypatch.setattr(training, "evaluate", judged)
    config = replace(CONFIG, epochs=5, patience=2)
    first = train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    assert len(first.history) == 3
    more = replace(config, epochs=50)
    assert train(build_model(MODEL, vocabulary, 2), *data, more, tmp_path).history == first.history
    with pytest.raises(ModelError, match="epoch 3, the last one, is not kept"):
        train(build_model(MODEL, vocabulary, 2), *data, replace(more, patience=3), tmp_path)


def test_the_learning_rate_halves_and_training_stops_early(
    vocabulary: Vocabulary,
    data: tuple[Dataset, Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accuracies = iter([0.6, 0.5, 0.7, 0.7, 0.65, 0.1])

    def judged(model: AttentionClassifier, dataset: Dataset) -> Evaluation:
        return Evaluation(next(accuracies), 1.0, *[torch.zeros(0)] * 3)

    monkeypatch.setattr(training, "evaluate", judged)
    config = TrainConfig(epochs=20, patience=3, learning_rate=0.008)
    result = train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    assert [r.learning_rate for r in result.history] == [0.008, 0.008, 0.004, 0.004, 0.002, 0.001]
    assert (result.best_epoch, result.dev_accuracy) == (3, 0.7)  # ties keep the earlier epoch
    assert result.history[3] == replace(result.history[3], epoch=4, dev_accuracy=0.7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": replace(CONFIG, learning_rate=0.1)}, "train.learning_rate is 0.02 there and"),
        ({"model": replace(MODEL, hidden_size=5)}, "model.hidden_size is 4 there and 5 here"),
        ({"data_seed": 7}, r"documents.train is \[80, '"),
        ({"description": {"vectors": "glove"}}, "description.vectors is None there and 'glove'"),
    ],
)
def test_another_configuration_in_the_directory_is_refused(
    change: dict[str, Any],
    message: str,
    vocabulary: Vocabulary,
    make_dataset: MakeDataset,
    data: tuple[Dataset, Dataset],
    tmp_path: Path,
) -> None:
    train(build_model(MODEL, vocabulary, 2), *data, replace(CONFIG, epochs=1), tmp_path)
    path = tmp_path / "checkpoint" / "progress.json"
    path.write_text(path.read_text().replace('"epochs": 1', '"epochs": 5'))
    before = path.read_text()
    first, dev = data
    if "data_seed" in change:
        first = make_dataset(80, seed=change["data_seed"])
    with pytest.raises(ModelError, match=f"another configuration: {message}.*another directory"):
        train(
            build_model(change.get("model", MODEL), vocabulary, 2),
            first,
            dev,
            change.get("config", CONFIG),
            tmp_path,
            description=change.get("description"),
        )
    assert path.read_text() == before


def test_a_damaged_checkpoint(
    vocabulary: Vocabulary, data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    config = replace(CONFIG, epochs=1)
    train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    tensors = tmp_path / "checkpoint" / "epoch-0001.safetensors"
    content = tensors.read_bytes()
    tensors.write_bytes(content[:100])
    with pytest.raises(ModelError, match=r"epoch-0001\.safetensors is damaged"):
        train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    tensors.unlink()
    with pytest.raises(ModelError, match=r"epoch-0001\.safetensors: no such file"):
        train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    (tmp_path / "checkpoint" / "progress.json").write_text('{"format": 1,')
    with pytest.raises(ModelError, match=r"progress\.json is damaged"):
        train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    (tmp_path / "checkpoint" / "progress.json").write_text('{"format": 7}')
    with pytest.raises(ModelError, match=r"progress\.json: given format 7"):
        train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"identity": None},
        {"identity": 3},
        {"history": [{"odd": 1}]},
        {"history": None},
        {"learning_rate": "fast"},
        {"best_epoch": None},
    ],
)
def test_a_progress_file_without_sense(
    vocabulary: Vocabulary, data: tuple[Dataset, Dataset], tmp_path: Path, change: dict[str, Any]
) -> None:
    config = replace(CONFIG, epochs=1)
    train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    path = tmp_path / "checkpoint" / "progress.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=r"progress\.json is damaged.*to train anew"):
        train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)


@pytest.mark.parametrize("ending", ["classifier.bias", "classifier.weight.exp_avg"])
def test_a_checkpoint_without_a_tensor(
    vocabulary: Vocabulary, data: tuple[Dataset, Dataset], tmp_path: Path, ending: str
) -> None:
    config = replace(CONFIG, epochs=1)
    train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)
    progress = tmp_path / "checkpoint" / "progress.json"
    progress.write_text(json.dumps(json.loads(progress.read_text()) | {"finished": False}))
    path = tmp_path / "checkpoint" / "epoch-0001.safetensors"
    tensors = load_file(path)
    lost = next(name for name in tensors if name.endswith(ending))
    save_file({name: t for name, t in tensors.items() if name != lost}, path)
    with pytest.raises(ModelError, match=r"epoch-0001\.safetensors is damaged.*to train anew"):
        train(build_model(MODEL, vocabulary, 2), *data, config, tmp_path)


def test_a_loss_that_is_not_finite(
    model: AttentionClassifier, data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    with torch.no_grad():
        model.embedding.weight[5:] = torch.nan
    with pytest.raises(ModelError, match=r"epoch 1: the loss is nan; .* learning rate below 0.02"):
        train(model, *data, CONFIG, tmp_path)


def test_data_that_cannot_be_learnt_from(
    model: AttentionClassifier, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    good = make_dataset(4)
    bad = Dataset([replace(good[0], label=2), good[1]])
    with pytest.raises(ModelError, match="train: given no documents"):
        train(model, good[:0], good, CONFIG, tmp_path)
    with pytest.raises(ModelError, match="dev: given no documents"):
        train(model, good, good[:0], CONFIG, tmp_path)
    with pytest.raises(ModelError, match="dev: given document 100 with label 2, needed 0 to 1"):
        train(model, good, bad, CONFIG, tmp_path)
    with pytest.raises(ModelError, match="dataset: given no documents"):
        evaluate(model, good[:0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs: given 0"),
        ({"learning_rate": 0.0}, "learning_rate: given 0.0"),
        ({"clip_norm": float("nan")}, "clip_norm: given nan"),
    ],
)
def test_bad_configurations(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        TrainConfig(**values)
    with pytest.raises(ModelError, match="unknown 'colour'"):
        TrainConfig.from_dict({"colour": 1})


def test_evaluate_by_hand(vocabulary: Vocabulary, make_dataset: MakeDataset) -> None:
    model = build_model(MODEL, vocabulary, 2)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 1.0]))
    model.train()
    judged = evaluate(model, make_dataset(10), batch_tokens=20)
    assert judged.accuracy == 0.5
    assert judged.decisions.tolist() == [1] * 10
    # Half the documents lose ln(1 + e), half ln(1 + 1/e).
    assert judged.loss == pytest.approx((1.3132616875 + 0.3132616875) / 2, rel=1e-7)
    assert model.training


def test_progress_bars(
    model: AttentionClassifier, data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    with Progress(console=Console(file=io.StringIO())) as progress:
        result = train(model, *data, replace(CONFIG, epochs=2), tmp_path, progress=progress)
        [task] = progress.tasks
    assert (task.completed, task.total) == (2, 2)
    assert f"best {result.dev_accuracy:.3f}" in task.description


def test_results_are_json(
    model: AttentionClassifier, data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    result = train(model, *data, replace(CONFIG, epochs=1), tmp_path)
    values = result.to_dict()
    assert EpochRecord(**values["history"][0]) == result.history[0]
    assert TrainConfig.from_dict(CONFIG.to_dict()) == CONFIG
