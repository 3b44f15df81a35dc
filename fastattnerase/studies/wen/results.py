"""What a finished unit of the studies found, as its file holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class PreparedData:
    """A prepared data set of the studies.

    Attributes:
        title: Name, for reports.
        note: What a reader of the numbers must know of it.
        words: Size of the vocabulary.
        mean_length: Mean number of words of a training document.
        documents: Number of documents by split and class.
        dropped: Number of documents that were not read, by the reason.
        filtered: Number of documents that the filter of lengths leaves out, by split.
    """

    title: str
    note: str
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
        >>> describe({"accuracy": 0.8125})
        'test accuracy 0.812'
    """
    if "about" not in numbers:
        return accuracy_beside("test", numbers["accuracy"], numbers.get("majority"))
    about = read_record(DataResult, numbers, Path(RESULT)).about
    used = ", ".join(f"{sum(n.values()):,} {split}" for split, n in about.documents.items())
    unused = ", ".join(f"{n:,} {why}" for why, n in about.left_out.items())
    text = f"{used}; left out: {unused or 'none'}"
    if not about.words:
        text += "; no word is frequent enough for the vocabulary, so all are unknown words"
    return text
