"""Trained models on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fastattnerase.data.config import DataConfig
from fastattnerase.data.dataset import PreparedCorpus
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.models.build import build_model
from fastattnerase.models.checkpoint import CHECKPOINT
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.errors import ModelError
from fastattnerase.models.storage import read_json, read_tensors, write_json, write_tensors
from fastattnerase.models.train_config import TrainConfig
from fastattnerase.models.training import TrainResult

_FORMAT = 1
_WEIGHTS, _VOCABULARY, DESCRIPTION = "model.safetensors", "vocabulary.json", "model.json"


class LoadedModel(NamedTuple):
    """A model from disk, with what belongs to it.

    Attributes:
        model: the model, in evaluation mode.
        vocabulary: its words.
        classes: its classes' names.
        data_config: the data it was trained on.
        train_config: how it was trained; None where not saved.
        metadata: what else was saved beside it.
    """

    model: AttentionClassifier
    vocabulary: Vocabulary
    classes: list[str]
    data_config: DataConfig
    train_config: TrainConfig | None
    metadata: dict[str, Any]


def save_model(
    directory: str | Path,
    model: AttentionClassifier,
    *,
    vocabulary: Vocabulary,
    classes: Sequence[str],
    data_config: DataConfig,
    train_config: TrainConfig | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Save a model: `model.safetensors`, `vocabulary.json` and, last, `model.json`.

    Args:
        directory: a folder, made where it is missing; an older model in it is replaced.
        model: the model.
        vocabulary: its words.
        classes: its classes' names.
        data_config: the data it was trained on.
        train_config: how it was trained.
        metadata: anything JSON-able to keep beside it, such as its accuracies.

    Example:
        >>> save_model("runs/flan", model, vocabulary=vocabulary, classes=["0", "1"],
        ...            data_config=DataConfig(path="reviews.csv"))  # doctest: +SKIP
    """
    directory = Path(directory)
    write_tensors(directory / _WEIGHTS, model.state_dict())
    write_json(directory / _VOCABULARY, vocabulary.to_dict())
    description = {
        "format": _FORMAT,
        "model": model.config.to_dict(),
        "classes": list(classes),
        "data": data_config.to_dict(),
        "train": None if train_config is None else train_config.to_dict(),
        "metadata": dict(metadata or {}),
    }
    write_json(directory / DESCRIPTION, description)


def save_trained(
    directory: str | Path,
    model: AttentionClassifier,
    trained: TrainResult,
    *,
    name: str,
    test_accuracy: float,
    prepared: PreparedCorpus,
    data_config: DataConfig,
    train_config: TrainConfig,
) -> None:
    """Save a study's model with its name and accuracies beside it, as `save_model` does.

    Args:
        directory: a folder.
        model: the model.
        trained: what its training gave.
        name: in reports.
        test_accuracy: on the test documents.
        prepared: the data it was trained on.
        data_config: the same as files.
        train_config: how it was trained.
    """
    save_model(
        directory,
        model,
        vocabulary=prepared.vocabulary,
        classes=prepared.classes,
        data_config=data_config,
        train_config=train_config,
        metadata={
            "name": name,
            "test_accuracy": test_accuracy,
            "dev_accuracy": trained.dev_accuracy,
            "best_epoch": trained.best_epoch,
        },
    )


def load_model(directory: str | Path, *, device: torch.device | str = "cpu") -> LoadedModel:
    """Load a model that `save_model` wrote.

    Args:
        directory: its folder.
        device: where to put it.

    Returns:
        The model and what belongs to it.

    Raises:
        ModelError: no model there, or a damaged one.

    Example:
        >>> loaded = load_model("runs/flan")  # doctest: +SKIP
        >>> loaded.classes  # doctest: +SKIP
        ['0', '1']
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ModelError(
            f"{directory}: given a folder that is not there, needed that of a saved model"
        )
    if not (directory / DESCRIPTION).exists():
        if (directory / "config.json").is_file():
            raise ModelError(
                f"{directory}: given a transformer's folder (it has config.json and no "
                f"{DESCRIPTION}), needed that of a saved model; erase and compare take it as "
                "--transformer, Python by load_transformer"
            )
        raise ModelError(
            f"{directory} holds no saved model: it has no {DESCRIPTION}"
            + (
                "; a training there is not finished: the same `fastattnerase train` goes on with it"
                if (directory / CHECKPOINT).is_dir()
                else ""
            )
        )
    description = read_json(directory / DESCRIPTION)
    if description.get("format") != _FORMAT:
        raise ModelError(
            f"{directory / DESCRIPTION}: given format {description.get('format')!r}, needed "
            f"{_FORMAT}"
        )
    for name in ("model", "data", "metadata"):
        if not isinstance(description.get(name, {}), dict):
            raise ModelError(
                f"{directory / DESCRIPTION} is damaged: {name!r} is no object; train again"
            )
    try:
        vocabulary = Vocabulary.from_dict(read_json(directory / _VOCABULARY))
        config = ModelConfig.from_dict(description["model"])
        model = build_model(config, vocabulary, len(description["classes"]))
        model.load_state_dict(read_tensors(directory / _WEIGHTS))
        train = description["train"]
        return LoadedModel(
            model.to(device).eval(),
            vocabulary,
            list(description["classes"]),
            DataConfig.from_dict(description["data"]),
            None if train is None else TrainConfig.from_dict(train),
            description["metadata"],
        )
    except (KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())  # torch's own message has many lines
        raise ModelError(f"the files in {directory} do not belong together: {reason}") from error
