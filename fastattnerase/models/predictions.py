"""What a trained model gives documents, kept by their ids: probabilities and attention."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset, batches_in_order
from fastattnerase.models.base import AttentionClassifier, evaluating
from fastattnerase.models.packed import segment_log_softmax

_BATCH_TOKENS = 32_768


class Predictions:
    """What a model gives each document of some data sets, by the document's id.

    Args:
        model: a model of two classes, with softmax attention.
        datasets: the documents.

    Attributes:
        weights: `[n]`, float32, the attention weights, as the model averages with them.
        log_weights: `[n]`, float32, logarithms of the weights of softmax attention, which are
            finite where weights underflow.
        probability: of class 1.

    Example:
        >>> Predictions(model, [prepared.test]).probability[0]  # doctest: +SKIP
        0.93
    """

    def __init__(self, model: AttentionClassifier, datasets: Iterable[Dataset]) -> None:
        self.weights: dict[int, Tensor] = {}
        self.log_weights: dict[int, Tensor] = {}
        self.probability: dict[int, float] = {}
        for dataset in datasets:
            for batch in batches_in_order(dataset, _BATCH_TOKENS):
                with evaluating(model):
                    output = model(batch.to(model.classifier.weight.device))
                every = segment_log_softmax(output.scores, output.lengths).cpu()  # [T]
                logs = torch.split(every, output.lengths.tolist())
                weights = torch.split(output.weights.cpu(), output.lengths.tolist())
                probability = output.logits.softmax(1)[:, 1].tolist()
                keys = batch.ids.tolist()
                for key, w, log, p in zip(keys, weights, logs, probability, strict=True):
                    self.weights[key] = w
                    self.log_weights[key] = log
                    self.probability[key] = p
