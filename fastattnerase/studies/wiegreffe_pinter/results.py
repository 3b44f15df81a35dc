"""What a finished cell of the tests found, as its file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class PreparedData:
    """A prepared data set.

    Attributes:
        title: Name, for reports.
        note: What a reader of the numbers must know of it.
        classes: Names of the classes.
        words: Size of the vocabulary.
        mean_length: Mean number of words of a training document.
        documents: Number of documents by split and class.
        dropped: Number of documents that were not read, by the reason.
        filtered: Number of documents that the filter of lengths leaves out, by split.
    """

    title: str
    note: str
    classes: tuple[str, ...]
    words: int
    mean_length: float
    documents: dict[str, dict[str, int]]
    dropped: dict[str, int]
    filtered: dict[str, int]

    @property
    def left_out(self) -> dict[str, int]:
        """Number of documents that are not used, by the reason in words."""
        counts = {reason.replace("_", " "): n for reason, n in self.dropped.items()}
        counts["by the filter of lengths"] = sum(self.filtered.values())
        return {reason: n for reason, n in counts.items() if n}


@dataclass(frozen=True)
class DataResult:
    """What the unit of a data set leaves.

    Attributes:
        about: The data set.
    """

    about: PreparedData


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
    about = read_record(DataResult, numbers, Path("done.json")).about
    used = ", ".join(f"{sum(n.values()):,} {split}" for split, n in about.documents.items())
    unused = ", ".join(f"{n:,} {why}" for why, n in about.left_out.items())
    return f"{used}; left out: {unused or 'none'}"
