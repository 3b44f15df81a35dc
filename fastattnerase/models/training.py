"""Training of attention classifiers, restartable after each epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.progress import Progress, TaskID
from torch import Tensor
from torch.nn import functional as F

from fastattnerase.data.dataset import Dataset, batches_in_order, collate, shuffled_batches
from fastattnerase.models.base import AttentionClassifier, evaluating
from fastattnerase.models.errors import ModelError
from fastattnerase.models.storage import read_json, read_tensors, write_json, write_tensors

_FORMAT = 1
_PROGRESS = "progress.json"


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; JSON-able.

    Adam on the cross-entropy. The learning rate is halved after every epoch without a better dev
    accuracy; the epoch of the best dev accuracy is kept (Serrano & Smith 2019, code).

    Attributes:
        epochs: at most so many.
        patience: stop after so many epochs without a better dev accuracy.
        learning_rate: Adam's, at the start.
        batch_size: documents of a batch, at most.
        batch_tokens: longest document times documents of a batch, at most.
        clip_norm: gradients are scaled to this total norm at most.
        seed: of the batches and of dropout.
    """

    epochs: int = 15
    patience: int = 5
    learning_rate: float = 4e-4
    batch_size: int = 64
    batch_tokens: int = 20_000
    clip_norm: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "batch_tokens"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name}: got {getattr(self, name)}; at least 1 is needed")
        for name in ("learning_rate", "clip_norm"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ModelError(f"{name}: got {value}; a positive number is needed")

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Make a configuration from `to_dict`'s result; unknown names are refused."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ModelError(f"training configuration: unknown {', '.join(map(repr, unknown))}")
        return cls(**values)


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of training.

    Attributes:
        epoch: its number, from 1.
        learning_rate: Adam's in this epoch.
        train_loss: mean cross-entropy of the training documents, with dropout, during the epoch.
        dev_loss: mean cross-entropy of the dev documents after it.
        dev_accuracy: share of the dev documents classified right after it.
        seconds: how long it took.
    """

    epoch: int
    learning_rate: float
    train_loss: float
    dev_loss: float
    dev_accuracy: float
    seconds: float


@dataclass(frozen=True)
class TrainResult:
    """A finished training.

    Attributes:
        best_epoch: the epoch whose parameters the model has now.
        dev_accuracy: its dev accuracy.
        history: all epochs.
        resumed_epochs: how many of them an earlier, interrupted call had done.
    """

    best_epoch: int
    dev_accuracy: float
    history: list[EpochRecord]
    resumed_epochs: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give the result as a dictionary for JSON."""
        return asdict(self)


class Evaluation(NamedTuple):
    """A model on a data set.

    Attributes:
        accuracy: share of the documents classified right.
        loss: mean cross-entropy.
        decisions: `[B]`, int64, the decided classes, in the order of the data set.
    """

    accuracy: float
    loss: float
    decisions: Tensor


@dataclass
class _State:
    """Where a training stands, beside the parameters."""

    learning_rate: float
    history: list[EpochRecord] = field(default_factory=list)
    best_epoch: int = 0
    finished: bool = False

    @property
    def best_accuracy(self) -> float:
        return self.history[self.best_epoch - 1].dev_accuracy if self.best_epoch else -1.0


def evaluate(
    model: AttentionClassifier, dataset: Dataset, *, batch_tokens: int = 32768
) -> Evaluation:
    """Classify a data set without dropout, and compare with its labels.

    Args:
        model: the model; its mode is left as found.
        dataset: the documents, at least one, with labels.
        batch_tokens: words of a batch, at most.

    Returns:
        Accuracy, loss and decisions.

    Raises:
        ModelError: no documents, or one without a label.

    Example:
        >>> evaluate(model, dataset).accuracy  # doctest: +SKIP
        0.82
    """
    _require_labels(dataset, "dataset", model.num_classes)
    device = model.classifier.weight.device
    loss = 0.0
    decisions, labels = [], []
    for batch in batches_in_order(dataset, batch_tokens):
        with evaluating(model):
            logits = model(batch.to(device)).logits.cpu()  # [B, C]
        loss += float(F.cross_entropy(logits.double(), batch.labels, reduction="sum"))
        decisions.append(logits.argmax(1))
        labels.append(batch.labels)
    decided = torch.cat(decisions)
    accuracy = float((decided == torch.cat(labels)).double().mean())
    return Evaluation(accuracy, loss / len(dataset), decided)


def train(
    model: AttentionClassifier,
    train: Dataset,
    dev: Dataset,
    config: TrainConfig,
    directory: str | Path,
    *,
    progress: Progress | None = None,
    device: torch.device | str = "cpu",
    description: Mapping[str, Any] | None = None,
) -> TrainResult:
    """Train a model, or go on with a training that was interrupted.

    After every epoch the folder `checkpoint` in `directory` holds all that the next one needs. The
    same call after an interruption, at any moment, goes on from there and ends with the numbers of
    an uninterrupted run; after a finished training it loads the result. Batches and dropout of an
    epoch depend on the seed and the epoch's number alone. The random state is left as found.

    Args:
        model: an untrained model; it ends with the best epoch's parameters, in evaluation mode.
        train: the training documents.
        dev: the development documents.
        config: how to train.
        directory: a folder for this training alone.
        progress: where to show progress bars; default: none.
        device: where to train; the model stays there.
        description: anything JSON-able that must be the same when a training goes on, such as where
            the data and the word vectors came from.

    Returns:
        The best epoch, its dev accuracy, and all epochs.

    Raises:
        ModelError: no documents, a label that is none of the model's classes, a training with
            another configuration or other data in the directory, a damaged checkpoint, a loss that
            is not finite.

    Example:
        >>> result = train(model, prepared.train, prepared.dev, TrainConfig(), "runs/flan")
        ... # doctest: +SKIP
        >>> result.dev_accuracy  # doctest: +SKIP
        0.79
    """
    _require_labels(train, "train", model.num_classes)
    _require_labels(dev, "dev", model.num_classes)
    device = torch.device(device)
    model.to(device)
    identity = _identity(model, train, dev, config, description or {})
    checkpoint = _Checkpoint(Path(directory) / "checkpoint", identity)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    state = checkpoint.load(model, optimiser) or _State(config.learning_rate)
    resumed = len(state.history)
    bars = _Bars(progress, config.epochs, len(train), resumed)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), bars:
        while not state.finished:
            _train_epoch(model, optimiser, train, dev, config, state, bars)
            checkpoint.save(model, optimiser, state)
    checkpoint.load_best(model, state)
    model.eval()
    return TrainResult(state.best_epoch, state.best_accuracy, state.history, resumed)


def _train_epoch(
    model: AttentionClassifier,
    optimiser: torch.optim.Optimizer,
    train: Dataset,
    dev: Dataset,
    config: TrainConfig,
    state: _State,
    bars: _Bars,
) -> None:
    """Train one epoch and judge it; `state` is brought up to date."""
    started = time.monotonic()
    epoch = len(state.history) + 1
    seed = _epoch_seed(config.seed, epoch)
    torch.manual_seed(seed)
    for group in optimiser.param_groups:
        group["lr"] = state.learning_rate
    model.train()
    device = model.classifier.weight.device
    total = 0.0
    for indices in shuffled_batches(train, config.batch_size, config.batch_tokens, seed):
        batch = collate([train[index] for index in indices]).to(device)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(batch).logits, batch.labels)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ModelError(
                f"epoch {epoch}: the loss is {value}; train again with a learning rate below "
                f"{state.learning_rate:g} and word vectors without NaN"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimiser.step()
        total += value * len(indices)
        bars.advance(epoch, len(indices))
    judged = evaluate(model, dev)
    record = EpochRecord(
        epoch,
        state.learning_rate,
        total / len(train),
        judged.loss,
        judged.accuracy,
        time.monotonic() - started,
    )
    better = judged.accuracy > state.best_accuracy
    state.history.append(record)
    if better:
        state.best_epoch = epoch
    else:
        state.learning_rate /= 2
    state.finished = epoch >= config.epochs or epoch - state.best_epoch >= config.patience
    bars.end_epoch(record, state.best_accuracy)


class _Checkpoint:
    """What a training needs to go on: a JSON file that names files of tensors.

    The tensors of an epoch are written first; replacing the JSON file makes them count.
    """

    def __init__(self, directory: Path, identity: dict[str, Any]) -> None:
        self.directory = directory
        self.identity = identity

    def _tensors(self, epoch: int) -> Path:
        return self.directory / f"epoch-{epoch:04d}.safetensors"

    def load(self, model: AttentionClassifier, optimiser: torch.optim.Optimizer) -> _State | None:
        """Take up where the directory's training stands; None where there is none."""
        path = self.directory / _PROGRESS
        if not path.exists():
            return None
        values = read_json(path)
        if values.get("format") != _FORMAT:
            raise ModelError(f"{path} has format {values.get('format')!r}; {_FORMAT} is needed")
        self._require_same(values["identity"])
        state = _State(
            values["learning_rate"],
            [EpochRecord(**record) for record in values["history"]],
            values["best_epoch"],
            values["finished"],
        )
        if not state.finished:
            _restore(read_tensors(self._tensors(len(state.history))), model, optimiser)
        return state

    def _require_same(self, found: dict[str, Any]) -> None:
        differences = list(_differences(found, self.identity))
        if differences:
            raise ModelError(
                f"{self.directory} holds a training with another configuration: "
                f"{'; '.join(differences)}. Choose another directory, or delete this one to "
                "train anew"
            )

    def save(
        self, model: AttentionClassifier, optimiser: torch.optim.Optimizer, state: _State
    ) -> None:
        """Keep the epoch that has just ended."""
        epoch = len(state.history)
        write_tensors(self._tensors(epoch), _capture(model, optimiser))
        values = {
            "format": _FORMAT,
            "identity": self.identity,
            "learning_rate": state.learning_rate,
            "history": [asdict(record) for record in state.history],
            "best_epoch": state.best_epoch,
            "finished": state.finished,
        }
        write_json(self.directory / _PROGRESS, values)
        needed = {self._tensors(state.best_epoch)}
        if not state.finished:
            needed.add(self._tensors(epoch))
        # Older epochs, and what a killed process had half written.
        for path in self.directory.glob("*.safetensors*"):
            if path not in needed:
                path.unlink()

    def load_best(self, model: AttentionClassifier, state: _State) -> None:
        """Give the model the parameters of the best epoch."""
        _restore(read_tensors(self._tensors(state.best_epoch)), model, None)


def _capture(model: AttentionClassifier, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, tensor in optimiser.state[parameter].items():
            tensors[f"adam.{name}.{key}"] = tensor
    return tensors


def _restore(
    tensors: dict[str, Tensor],
    model: AttentionClassifier,
    optimiser: torch.optim.Optimizer | None,
) -> None:
    prefix = "model."
    model.load_state_dict(
        {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}
    )
    if optimiser is None:
        return
    states: dict[int, dict[str, Tensor]] = {}
    for index, (name, _) in enumerate(model.named_parameters()):
        prefix = f"adam.{name}."
        states[index] = {
            key[len(prefix) :]: t for key, t in tensors.items() if key.startswith(prefix)
        }
    optimiser.load_state_dict(
        {"state": states, "param_groups": optimiser.state_dict()["param_groups"]}
    )


class _Bars:
    """Progress bars of a training: one over epochs, one over the documents of an epoch."""

    def __init__(self, progress: Progress | None, epochs: int, documents: int, done: int) -> None:
        self.progress = progress
        self.documents = documents
        self.best = ""
        self.tasks: list[TaskID] = []
        if progress is not None:
            self.tasks = [
                progress.add_task("training", total=epochs, completed=done),
                progress.add_task("epoch", total=documents),
            ]

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress is not None:
            self.progress.remove_task(self.tasks[1])
            self.progress.stop_task(self.tasks[0])

    def advance(self, epoch: int, documents: int) -> None:
        if self.progress is not None:
            self.progress.update(self.tasks[1], advance=documents, description=f"epoch {epoch}")

    def end_epoch(self, record: EpochRecord, best_accuracy: float) -> None:
        if self.progress is not None:
            text = f"training (dev accuracy {record.dev_accuracy:.3f}, best {best_accuracy:.3f})"
            self.progress.update(self.tasks[0], advance=1, description=text)
            self.progress.reset(self.tasks[1], total=self.documents)


def _require_labels(dataset: Dataset, name: str, num_classes: int) -> None:
    if not len(dataset):
        raise ModelError(f"{name}: no documents; at least one is needed")
    for document in dataset:
        if not 0 <= document.label < num_classes:
            raise ModelError(
                f"{name}: document {document.id} has label {document.label}; 0 to "
                f"{num_classes - 1} is needed"
            )


def _identity(
    model: AttentionClassifier,
    train: Dataset,
    dev: Dataset,
    config: TrainConfig,
    description: Mapping[str, Any],
) -> dict[str, Any]:
    """What must be the same for a training to go on."""
    digest = blake2b(digest_size=16)
    for dataset in (train, dev):
        for document in dataset:
            digest.update(document.token_ids.tobytes() + b"|")
            digest.update(document.sentence_lengths.tobytes() + f"|{document.label}|".encode())
    return {
        "model": model.config.to_dict(),
        "train": config.to_dict(),
        "classes": model.num_classes,
        "vocabulary": model.embedding.num_embeddings,
        "documents": {"train": len(train), "dev": len(dev), "hash": digest.hexdigest()},
        "description": dict(description),
    }


def _differences(found: Any, wanted: Any, name: str = "") -> list[str]:
    """Say where two JSON values differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        result = []
        for key in sorted(set(found) | set(wanted)):
            inner = f"{name}.{key}" if name else key
            result += _differences(found.get(key), wanted.get(key), inner)
        return result
    if isinstance(wanted, tuple):
        wanted = list(wanted)  # as JSON gives it back
    return [] if found == wanted else [f"{name} is {found!r} there and {wanted!r} here"]


def _epoch_seed(seed: int, epoch: int) -> int:
    digest = blake2b(f"{seed}:{epoch}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")
