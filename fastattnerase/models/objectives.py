"""The loss that training steps along."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fastattnerase.data.dataset import Dataset, DocumentBatch
from fastattnerase.models.base import AttentionClassifier, ModelOutput
from fastattnerase.models.errors import ModelError
from fastattnerase.models.train_config import TrainConfig

# From a model, what it computed for a batch, and the batch: the loss of each document, [B].
Objective = Callable[[AttentionClassifier, ModelOutput, DocumentBatch], Tensor]


class Loss:
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
                    f"class_weights: given balanced and no training document of class {missing}, "
                    "needed some of every class"
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
