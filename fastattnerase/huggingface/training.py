"""Fine-tuning of a sequence classifier, restartable after each epoch."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fastattnerase.data.config import DataConfig
from fastattnerase.data.dataset import Dataset, collate, shuffled_batches
from fastattnerase.huggingface.classifier import TransformerClassifier
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.huggingface.loading import (
    DESCRIPTION,
    FORMAT,
    quiet,
    read_model,
    read_tokenizer,
    require_encoder,
    require_folder,
)
from fastattnerase.huggingface.train_config import FineTuneConfig
from fastattnerase.models.base import evaluating
from fastattnerase.models.checkpoint import CHECKPOINT, EpochRecord
from fastattnerase.models.errors import ModelError
from fastattnerase.models.evaluation import require_labels
from fastattnerase.models.storage import (
    read_json,
    read_tensors,
    require_writable,
    write_json,
    write_tensors,
)

_PROGRESS = "progress.json"


@dataclass
class FineTuned:
    """A finished fine-tuning.

    Attributes:
        best_epoch: the epoch whose parameters the model has now.
        history: all epochs.
        resumed_epochs: how many of them an earlier, interrupted call had done.
    """

    best_epoch: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    resumed_epochs: int = 0

    @property
    def dev_accuracy(self) -> float:
        """That of the best epoch."""
        return self.history[self.best_epoch - 1].dev_accuracy


def new_classifier(
    directory: str | Path, classes: Sequence[str], config: FineTuneConfig
) -> TransformerClassifier:
    """Make a classifier of a local checkpoint, to be fine-tuned.

    Args:
        directory: a folder with an encoder, or with a classifier: one of the same classes goes on,
            any other gets a new head, random by the seed.
        classes: names of the classes.
        config: gives the seed and the pieces of a text.

    Returns:
        The model, on the CPU.

    Raises:
        ModelError: what `load_transformer` refuses but an encoder without a classifier.

    Example:
        >>> model = new_classifier("minilm", ["bad", "good"], FineTuneConfig())  # doctest: +SKIP
        >>> model.num_classes  # doctest: +SKIP
        2
    """
    folder = require_folder(directory)
    state = torch.random.get_rng_state()
    try:
        torch.manual_seed(config.seed)
        model, missing = read_model(folder, len(classes))
        require_encoder(folder, model, missing)
        known = model.config.id2label
        if [known.get(i) for i in range(len(classes))] != list(classes):
            for part in _head_of(model):
                part.reset_parameters()
    finally:
        torch.random.set_rng_state(state)
    model.config.id2label = dict(enumerate(classes))
    model.config.label2id = {name: index for index, name in enumerate(classes)}
    return TransformerClassifier(
        model, read_tokenizer(folder), TransformerConfig(max_pieces=config.max_pieces)
    )


def _head_of(model: Any) -> list[nn.Linear]:
    encoder = set(model.base_model.modules())
    linear = [part for part in model.modules() if isinstance(part, nn.Linear)]
    return [part for part in linear if part not in encoder]


def fine_tune(
    model: TransformerClassifier,
    train: Dataset,
    dev: Dataset,
    config: FineTuneConfig,
    directory: str | Path,
    *,
    device: torch.device | str = "cpu",
    description: Mapping[str, Any] | None = None,
    advance: Callable[[int, int], None] = lambda epoch, documents: None,
    ended: Callable[[EpochRecord], None] = lambda record: None,
) -> FineTuned:
    """Fine-tune a classifier, or go on with a fine-tuning that was interrupted.

    After every epoch the folder `checkpoint` in `directory` holds all that the next one needs. The
    same call after an interruption goes on from there and ends with the numbers of an uninterrupted
    one; after a finished one it loads the result. The random state is left as found.

    Args:
        model: of `new_classifier`; it ends with the best epoch's parameters, in evaluation mode.
        train, dev: documents of the model, with labels.
        config: how.
        directory: a folder for this training alone.
        device: where; the model stays there.
        description: anything JSON-able that must be the same when a training goes on.
        advance: told after each batch the epoch and how many documents it had.
        ended: told of each epoch.

    Returns:
        The epochs.

    Raises:
        ModelError: no documents, a label that is none of the classes, another training in the
            directory, a damaged checkpoint, a loss that is not finite.
        OSError: the directory cannot be written to.

    Example:
        >>> fine_tune(model, train, dev, FineTuneConfig(), "runs/minilm")  # doctest: +SKIP
    """
    require_labels(train, "train", model.num_classes)
    require_labels(dev, "dev", model.num_classes)
    folder = Path(directory) / CHECKPOINT
    require_writable(folder)
    model.to(device)
    identity = {
        "train": config.to_dict(),
        "classes": model.num_classes,
        "initial": _digest(model.model.state_dict()),
        "documents": {"train": [len(train), train.digest()], "dev": [len(dev), dev.digest()]},
        "description": json.loads(json.dumps(dict(description or {}))),  # lists for tuples
    }
    optimiser = _optimiser(model, config)
    found = _resume(folder, identity, model, optimiser)
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    counts = [len(_batches(train, config, epoch)) for epoch in range(1, config.epochs + 1)]
    with torch.random.fork_rng(devices=devices):
        while len(found.history) < config.epochs:
            epoch = len(found.history) + 1
            record = _epoch(model, optimiser, train, dev, config, epoch, counts, advance)
            found.history.append(record)
            if found.best_epoch == 0 or record.dev_accuracy > found.dev_accuracy:
                found.best_epoch = record.epoch
            _keep(folder, identity, model, optimiser, found)
            ended(record)
    best = read_tensors(_tensors(folder, found.best_epoch))
    model.model.load_state_dict(_part(best, "model."))
    model.eval()
    return found


def _epoch(
    model: TransformerClassifier,
    optimiser: torch.optim.Optimizer,
    train: Dataset,
    dev: Dataset,
    config: FineTuneConfig,
    epoch: int,
    counts: Sequence[int],
    advance: Callable[[int, int], None],
) -> EpochRecord:
    """Train one epoch, of which `counts` has the batches as of all others, and judge it."""
    started = time.monotonic()
    batches = _batches(train, config, epoch)
    step, steps = sum(counts[: epoch - 1]), sum(counts)
    torch.manual_seed(_seed(config.seed, epoch))
    device = next(model.model.parameters()).device
    model.train()
    total, rate = 0.0, 0.0
    for indices in batches:
        rate = config.rate(step, steps)
        for group in optimiser.param_groups:
            group["lr"] = rate
        batch = collate([train[index] for index in indices]).to(device)
        optimiser.zero_grad()
        losses = F.cross_entropy(model(batch), batch.labels, reduction="none")  # [b]
        summed = float(losses.detach().sum())
        if not math.isfinite(summed):
            raise ModelError(
                f"epoch {epoch}: the loss is {summed}; train again with a learning rate below "
                f"{config.learning_rate:g}"
            )
        losses.mean().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimiser.step()
        total += summed
        step += 1
        advance(epoch, len(indices))
    accuracy, loss = judged(model, dev)
    return EpochRecord(epoch, rate, total / len(train), loss, accuracy, time.monotonic() - started)


def judged(model: TransformerClassifier, dataset: Dataset) -> tuple[float, float]:
    """Classify documents without dropout: the share that is right, and the mean cross-entropy.

    Args:
        model: the model; its mode is left as found.
        dataset: documents of the model with labels, at least one.
    """
    require_labels(dataset, "dataset", model.num_classes)
    device = next(model.model.parameters()).device
    right, loss = 0, 0.0
    for begin in range(0, len(dataset), 64):
        batch = collate(list(dataset[begin : begin + 64])).to(device)
        with evaluating(model):
            logits = model(batch)  # [b, C]
        right += int((logits.argmax(1) == batch.labels).sum())
        loss += float(F.cross_entropy(logits.double(), batch.labels, reduction="sum"))
    return right / len(dataset), loss / len(dataset)


def _batches(train: Dataset, config: FineTuneConfig, epoch: int) -> list[list[int]]:
    """Draw the batches of an epoch: documents of similar length together."""
    tokens = config.batch_size * max(1, int(train.sizes.words.max()))
    return shuffled_batches(train, config.batch_size, tokens, _seed(config.seed, epoch))


def _seed(seed: int, epoch: int) -> int:
    digest = blake2b(f"fine-tuning:{seed}:{epoch}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")


def _optimiser(model: TransformerClassifier, config: FineTuneConfig) -> torch.optim.AdamW:
    """Make AdamW; vectors (biases and norms) do not decay."""
    parameters = list(model.model.parameters())
    groups = [
        {"params": [p for p in parameters if (p.ndim > 1) == matrix], "weight_decay": decay}
        for matrix, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate)


# --- on disk -------------------------------------------------------------------------------------


def _tensors(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch:04d}.safetensors"


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}


def _named(model: TransformerClassifier, optimiser: torch.optim.Optimizer) -> list[str]:
    """Name the optimiser's parameters, in its order."""
    names = {parameter: name for name, parameter in model.model.named_parameters()}
    return [names[p] for group in optimiser.param_groups for p in group["params"]]


def _keep(
    folder: Path,
    identity: dict[str, Any],
    model: TransformerClassifier,
    optimiser: torch.optim.Optimizer,
    found: FineTuned,
) -> None:
    """Keep the epoch that has just ended, and the best one."""
    epoch = len(found.history)
    own = dict(model.model.named_parameters())
    tensors = {f"model.{name}": tensor.clone() for name, tensor in model.model.state_dict().items()}
    for name in _named(model, optimiser):
        for key, tensor in optimiser.state[own[name]].items():
            tensors[f"adam.{name}.{key}"] = tensor
    write_tensors(_tensors(folder, epoch), tensors)
    values = {
        "format": FORMAT,
        "identity": identity,
        "best_epoch": found.best_epoch,
        "history": [asdict(record) for record in found.history],
    }
    write_json(folder / _PROGRESS, values)
    needed = {_tensors(folder, found.best_epoch), _tensors(folder, epoch)}
    for path in folder.glob("*.safetensors*"):
        if path not in needed:
            path.unlink()


def _resume(
    folder: Path,
    identity: dict[str, Any],
    model: TransformerClassifier,
    optimiser: torch.optim.Optimizer,
) -> FineTuned:
    """Take up where the training in a folder stands; nothing has been done where there is none."""
    path = folder / _PROGRESS
    if not path.exists():
        return FineTuned()
    values = read_json(path)
    before = values.get("identity")
    if before != identity:
        known = before if isinstance(before, dict) else {}
        parts = [name for name in identity if known.get(name) != identity[name]]
        raise ModelError(
            f"{folder} holds a training that differs in {', '.join(parts)}. Choose another "
            f"directory, or delete {folder} to train anew"
        )
    try:
        history = [EpochRecord(**record) for record in values["history"]]
        found = FineTuned(int(values["best_epoch"]), history, len(history))
        tensors = read_tensors(_tensors(folder, len(history)))
        model.model.load_state_dict(_part(tensors, "model."))
        states = {
            index: _part(tensors, f"adam.{name}.")
            for index, name in enumerate(_named(model, optimiser))
        }
        groups = optimiser.state_dict()["param_groups"]
        # A parameter that no gradient has reached has no state.
        states = {index: state for index, state in states.items() if state}
        optimiser.load_state_dict({"state": states, "param_groups": groups})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{folder} is damaged: {reason:.200}; delete it to train anew") from error
    return found


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = blake2b(digest_size=16)
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_fine_tuned(
    directory: str | Path,
    model: TransformerClassifier,
    *,
    classes: Sequence[str],
    data_config: DataConfig,
    train_config: FineTuneConfig,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Save a fine-tuned classifier as transformers does, with what belongs to it beside it.

    `config.json`, `model.safetensors` and the tokenizer's files, and, last, `fastattnerase.json`.

    Args:
        directory: a folder, made where it is missing.
        model: the model.
        classes: names of its classes.
        data_config: the data it was trained on.
        train_config: how.
        metadata: anything JSON-able to keep beside it.

    Raises:
        OSError: the folder cannot be written to.

    Example:
        >>> save_fine_tuned(
        ...     "runs/minilm", model, classes=["bad", "good"], data_config=data, train_config=config
        ... )  # doctest: +SKIP
    """
    folder = Path(directory)
    partial = folder / "partial"
    partial.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION).unlink(missing_ok=True)
    with quiet():
        model.model.save_pretrained(partial)
        model.words.tokenizer.save_pretrained(partial)
    for path in partial.iterdir():
        path.replace(folder / path.name)
    shutil.rmtree(partial)
    description = {
        "format": FORMAT,
        "classes": list(classes),
        "max_pieces": train_config.max_pieces,
        "data": data_config.to_dict(),
        "train": train_config.to_dict(),
        "metadata": dict(metadata or {}),
    }
    write_json(folder / DESCRIPTION, description)
