"""Shares: their intervals, and whether one of right decisions is better than chance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

_ROUNDED = 0.01  # of decisions that two computations share
_SKILL = 0.1  # of the way from the majority class to all right


def majority(labels: ArrayLike) -> float | None:
    """Give the share of the most frequent label, the accuracy of deciding it always.

    Args:
        labels: `[B]`, integers from 0; negative ones are no labels.

    Returns:
        The share of those that are labels; None where none is.

    Example:
        >>> from fastattnerase.statistics.shares import majority
        >>> majority([0, 1, 1, -1, 1])
        0.75
    """
    known = np.asarray(labels, dtype=np.int64)
    known = known[known >= 0]
    return float(np.bincount(known).max() / len(known)) if len(known) else None


def f1(decisions: ArrayLike, labels: ArrayLike, classes: int = 2) -> float:
    """Give the F1 score of class 1; 0 where nothing is decided or labelled so.

    With more than two classes it is the mean of those of the classes that are decided or labelled.

    Example:
        >>> from fastattnerase.statistics.shares import f1
        >>> f1([1, 1, 0, 0], [1, 0, 1, 0])
        0.5
    """
    decisions, labels = np.asarray(decisions), np.asarray(labels)  # [B]
    if classes > 2:
        found = np.union1d(decisions, labels).tolist()
        scores = [f1(decisions == own, labels == own) for own in found]
        return sum(scores) / len(scores) if scores else 0.0
    hits = int(((decisions == 1) & (labels == 1)).sum())
    total = int((decisions == 1).sum()) + int((labels == 1).sum())
    return 2 * hits / total if total else 0.0


def hardly_better(accuracy: float | None, chance: float | None) -> bool:
    """Say whether an accuracy is hardly better than that of deciding one class always.

    `accuracy − chance ≤ (1 − chance) / 10`: 55 % of two even classes, 91 % where nine in ten
    documents are of one class.

    Args:
        accuracy: share of the decisions that are right; None where labels are unknown.
        chance: what `majority` gives.

    Returns:
        Whether it is; not where one of the two is unknown.

    Example:
        >>> from fastattnerase.statistics.shares import hardly_better
        >>> hardly_better(0.55, 0.5), hardly_better(0.56, 0.5)
        (True, False)
    """
    if accuracy is None or chance is None:
        return False
    return accuracy - chance <= _SKILL * (1 - chance) + 1e-9  # rounding makes no difference


def disagrees(differ: int, compared: int) -> bool:
    """Say whether more decisions differ from a model's own than rounding explains, also in half
    precision: more than one in a hundred.

    >>> disagrees(1, 100), disagrees(2, 100)
    (False, True)
    """
    return differ > _ROUNDED * compared


def accuracy_beside(split: str, accuracy: float, chance: float | None) -> str:
    """Write an accuracy with that of deciding the most frequent class always beside it.

    >>> accuracy_beside("test", 0.8125, 0.5)
    'test accuracy 0.812 (most frequent class 0.500)'
    """
    beside = "" if chance is None else f" (most frequent class {chance:.3f})"
    return f"{split} accuracy {accuracy:.3f}{beside}"


def wilson(count: int, total: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Give Wilson's interval of a share.

    Args:
        count: successes.
        total: trials, at least 1.
        z: of the coverage; default: 95 %.

    Returns:
        Its ends.

    Source:
        E. B. Wilson 1927.

    Example:
        >>> from fastattnerase.statistics.shares import wilson
        >>> [round(end, 3) for end in wilson(0, 10)]
        [0.0, 0.278]
    """
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, float((middle - half) / scale)), min(1.0, float((middle + half) / scale))
