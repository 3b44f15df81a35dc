"""Token F1: how many of the chosen words people marked, and of the marked ones were chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Bools, Ints, measure, read_offsets
from fastattnerase.measures.human_words import F1, compared


@measure(better="higher", low=0, high=1, best=1.0)
def token_f1(chosen: ArrayLike, human: ArrayLike, offsets: ArrayLike) -> F1:
    """Compute precision, recall and F1 of the chosen words of each text.

    `F1 = 2 P R / (P + R)`, `P = |chosen ∩ marked| / |chosen|`, `R = |chosen ∩ marked| / |marked|`.
    Micro: of the counts of all texts together; macro: the mean of the texts' F1.

    Args:
        chosen: `[T]`, bool, one text after another, as `choose_words` gives it.
        human: `[T]`, bool: the marked words.
        offsets: `[N + 1]`, integers: where each text begins, and the end of the last.

    Returns:
        The values by text; undefined where no word is marked, and where all are.

    Raises:
        ValueError: arguments that do not fit each other.

    Source:
        DeYoung et al. 2020, ERASER, section 4.1 and code.

    Example:
        >>> from fastattnerase.measures.token_f1 import token_f1
        >>> found = token_f1([True, True, False], [True, False, False], [0, 3])
        >>> found.precision.tolist(), found.recall.tolist(), round(found.micro, 3)
        ([0.5], [1.0], 0.667)
    """
    picked, marks, bounds = read_words(chosen, human, offsets)
    counts = [
        np.diff(np.concatenate([[0], np.cumsum(words)])[bounds])
        for words in (picked & marks, picked, marks)
    ]
    hits, taken, marked = counts  # [N]
    return compared(
        hits,
        hits / np.maximum(taken, 1),
        hits / np.maximum(marked, 1),
        taken,
        marked,
        undefined_words(marked, bounds),
        "f1",
    )


def read_words(
    chosen: ArrayLike, human: ArrayLike, offsets: ArrayLike
) -> tuple[Bools, Bools, Ints]:
    """Read chosen and marked words, `[T]` bool each, and where each text begins."""
    picked = np.asarray(chosen)
    marks = np.asarray(human)
    if picked.ndim != 1 or picked.shape != marks.shape:
        raise ValueError(
            f"chosen, human: given {list(picked.shape)} and {list(marks.shape)}, needed [T] each"
        )
    for name, words in (("chosen", picked), ("human", marks)):
        if words.dtype != bool and not np.isin(words, (0, 1)).all():
            raise ValueError(f"{name}: given other values than 0 and 1, needed True or False")
    return picked.astype(bool), marks.astype(bool), read_offsets(offsets, len(picked))


def undefined_words(marked: Ints, bounds: Ints) -> dict[str, Bools]:
    """Say in which texts nothing can be compared, by reason: `[N]` each."""
    n = np.diff(bounds)
    return {
        "no words": n == 0,
        "no human words": (marked == 0) & (n > 0),
        "all words human": (marked == n) & (n > 0),
    }
