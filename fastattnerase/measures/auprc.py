"""AUPRC: how well scores tell the words that people marked from the others."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Bools, Floats, Measured, measure, read_scores


@measure(better="higher", low=0, high=1, best=1.0)
def auprc(
    scores: ArrayLike,
    human: ArrayLike,
    offsets: ArrayLike,
    *,
    average_precision: bool = False,
    only_positive: bool = False,
) -> Measured:
    """Compute the area under precision over recall of a text's marked words, by trapezoids.

    A point for each distinct score: with the words of at least that score chosen, precision and
    recall; and the point (0, 1). A random order has about the share of the marked words.

    Args:
        scores: `[T]` or `[R, T]`, of the words of `N` texts, one text after another.
        human: `[T]`, bool: the marked words.
        offsets: `[N + 1]`, integers: where each text begins, and the end of the last.
        average_precision: `Σ (recall_i − recall_{i−1}) · precision_i` in place of trapezoids, which
            is another number.
        only_positive: whether negative scores count as 0, as in ferret.

    Returns:
        A value for each text; undefined where no word is marked, and where all are.

    Raises:
        ValueError: scores or marks of another number than the offsets say, or NaN, naming the
            instance.

    Source:
        DeYoung et al. 2020, ERASER, section 4.1 and code (scikit-learn's curve and its area).

    Example:
        >>> from fastattnerase.measures.auprc import auprc
        >>> auprc([0.9, 0.1, 0.4], [True, False, False], [0, 3]).values.tolist()
        [1.0]
    """
    values, bounds = read_scores("scores", scores, offsets)
    marks = np.asarray(human, dtype=bool)  # [T]
    if marks.shape != values.shape[-1:]:
        raise ValueError(f"human: given {list(marks.shape)}, needed [{values.shape[-1]}]")
    rows = np.atleast_2d(np.maximum(values, 0) if only_positive else values)  # [R, T]
    found = np.full((len(rows), len(bounds) - 1), np.nan)
    counts = {"no words": 0, "no human words": 0, "all words human": 0}
    for number, (begin, end) in enumerate(pairwise(bounds.tolist())):
        own = marks[begin:end]  # [n]
        if not own.any() or own.all():
            why = "all words human" if own.any() else "no human words" if len(own) else "no words"
            counts[why] += len(rows)
            continue
        for row, one in enumerate(rows):
            found[row, number] = _area(one[begin:end], own, average_precision)
    undefined = {why: count for why, count in counts.items() if count}
    return Measured(found.reshape(*values.shape[:-1], len(bounds) - 1), undefined)


def _area(scores: Floats, human: Bools, average_precision: bool) -> float:
    """Compute it for one text, `[n]` each."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(order) - 1)  # of equal scores
    hits = np.cumsum(human[order])[ends]
    precision = np.append(1.0, hits / (ends + 1))
    recall = np.append(0.0, hits / hits[-1])
    height = precision[1:] if average_precision else (precision[1:] + precision[:-1]) / 2
    return float(np.sum(np.diff(recall) * height))
