"""How a model is trained, and the settings of Jain & Wallace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from fastattnerase.fields import wrong_choices
from fastattnerase.models.errors import ModelError


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; JSON-able.

    Adam on the cross-entropy; the best epoch is kept. By default that is the one of the best dev
    accuracy, and the learning rate is halved after every epoch without a better one, as in the
    published code of Serrano & Smith 2019; their paper says nothing of halving.
    `jain_wallace_training` and `jain_wallace_pair_training` give the settings of Jain & Wallace.

    Attributes:
        epochs: Largest number of epochs; with more, a finished training goes on.
        patience: Training stops after so many epochs without a better one.
        learning_rate: Adam's learning rate at the start. The published models, trained on hundreds
            of thousands of texts, took 1e-4 to 4e-4; thousands of texts want more.
        batch_size: Largest number of documents in a batch; the published models took 64.
        batch_tokens: Largest product of a batch's documents and the words of its longest one.
        batch_unit: Whose words are counted for that: `document` or `sentence`; the published code's
            hierarchical models count sentences.
        clip_norm: Gradients are scaled down to this total norm; None leaves them.
        clip_value: Each element of a gradient is clamped to this size; None leaves them.
        lr_factor: The learning rate is multiplied by this after an epoch that is not better; 1
            keeps it constant, as the paper has it. By default the published code's.
        lr_patience: Epochs without a better one that go by before that; by default the published
            code's.
        seed: Seed of the batches and of dropout.
        selection: Which epoch is better: by `accuracy` or `auc` (area under the ROC curve, two
            classes) on dev, or by the lowest `train_loss`.
        first_epoch: Earlier epochs than this are never kept.
        amsgrad: Whether Adam's second moment never falls (AMSGrad).
        weight_decay: Adam's L2 penalty on all parameters but attention's.
        attention_weight_decay: Adam's L2 penalty on attention's parameters.
        class_weights: Weights of the classes: `none`, or `balanced`: a document of class c weighs
            `N_0 / N_c`, with `N_c` the training documents of the class.
        loss: How the losses of a batch's documents are joined: `mean` or `sum`.
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
                raise ModelError(f"{name}: given {getattr(self, name)}, needed at least 1")
        for name in ("learning_rate", "clip_norm", "clip_value"):
            value = getattr(self, name)
            if value is None and name != "learning_rate":
                continue
            if value is None or not (value > 0 and math.isfinite(value)):
                raise ModelError(f"{name}: given {value}, needed a positive number")
        for name in ("weight_decay", "attention_weight_decay"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ModelError(f"{name}: given {value}, needed 0 or a positive number")
        for problem in wrong_choices(self):
            raise ModelError(problem)
        if self.first_epoch > self.epochs:
            raise ModelError(
                f"first_epoch: given {self.first_epoch}, needed at most epochs, {self.epochs}"
            )
        if not 0 < self.lr_factor <= 1:
            raise ModelError(f"lr_factor: given {self.lr_factor}, needed a factor in (0, 1]")
        if not 0 <= self.seed < 2**63:
            raise ModelError(f"seed: given {self.seed}, needed 0 to 2**63 - 1")
        if self.lr_patience < 0:
            raise ModelError(f"lr_patience: given {self.lr_patience}, needed at least 0")

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


# Added to a seed for an adversary's initial values, which are not the base model's.
ADVERSARY_SEED = 2_000_003
MOST_SEED = 2**63 - 1 - ADVERSARY_SEED  # of a model whose adversary is trained


def jain_wallace_training(*, epochs: int = 8, seed: int = 0) -> TrainConfig:
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
        >>> jain_wallace_training().weight_decay
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


def jain_wallace_pair_training(
    *, epochs: int = 25, batch_size: int = 128, seed: int = 0
) -> TrainConfig:
    """Give the training of Jain & Wallace's models of two texts.

    AMSGrad Adam with rate 0.001, weight decay 1e-5 on everything, mean losses, and the epoch of the
    best dev accuracy, never the first.

    Args:
        epochs: so many are trained; 100 for bAbI.
        batch_size: documents of a batch: 128 for SNLI, 90 for the CNN corpus, 50 for bAbI.
        seed: of the batches.

    Returns:
        The configuration.

    Source:
        Jain & Wallace 2019, code.

    Example:
        >>> jain_wallace_pair_training().attention_weight_decay
        1e-05
    """
    return replace(
        jain_wallace_training(epochs=epochs, seed=seed),
        batch_size=batch_size,
        selection="accuracy",
        attention_weight_decay=1e-5,
        class_weights="none",
        loss="mean",
    )


def adversary_training(training: TrainConfig, *, epochs: int, patience: int) -> TrainConfig:
    """Give the training of a model that imitates another's outputs with other attention.

    The epoch of the lowest training loss is kept, and no class has a weight.

    Args:
        training: of the model that is imitated.
        epochs: so many are trained, at most.
        patience: training stops after so many epochs without a lower training loss.

    Returns:
        The configuration.

    Source:
        Wiegreffe and Pinter 2019, code.

    Example:
        >>> adversary_training(jain_wallace_training(), epochs=80, patience=10).selection
        'train_loss'
    """
    return replace(
        training,
        epochs=epochs,
        patience=patience,
        selection="train_loss",
        class_weights="none",
        first_epoch=1,
    )
