"""How well a model decides on a data set."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fastattnerase.data.dataset import Dataset, batches_in_order
from fastattnerase.extras import needs
from fastattnerase.models.base import AttentionClassifier, evaluating
from fastattnerase.models.errors import ModelError


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
        with needs("text"):
            from scipy import stats
        scores = (self.logits[:, 1] - self.logits[:, 0]).double().numpy()  # [B]
        positive = self.labels.numpy() == 1  # [B]
        ones = int(positive.sum())
        zeros = len(positive) - ones
        if not ones or not zeros:
            return math.nan
        ranks = stats.rankdata(scores)  # [B], from 1, ties averaged
        return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


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
    require_labels(dataset, "dataset", model.num_classes)
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


def require_labels(dataset: Dataset, name: str, num_classes: int) -> None:
    if not len(dataset):
        raise ModelError(f"{name}: given no documents, needed at least one")
    labels = dataset.sizes.labels
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        document = dataset[int(wrong[0])]
        raise ModelError(
            f"{name}: given document {document.id} with label {document.label}, needed 0 to "
            f"{num_classes - 1}"
        )
