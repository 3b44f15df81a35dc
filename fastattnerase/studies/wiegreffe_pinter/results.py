"""What a finished cell of the tests found, as its file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastattnerase.data.prepared import DataResult
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.statistics.divergence import AttentionShape, Divergence
from fastattnerase.statistics.shares import accuracy_beside
from fastattnerase.studies.wiegreffe_pinter.options import Cell

PREDICTIONS = "predictions.safetensors"  # what the model gives documents
INSTANCES = "instances.parquet"  # a row for each test document
SOUGHT = "sought"  # the folder of Jain & Wallace's adversaries, document by document
WEIGHTS = "weights.safetensors"  # of these


@dataclass(frozen=True)
class CellResult:
    """A trained model of the tests.

    Attributes:
        cell: Which it is.
        classes: Number of classes.
        accuracy: Test accuracy.
        majority: Share of the most frequent class of the test documents.
        f1: F1 score of class 1 on the test documents; None with more than two classes.
        auc: Area under the ROC curve on the test documents; None where it is undefined.
        dev_accuracy: Dev accuracy of the epoch that was kept.
        best_epoch: The epoch that was kept.
        epochs: Epochs that were trained.
        max_epochs: Largest number of epochs.
        documents: Number of documents of each split.
        vectors_found: Number of words with a given vector.
        attention: How concentrated attention is on the test documents; None with given weights.
        divergence: How different the model is from the base model on the test documents; None of
            the base model, of MLPs, and with more than two classes.
        train_divergence: The same on the training documents, of adversaries.
    """

    cell: Cell
    classes: int
    accuracy: float
    majority: float | None
    f1: float | None
    auc: float | None
    dev_accuracy: float
    best_epoch: int
    epochs: int
    max_epochs: int
    documents: dict[str, int]
    vectors_found: int
    attention: AttentionShape | None = None
    divergence: Divergence | None = None
    train_divergence: Divergence | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the numbers of the file."""
        content: dict[str, Any] = to_json(self)
        return content


def describe(numbers: Mapping[str, Any]) -> str:
    """Say in a few words what a finished unit found: a data set, or a cell.

    Example:
        >>> describe({"accuracy": 0.8125, "majority": 0.5})
        'test accuracy 0.812 (most frequent class 0.500)'
    """
    if "found" in numbers:
        return str(numbers["found"])
    if "about" not in numbers:
        return accuracy_beside("test", numbers["accuracy"], numbers["majority"])
    return read_record(DataResult, numbers, Path("done.json")).about.told
