"""What a training needs to go on after an interruption, on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.models.errors import ModelError
from fastattnerase.models.storage import read_json, read_tensors, write_json, write_tensors
from fastattnerase.models.train_config import TrainConfig

_FORMAT = 2
CHECKPOINT = "checkpoint"  # folder beside the model
_PROGRESS = "progress.json"


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


@dataclass
class State:
    """Where a training stands, beside the parameters."""

    learning_rate: float
    history: list[EpochRecord] = field(default_factory=list)
    best_epoch: int = 0
    finished: bool = False
    waited: int = 0  # epochs since the last better one or the last step of the learning rate

    @property
    def best(self) -> EpochRecord | None:
        return self.history[self.best_epoch - 1] if self.best_epoch else None

    def since(self, config: TrainConfig) -> int:
        """Count the epochs since the best one."""
        return len(self.history) - max(self.best_epoch, config.first_epoch - 1)

    def stops(self, config: TrainConfig) -> bool:
        """Whether the training ends with the epochs that are done."""
        return len(self.history) >= config.epochs or self.since(config) >= config.patience


class Checkpoint:
    """What a training needs to go on: a JSON file that names files of tensors.

    The tensors of an epoch are written first; replacing the JSON file makes them count.
    """

    def __init__(self, directory: Path, identity: dict[str, Any]) -> None:
        self.directory = directory
        self.identity = identity

    def _tensors(self, epoch: int) -> Path:
        return self.directory / f"epoch-{epoch:04d}.safetensors"

    def load(
        self, model: AttentionClassifier, optimiser: torch.optim.Optimizer, config: TrainConfig
    ) -> State | None:
        """Take up where the directory's training stands; None where there is none.

        A finished training goes on where `config` has more epochs or more patience.
        """
        path = self.directory / _PROGRESS
        if not path.exists():
            return None
        values = read_json(path)
        if values.get("format") != _FORMAT:
            raise ModelError(f"{path}: given format {values.get('format')!r}, needed {_FORMAT}")
        try:
            identity = dict(values["identity"])
            state = State(
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
        epoch = len(state.history)
        if state.finished and not state.stops(config):
            if not self._tensors(epoch).exists():
                raise ModelError(
                    f"{self.directory} holds a finished training of which epoch {epoch}, the last "
                    "one, is not kept, for it was out of patience or is of an older version. "
                    f"Choose another directory, or delete {self.directory} to train anew"
                )
            state.finished = False
        if not state.finished:
            self._restore(epoch, model, optimiser)
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

    def require_same(self) -> None:
        """Refuse a training in the directory that differs in what `identity` has of it."""
        path = self.directory / _PROGRESS
        found = read_json(path).get("identity") if path.exists() else None
        if isinstance(found, dict):
            self._require_same({name: found.get(name) for name in self.identity})

    def _require_same(self, found: dict[str, Any]) -> None:
        wanted, before = self.identity["train"], found.get("train")
        if isinstance(before, dict):
            # What had fewer epochs, or less patience, has begun as it would have with more.
            grown = {
                name: wanted[name]
                for name in ("epochs", "patience")
                if isinstance(before.get(name), int) and before[name] < wanted[name]
            }
            found = found | {"train": before | grown}
        differences = list(_differences(found, self.identity))
        if differences:
            raise ModelError(
                f"{self.directory} holds a training with another configuration: "
                f"{'; '.join(differences)}. Choose another directory, or delete "
                f"{self.directory} to train anew"
            )

    def save(
        self,
        model: AttentionClassifier,
        optimiser: torch.optim.Optimizer,
        state: State,
        config: TrainConfig,
    ) -> None:
        """Keep the epoch that has just ended, and the best one."""
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
        if state.since(config) < config.patience:  # more epochs may be asked for later
            needed.add(self._tensors(epoch))
        # Older epochs, and what a killed process had half written.
        for path in self.directory.glob("*.safetensors*"):
            if path not in needed:
                path.unlink()

    def load_best(self, model: AttentionClassifier, state: State) -> None:
        """Give the model the parameters of the best epoch."""
        self._restore(state.best_epoch, model, None)


def identity_of(
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
