"""How a model is trained, and the settings of Jain & Wallace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fastattnerase.models.errors import ModelError

_CHOICES = {
    "batch_unit": ("document", "sentence"),
    "selection": ("accuracy", "auc", "train_loss"),
    "class_weights": ("none", "balanced"),
    "loss": ("mean", "sum"),
}


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
