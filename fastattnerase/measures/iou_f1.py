"""IoU F1: how many chosen spans overlap with one that people marked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Floats, Ints, measure
from fastattnerase.measures.human_words import F1, compared, marked_words, runs
from fastattnerase.measures.token_f1 import read_words, undefined_words


@measure(better="higher", low=0, high=1, best=1.0)
def iou_f1(
    chosen: ArrayLike,
    spans: Sequence[ArrayLike | None],
    offsets: ArrayLike,
    *,
    threshold: float = 0.5,
) -> F1:
    """Compute precision, recall and F1 of spans, a hit being one that overlaps with a marked one.

    Chosen spans are runs of chosen words. One is a hit where the best of its overlaps
    `|a ∩ b| / |a ∪ b|` with the marked spans is at least `threshold`. Precision is hits over chosen
    spans, recall hits over marked spans. Micro: of the counts of all texts together; macro: the F1
    of the texts' mean precision and mean recall.

    Args:
        chosen: `[T]`, bool, one text after another, as `choose_words` gives it.
        spans: of each text `[K, 2]`, integers: the first word, and the one after the last; None for
            none.
        offsets: `[N + 1]`, integers: where each text begins, and the end of the last.
        threshold: in (0, 1].

    Returns:
        The values by text; undefined where no word is marked, and where all are. Two chosen spans
        can hit the same marked one only with a threshold of at most 0.5; recall may then be above
        1, as in ERASER.

    Raises:
        ValueError: arguments that do not fit each other; a span outside its text, naming it.

    Source:
        DeYoung et al. 2020, ERASER, section 4.1 and code.

    Example:
        >>> from fastattnerase.measures.iou_f1 import iou_f1
        >>> found = iou_f1([True, True, False, True], [[[0, 3]]], [0, 4])
        >>> found.precision.tolist(), found.recall.tolist()
        ([0.5], [1.0])
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: given {threshold}, needed more than 0 and at most 1")
    lengths = np.diff(np.asarray(offsets, dtype=np.int64))
    picked, marks, bounds = read_words(chosen, marked_words(spans, lengths), offsets)
    counts = np.empty((3, len(spans)), dtype=np.int64)
    for number, (begin, end) in enumerate(pairwise(bounds.tolist())):
        taken = runs(picked[begin:end])  # [A, 2]
        own = spans[number]
        given = np.array([] if own is None else own, dtype=np.int64).reshape(-1, 2)  # [K, 2]
        hit = _best_overlaps(taken, given) >= threshold  # [A]
        counts[:, number] = hit.sum(), len(taken), len(given)
    hits, chosen_spans, marked = counts  # [N]
    words = np.diff(np.concatenate([[0], np.cumsum(marks)])[bounds])  # [N]
    return compared(
        hits,
        hits / np.maximum(chosen_spans, 1),
        hits / np.maximum(marked, 1),
        chosen_spans,
        marked,
        undefined_words(words, bounds),
        "parts",
    )


def _best_overlaps(chosen: Ints, marked: Ints) -> Floats:
    """Give each chosen span's largest overlap with a marked one: `[A, 2]`, `[K, 2]` to `[A]`."""
    first = np.maximum(chosen[:, None, 0], marked[:, 0])  # [A, K]
    end = np.minimum(chosen[:, None, 1], marked[:, 1])
    both = np.maximum(end - first, 0)
    either = np.diff(chosen) + np.diff(marked)[:, 0] - both
    return np.asarray((both / np.maximum(either, 1)).max(axis=1, initial=0.0), dtype=np.float64)
