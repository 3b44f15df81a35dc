"""What a finished unit of the studies found, as its file holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastattnerase.data.prepared import DataResult
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import RESULT
from fastattnerase.statistics.divergence import AttentionShape, Divergence
from fastattnerase.statistics.shares import accuracy_beside


@dataclass(frozen=True)
class Finding:
    """A measurement of a cell's model, and where its tables are.

    Attributes:
        accuracy: Test accuracy of the model as it was measured.
        run: Folder of the measurement in the cell's; None where it was not possible.
        reason: Why it was not possible; empty where it was.
    """

    accuracy: float
    run: str | None
    reason: str


@dataclass(frozen=True)
class CellResult:
    """A trained model of the studies.

    Attributes:
        accuracy: Test accuracy.
        f1: F1 score of class 1 on the test documents; of more classes than two their mean.
        auc: Area under the ROC curve on the test documents; None where they are of one class.
        dev_accuracy: Dev accuracy of the epoch that was kept.
        best_epoch: The epoch that was kept.
        epochs: Epochs that were trained.
        documents: Number of documents of each split.
        vectors_found: Number of words with a given vector.
        measurements: The measurements by their name: `main`, or with Gumbel-softmax `noise_off`,
            `noise_on` and `equal_scores`.
        attention: How concentrated attention is; None where the weights are given.
        divergence: How different an adversary is from the normal model.
        strength: λ of an adversary.
        majority: Share of the most frequent class of the test documents; None in older files.
        seconds: Time that the cell took; the file holds it beside these numbers.
    """

    accuracy: float
    f1: float
    auc: float | None
    dev_accuracy: float
    best_epoch: int
    epochs: int
    documents: dict[str, int]
    vectors_found: int
    measurements: dict[str, Finding]
    attention: AttentionShape | None = None
    divergence: Divergence | None = None
    strength: float | None = None
    majority: float | None = None
    seconds: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """Give the numbers of the file; what an ordinary model lacks is left out."""
        content: dict[str, Any] = to_json(self)
        del content["seconds"]
        for name in ("attention", "divergence", "strength", "majority"):
            if content[name] is None:
                del content[name]
        return content


def describe(numbers: Mapping[str, Any]) -> str:
    """Say in a few words what a finished unit found: a data set, or a cell.

    Example:
        >>> describe({"accuracy": 0.8125})
        'test accuracy 0.812'
    """
    if "about" not in numbers:
        return accuracy_beside("test", numbers["accuracy"], numbers.get("majority"))
    return read_record(DataResult, numbers, Path(RESULT)).about.told
