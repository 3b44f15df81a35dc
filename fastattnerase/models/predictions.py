"""What a trained model gives documents, kept by their ids: probabilities and attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset, batches_in_order
from fastattnerase.models.base import AttentionClassifier, evaluating
from fastattnerase.models.errors import ModelError
from fastattnerase.models.packed import segment_log_softmax
from fastattnerase.models.storage import read_tensors, write_tensors

_BATCH_TOKENS = 32_768
_TENSORS = ("ids", "lengths", "probability", "weights", "log_weights")


@dataclass(frozen=True)
class Predictions:
    """What a model gives each document of some data sets, by the document's id.

    Attributes:
        weights: `[n]`, float32, the attention weights, as the model averages with them.
        log_weights: `[n]`, float32, logarithms of the weights of softmax attention, which are
            finite where weights underflow.
        probability: of class 1.
    """

    weights: Mapping[int, Tensor] = field(default_factory=dict)
    log_weights: Mapping[int, Tensor] = field(default_factory=dict)
    probability: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, model: AttentionClassifier, datasets: Iterable[Dataset]) -> Predictions:
        """Apply a model to the documents of some data sets, without dropout.

        Args:
            model: a model with softmax attention over words.
            datasets: the documents; an id names one document of them all.

        Returns:
            What it gives them.

        Example:
            >>> Predictions.of(model, [prepared.test]).probability[0]  # doctest: +SKIP
            0.93
        """
        weights: dict[int, Tensor] = {}
        log_weights: dict[int, Tensor] = {}
        probability: dict[int, float] = {}
        for dataset in datasets:
            for batch in batches_in_order(dataset, _BATCH_TOKENS):
                with evaluating(model):
                    output = model(batch.to(model.classifier.weight.device))
                keys, lengths = batch.ids.tolist(), output.lengths.tolist()
                every = segment_log_softmax(output.scores, output.lengths).cpu()  # [T]
                log_weights |= zip(keys, torch.split(every, lengths), strict=True)
                weights |= zip(keys, torch.split(output.weights.cpu(), lengths), strict=True)
                probability |= zip(keys, output.logits.softmax(1)[:, 1].tolist(), strict=True)
        return cls(weights, log_weights, probability)

    def save(self, path: Path) -> None:
        """Write a safetensors file: `ids`, `lengths`, `probability` `[B]`, the weights packed."""
        keys = list(self.probability)
        lengths = [len(self.weights[key]) for key in keys]
        nothing = torch.zeros(0)
        write_tensors(
            path,
            {
                "ids": torch.tensor(keys, dtype=torch.int64),
                "lengths": torch.tensor(lengths, dtype=torch.int64),
                "probability": torch.tensor(
                    [self.probability[key] for key in keys], dtype=torch.float64
                ),
                "weights": torch.cat([nothing, *(self.weights[key] for key in keys)]),
                "log_weights": torch.cat([nothing, *(self.log_weights[key] for key in keys)]),
            },
        )

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Read what `save` wrote, the same to the bit.

        Raises:
            ModelError: no such file, or a damaged one.
        """
        tensors = read_tensors(path)
        missing = [name for name in _TENSORS if name not in tensors]
        if missing:
            raise ModelError(f"{path} is damaged: it lacks {', '.join(missing)}")
        keys, lengths = tensors["ids"].tolist(), tensors["lengths"].tolist()
        return cls(
            dict(zip(keys, torch.split(tensors["weights"], lengths), strict=True)),
            dict(zip(keys, torch.split(tensors["log_weights"], lengths), strict=True)),
            dict(zip(keys, tensors["probability"].tolist(), strict=True)),
        )
