"""Token IoU: how much the chosen words and the marked ones overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Measured, measure
from fastattnerase.measures.token_f1 import read_words, undefined_words


@measure(better="higher", low=0, high=1, best=1.0)
def token_iou(chosen: ArrayLike, human: ArrayLike, offsets: ArrayLike) -> Measured:
    """Compute `|chosen ∩ marked| / |chosen ∪ marked|` of the words of each text.

    Args:
        chosen: `[T]`, bool, one text after another, as `choose_words` gives it.
        human: `[T]`, bool: the marked words.
        offsets: `[N + 1]`, integers: where each text begins, and the end of the last.

    Returns:
        A value for each text; undefined where no word is marked, and where all are.

    Raises:
        ValueError: arguments that do not fit each other.

    Source:
        Attanasio et al. 2023, ferret ("token IOU"); ERASER's IoU is of spans, `iou_f1`.

    Example:
        >>> from fastattnerase.measures.token_iou import token_iou
        >>> token_iou([True, True, False], [True, False, False], [0, 3]).values.tolist()
        [0.5]
    """
    picked, marks, bounds = read_words(chosen, human, offsets)
    both, either, marked = (
        np.diff(np.concatenate([[0], np.cumsum(words)])[bounds])
        for words in (picked & marks, picked | marks, marks)
    )  # [N]
    undefined = undefined_words(marked, bounds)
    out = np.logical_or.reduce(list(undefined.values()))  # [N]
    counts = {why: int(which.sum()) for why, which in undefined.items()}
    return Measured(
        np.where(out, np.nan, both / np.maximum(either, 1)),
        {why: count for why, count in counts.items() if count},
    )
