"""Training of attention classifiers, restartable after each epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from rich.progress import Progress, TaskID
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from fastattnerase.data.dataset import (
    Dataset,
    DocumentBatch,
    batches_in_order,
    collate,
    shuffled_batches,
)
from fastattnerase.models.attentions import Attention
from fastattnerase.models.base import AttentionClassifier, ModelOutput, evaluating
from fastattnerase.models.errors import ModelError
from fastattnerase.models.storage import (
    read_json,
    read_tensors,
    require_writable,
    write_json,
    write_tensors,
)

_FORMAT = 2
_PROGRESS = "progress.json"
_CHOICES = {
    "batch_unit": ("document", "sentence"),
    "selection": ("accuracy", "auc", "train_loss"),
    "class_weights": ("none", "balanced"),
    "loss": ("mean", "sum"),
}

# From a model, what it computed for a batch, and the batch: the loss of each document, [B].
Objective = Callable[["AttentionClassifier", ModelOutput, DocumentBatch], Tensor]


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; JSON-able.

    Adam on the cross-entropy; the best epoch is kept. By default that is the one of the best dev
    accuracy, and the learning rate is halved after every epoch without a better one (Serrano &
    Smith 2019, code). `jain_wallace` gives the settings of Jain & Wallace.

    Attributes:
        epochs: at most so many.
        patience: stop after so many epochs without a better one.
        selection: which epoch is better: by `accuracy` or `auc` (area under the ROC curve, two
            classes) on dev, or by the lowest `train_loss`.
        first_epoch: earlier epochs are never kept.
        learning_rate: Adam's, at the start.
        batch_size: documents of a batch, at most.
        batch_tokens: longest `batch_unit` times documents of a batch, at most.
        batch_unit: `document` or `sentence`, whose words are counted; the code's hierarchical
            models count sentences.
        clip_norm: gradients are scaled to this total norm at most; None does not.
        clip_value: each element of a gradient is clamped to this size; None does not.
        lr_factor: the learning rate is multiplied by it; 1 keeps it constant.
        lr_patience: epochs without a better one that go by before that.
        amsgrad: Adam's second moment never falls (AMSGrad).
        weight_decay: Adam's L2 penalty, on all parameters but attention's.
        attention_weight_decay: on attention's.
        class_weights: `none`, or `balanced`: a document of class c weighs `N_0 / N_c`, with `N_c`
            the training documents of the class.
        loss: over the documents of a batch, `mean` or `sum`.
        seed: of the batches and of dropout.
    """

    epochs: int = 15
    patience: int = 5
    learning_rate: float = 4e-4
    batch_size: int = 64
    batch_tokens: int = 20_000
    batch_unit: Literal["document", "sentence"] = "document"
    clip_norm: float | None = 10.0
    clip_value: float | None = None
    lr_factor: float = 0.5
    lr_patience: int = 0
    seed: int = 0
    selection: Literal["accuracy", "auc", "train_loss"] = "accuracy"
    first_epoch: int = 1
    amsgrad: bool = False
    weight_decay: float = 0.0
    attention_weight_decay: float = 0.0
    class_weights: Literal["none", "balanced"] = "none"
    loss: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "batch_tokens", "first_epoch"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name}: got {getattr(self, name)}; at least 1 is needed")
        for name in ("learning_rate", "clip_norm", "clip_value"):
            value = getattr(self, name)
            if value is None and name != "learning_rate":
                continue
            if value is None or not (value > 0 and math.isfinite(value)):
                raise ModelError(f"{name}: got {value}; a positive number is needed")
        for name in ("weight_decay", "attention_weight_decay"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ModelError(f"{name}: got {value}; 0 or a positive number is needed")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ModelError(
                    f"{name}: got {getattr(self, name)!r}; {' or '.join(choices)} is needed"
                )
        if self.first_epoch > self.epochs:
            raise ModelError(
                f"first_epoch: got {self.first_epoch}; at most epochs, {self.epochs}, is needed"
            )
        if not 0 < self.lr_factor <= 1:
            raise ModelError(f"lr_factor: got {self.lr_factor}; a factor in (0, 1] is needed")
        if not 0 <= self.seed < 2**63:
            raise ModelError(f"seed: got {self.seed}; 0 to 2**63 - 1 is needed")
        if self.lr_patience < 0:
            raise ModelError(f"lr_patience: got {self.lr_patience}; at least 0 is needed")

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
        train_loss: mean loss of the training documents, with dropout, during the epoch.
        dev_loss: mean cross-entropy of the dev documents after it.
        dev_accuracy: share of the dev documents classified right after it.
        seconds: how long it took.
        dev_auc: area under the dev ROC curve after it; None unless epochs are selected by it.
    """

    epoch: int
    learning_rate: float
    train_loss: float
    dev_loss: float
    dev_accuracy: float
    seconds: float
    dev_auc: float | None = None


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
        logits: `[B, C]`, float32.
        labels: `[B]`, int64, those of the data set.
    """

    accuracy: float
    loss: float
    decisions: Tensor
    logits: Tensor
    labels: Tensor

    @property
    def auc(self) -> float:
        """Area under the ROC curve, of two classes; NaN where all labels are the same.

        The share of pairs of a document of class 1 and one of class 0 in which the first has the
        larger logit difference; ties count half.
        """
        scores = (self.logits[:, 1] - self.logits[:, 0]).double().numpy()  # [B]
        positive = self.labels.numpy() == 1  # [B]
        ones = int(positive.sum())
        zeros = len(positive) - ones
        if not ones or not zeros:
            return math.nan
        ranks = stats.rankdata(scores)  # [B], from 1, ties averaged
        return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


@dataclass
class _State:
    """Where a training stands, beside the parameters."""

    learning_rate: float
    history: list[EpochRecord] = field(default_factory=list)
    best_epoch: int = 0
    finished: bool = False
    waited: int = 0  # epochs since the last better one or the last step of the learning rate

    @property
    def best(self) -> EpochRecord | None:
        return self.history[self.best_epoch - 1] if self.best_epoch else None


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
    parts, golds = [], []
    for batch in batches_in_order(dataset, batch_tokens):
        with evaluating(model):
            parts.append(model(batch.to(device)).logits.cpu())  # [B, C]
        golds.append(batch.labels)
    logits, labels = torch.cat(parts), torch.cat(golds)
    loss = float(F.cross_entropy(logits.double(), labels))
    decided = logits.argmax(1)
    accuracy = float((decided == labels).double().mean())
    return Evaluation(accuracy, loss, decided, logits, labels)


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
    an uninterrupted run; after a finished training it loads the result. Batches and dropout of an
    epoch depend on the seed and the epoch's number alone. The random state is left as found.
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
    _require_labels(train, "train", model.num_classes)
    _require_labels(dev, "dev", model.num_classes)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if config.selection == "auc" and model.num_classes != 2:
        raise ModelError(
            f"selection: auc is for 2 classes, but there are {model.num_classes}; accuracy or "
            "train_loss is needed"
        )
    model.to(device)
    identity = _identity(model, train, dev, config, description or {})
    checkpoint = _Checkpoint(Path(directory) / "checkpoint", identity)
    require_writable(checkpoint.directory)
    optimiser = _optimiser(model, config)
    loss_of = _Loss(train, model.num_classes, config, objective, device)
    state = checkpoint.load(model, optimiser) or _State(config.learning_rate)
    resumed = len(state.history)
    bars = _Bars(progress, config.epochs, len(train), resumed)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), bars:
        while not state.finished:
            _train_epoch(model, optimiser, loss_of, train, dev, config, state, bars)
            checkpoint.save(model, optimiser, state)
    checkpoint.load_best(model, state)
    model.eval()
    accuracy = state.history[state.best_epoch - 1].dev_accuracy
    return TrainResult(state.best_epoch, accuracy, state.history, resumed)


def _optimiser(model: AttentionClassifier, config: TrainConfig) -> torch.optim.Optimizer:
    """Make Adam over what is trained, attention's parameters in a group of their own."""
    attention = {
        parameter
        for module in model.modules()
        if isinstance(module, Attention)
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


class _Loss:
    """The loss of a batch, for the step, and summed over its documents, for the record."""

    def __init__(
        self,
        train: Dataset,
        num_classes: int,
        config: TrainConfig,
        objective: Objective | None,
        device: torch.device,
    ) -> None:
        self.objective = objective
        self.reduction = config.loss
        self.weights: Tensor | None = None
        if config.class_weights == "balanced":
            labels = torch.from_numpy(train.sizes.labels)
            counts = torch.bincount(labels, minlength=num_classes).float()  # [C]
            if bool((counts == 0).any()):
                missing = int((counts == 0).long().argmax())
                raise ModelError(
                    f"class_weights: balanced needs training documents of every class; there is "
                    f"none of class {missing}"
                )
            self.weights = (counts[0] / counts).to(device)

    def __call__(self, model: AttentionClassifier, batch: DocumentBatch) -> tuple[Tensor, Tensor]:
        """Give the loss to step along and the sum to record."""
        output = model(batch)
        if self.objective is None:
            losses = F.cross_entropy(output.logits, batch.labels, reduction="none")  # [B]
        else:
            losses = self.objective(model, output, batch)  # [B]
        if self.weights is not None:
            losses = losses * self.weights[batch.labels]
        total = losses.sum()
        return (total if self.reduction == "sum" else total / len(losses)), total.detach()


def _train_epoch(
    model: AttentionClassifier,
    optimiser: torch.optim.Optimizer,
    loss_of: _Loss,
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
    since = epoch - max(state.best_epoch, config.first_epoch - 1)
    state.finished = epoch >= config.epochs or since >= config.patience
    bars.end_epoch(record, state.best)


def _merit(record: EpochRecord, config: TrainConfig) -> float:
    """What is larger in a better epoch."""
    if config.selection == "train_loss":
        return -record.train_loss
    if config.selection == "accuracy" or record.dev_auc is None:
        return record.dev_accuracy
    return record.dev_auc if math.isfinite(record.dev_auc) else 0.0


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
        try:
            identity = dict(values["identity"])
            state = _State(
                float(values["learning_rate"]),
                [EpochRecord(**record) for record in values["history"]],
                int(values["best_epoch"]),
                bool(values["finished"]),
                int(values["waited"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{path} is damaged: {error!r}; delete {self.directory} to train anew"
            ) from error
        self._require_same(identity)
        if not state.finished:
            self._restore(len(state.history), model, optimiser)
        return state

    def _restore(
        self, epoch: int, model: AttentionClassifier, optimiser: torch.optim.Optimizer | None
    ) -> None:
        path = self._tensors(epoch)
        try:
            _restore(read_tensors(path), model, optimiser)
        except (KeyError, RuntimeError) as error:  # a tensor missing, or of another shape
            reason = " ".join(str(error).split())
            raise ModelError(
                f"{path} is damaged: {reason}; delete {self.directory} to train anew"
            ) from error

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
            "waited": state.waited,
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
        self._restore(state.best_epoch, model, None)


def _capture(model: AttentionClassifier, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name in _trained(model, optimiser):
        for key, tensor in optimiser.state[model.get_parameter(name)].items():
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
    for index, name in enumerate(_trained(model, optimiser)):
        prefix = f"adam.{name}."
        states[index] = {
            key[len(prefix) :]: t for key, t in tensors.items() if key.startswith(prefix)
        }
        # None at all is a parameter that no gradient has reached.
        for key in ("step", "exp_avg", "exp_avg_sq") if states[index] else ():
            if key not in states[index]:
                raise KeyError(f"{prefix}{key}")
    optimiser.load_state_dict(
        {"state": states, "param_groups": optimiser.state_dict()["param_groups"]}
    )


def _trained(model: AttentionClassifier, optimiser: torch.optim.Optimizer) -> list[str]:
    """Name the optimiser's parameters, in its order."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [names[p] for group in optimiser.param_groups for p in group["params"]]


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


def _require_labels(dataset: Dataset, name: str, num_classes: int) -> None:
    if not len(dataset):
        raise ModelError(f"{name}: no documents; at least one is needed")
    labels = dataset.sizes.labels
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        document = dataset[int(wrong[0])]
        raise ModelError(
            f"{name}: document {document.id} has label {document.label}; 0 to {num_classes - 1} is "
            "needed"
        )


def _identity(
    model: AttentionClassifier,
    train: Dataset,
    dev: Dataset,
    config: TrainConfig,
    description: Mapping[str, Any],
) -> dict[str, Any]:
    """What must be the same for a training to go on."""
    return {
        "model": model.config.to_dict(),
        "train": config.to_dict(),
        "classes": model.num_classes,
        "vocabulary": model.embedding.num_embeddings,
        "initial word vectors": _tensor_digest(model.embedding.weight),
        "documents": {
            "train": [len(train), train.digest()],
            "dev": [len(dev), dev.digest()],
        },
        "description": dict(description),
    }


def _tensor_digest(tensor: Tensor) -> str:
    content = tensor.detach().cpu().contiguous().numpy().tobytes()
    return blake2b(content, digest_size=16).hexdigest()


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


def jain_wallace(*, epochs: int = 8, seed: int = 0) -> TrainConfig:
    """Give the training of Jain & Wallace's single-sequence models, which Wen et al. took over.

    AMSGrad Adam with rate 0.001, weight decay 1e-5 but on attention, class weights, losses summed
    over batches of 32, and the epoch of the best dev AUC, never the first.

    Args:
        epochs: so many are trained.
        seed: of the batches.

    Returns:
        The configuration.

    Source:
        Jain & Wallace 2019, code; Wen, Subbalakshmi and Yang 2022, appendix A.

    Example:
        >>> jain_wallace().weight_decay
        1e-05
    """
    return TrainConfig(
        epochs=epochs,
        patience=epochs,
        learning_rate=1e-3,
        batch_size=32,
        batch_tokens=10**9,
        clip_norm=None,
        seed=seed,
        selection="auc",
        first_epoch=min(2, epochs),
        lr_factor=1.0,
        amsgrad=True,
        weight_decay=1e-5,
        class_weights="balanced",
        loss="sum",
    )


def _epoch_seed(seed: int, epoch: int) -> int:
    digest = blake2b(f"{seed}:{epoch}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")
