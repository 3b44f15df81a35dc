"""Training of attention classifiers, restartable after each epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fastattnerase.data.dataset import Dataset, collate, shuffled_batches
from fastattnerase.models.attentions import Attention, QueryAttention
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.models.checkpoint import CHECKPOINT, Checkpoint, EpochRecord, State, identity_of
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.errors import ModelError
from fastattnerase.models.evaluation import evaluate, require_labels
from fastattnerase.models.objectives import Loss, Objective
from fastattnerase.models.storage import require_writable
from fastattnerase.models.train_config import TrainConfig
from fastattnerase.plurals import counted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
else:
    # Hints that are read at run time say Any: what they name is imported when it is used.
    Progress = TaskID = Any


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


def train(
    model: AttentionClassifier,
    train: Dataset,
    dev: Dataset,
    config: TrainConfig,
    directory: str | Path,
    *,
    progress: Progress | None = None,
    device: torch.device | str = "auto",
    description: Mapping[str, Any] | None = None,
    objective: Objective | None = None,
) -> TrainResult:
    """Train a model, or go on with a training that was interrupted.

    After every epoch the folder `checkpoint` in `directory` holds all that the next one needs. The
    same call after an interruption, at any moment, goes on from there and ends with the numbers of
    an uninterrupted run; after a finished training it loads the result. With more `epochs` than
    before a training goes on, to the numbers of one with so many from the start; one that was out
    of patience needs none. Batches and dropout of an epoch depend on the seed and the epoch's
    number alone. The random state is left as found.
    Parameters that require no gradient stay as they are.

    Args:
        model: an untrained model; it ends with the best epoch's parameters, in evaluation mode.
        train: the training documents.
        dev: the development documents.
        config: how to train.
        directory: a folder for this training alone.
        progress: where to show progress bars; default: none.
        device: where to train; the model stays there. `auto`: a GPU where there is one.
        description: anything JSON-able that must be the same when a training goes on, such as where
            the data and the word vectors came from.
        objective: gives the loss of each document `[B]` instead of the cross-entropy; name it in
            `description`.

    Returns:
        The best epoch, its dev accuracy, and all epochs.

    Raises:
        ModelError: no documents, a label that is none of the model's classes, a training with
            another configuration or other data in the directory, a damaged checkpoint, a loss that
            is not finite.
        OSError: the directory cannot be written to.

    Example:
        >>> result = train(model, prepared.train, prepared.dev, TrainConfig(), "runs/flan")
        ... # doctest: +SKIP
        >>> result.dev_accuracy  # doctest: +SKIP
        0.79
    """
    require_labels(train, "train", model.num_classes)
    require_labels(dev, "dev", model.num_classes)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if config.selection == "auc" and model.num_classes != 2:
        raise ModelError(
            f"selection: given auc with {counted(model.num_classes, 'class')}, needed accuracy or "
            "train_loss, or 2 classes"
        )
    model.to(device)
    identity = identity_of(model, train, dev, config, description or {})
    checkpoint = Checkpoint(Path(directory) / CHECKPOINT, identity)
    require_writable(checkpoint.directory)
    optimiser = _optimiser(model, config)
    loss_of = Loss(train, model.num_classes, config, objective, device)
    state = checkpoint.load(model, optimiser, config) or State(config.learning_rate)
    resumed = len(state.history)
    bars = _Bars(progress, config.epochs, len(train), resumed)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), bars:
        while not state.finished:
            _train_epoch(model, optimiser, loss_of, train, dev, config, state, bars)
            checkpoint.save(model, optimiser, state, config)
    checkpoint.load_best(model, state)
    model.eval()
    accuracy = state.history[state.best_epoch - 1].dev_accuracy
    return TrainResult(state.best_epoch, accuracy, state.history, resumed)


def require_same_options(directory: str | Path, model: ModelConfig, config: TrainConfig) -> None:
    """Refuse options with which the training in a folder cannot go on, before data are read."""
    options = {"model": model.to_dict(), "train": config.to_dict()}
    Checkpoint(Path(directory) / CHECKPOINT, options).require_same()


def _optimiser(model: AttentionClassifier, config: TrainConfig) -> torch.optim.Optimizer:
    """Make Adam over what is trained, attention's parameters in a group of their own."""
    attention = {
        parameter
        for module in model.modules()
        if isinstance(module, (Attention, QueryAttention))
        for parameter in module.parameters()
    }
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {
            "params": [p for p in trained if (p in attention) == inside],
            "weight_decay": decay,
        }
        for inside, decay in (
            (False, config.weight_decay),
            (True, config.attention_weight_decay),
        )
    ]
    return torch.optim.Adam(groups, lr=config.learning_rate, amsgrad=config.amsgrad)


def _train_epoch(
    model: AttentionClassifier,
    optimiser: torch.optim.Optimizer,
    loss_of: Loss,
    train: Dataset,
    dev: Dataset,
    config: TrainConfig,
    state: State,
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
    batches = shuffled_batches(
        train, config.batch_size, config.batch_tokens, seed, unit=config.batch_unit
    )
    for indices in batches:
        batch = collate([train[index] for index in indices]).to(device)
        optimiser.zero_grad()
        loss, summed = loss_of(model, batch)
        value = float(summed)
        if not math.isfinite(value):
            raise ModelError(
                f"epoch {epoch}: the loss is {value}; train again with a learning rate below "
                f"{state.learning_rate:g} and word vectors without NaN"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        if config.clip_value is not None:
            torch.nn.utils.clip_grad_value_(model.parameters(), config.clip_value)
        if config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimiser.step()
        total += value
        bars.advance(epoch, len(indices))
    judged = evaluate(model, dev)
    record = EpochRecord(
        epoch,
        state.learning_rate,
        total / len(train),
        judged.loss,
        judged.accuracy,
        time.monotonic() - started,
        judged.auc if config.selection == "auc" else None,
    )
    better = epoch >= config.first_epoch and (
        state.best is None or _merit(record, config) > _merit(state.best, config)
    )
    state.history.append(record)
    if better:
        state.best_epoch = epoch
        state.waited = 0
    else:
        state.waited += 1
        if state.waited > config.lr_patience:
            state.learning_rate *= config.lr_factor
            state.waited = 0
    state.finished = state.stops(config)
    bars.end_epoch(record, state.best)


def _merit(record: EpochRecord, config: TrainConfig) -> float:
    """What is larger in a better epoch."""
    if config.selection == "train_loss":
        return -record.train_loss
    if config.selection == "accuracy" or record.dev_auc is None:
        return record.dev_accuracy
    return record.dev_auc if math.isfinite(record.dev_auc) else 0.0


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

    def end_epoch(self, record: EpochRecord, best: EpochRecord | None) -> None:
        if self.progress is not None:
            kept = record if best is None else best
            text = (
                f"training (dev accuracy {record.dev_accuracy:.3f}, best {kept.dev_accuracy:.3f})"
            )
            self.progress.update(self.tasks[0], advance=1, description=text)
            self.progress.reset(self.tasks[1], total=self.documents)


def _epoch_seed(seed: int, epoch: int) -> int:
    digest = blake2b(f"{seed}:{epoch}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")
