"""Plausibility: every measure of scores against the words that people marked, by one convention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.auprc import auprc
from fastattnerase.measures.base import Bools, Measured
from fastattnerase.measures.human_words import F1, RationalePreset, choose_words, marked_words
from fastattnerase.measures.iou_f1 import iou_f1
from fastattnerase.measures.token_f1 import token_f1
from fastattnerase.measures.token_iou import token_iou


class Plausibility(NamedTuple):
    """What one method's scores have to do with the marked words.

    Attributes:
        auprc: the area under precision over recall.
        token_f1: of the chosen words.
        iou_f1: of the chosen spans.
        token_iou: of the chosen words.
        chosen: `[T]`, bool: the chosen words.
    """

    auprc: Measured
    token_f1: F1
    iou_f1: F1
    token_iou: Measured
    chosen: Bools


def plausibility(
    scores: ArrayLike,
    spans: Sequence[ArrayLike | None],
    offsets: ArrayLike,
    *,
    preset: RationalePreset = "eraser",
    share: float | None = None,
    count: ArrayLike | None = None,
) -> Plausibility:
    """Compare the scores of the words of texts with the words that people marked.

    Args:
        scores: `[T]`, of the words of `N` texts, one text after another.
        spans: of each text `[K, 2]`, integers: the first word, and the one after the last; None for
            none. `Document.spans` has them.
        offsets: `[N + 1]`, integers: where each text begins, and the end of the last.
        preset: "eraser": the top `share` of a text's words, which has to be given: the training
            split's (`mean_share`). "ferret": the top 5, words of positive score alone, and negative
            scores are 0 in the area.
        share: of the words, rounded up, in place of the preset's number.
        count: `k`, a number or one for each text, such as its marked words, likewise.

    Returns:
        The measures, each with its undefined texts counted by reason.

    Raises:
        ValueError: as `choose_words`, `auprc` and `iou_f1`.

    Source:
        DeYoung et al. 2020, ERASER, section 4.1 and code; Attanasio et al. 2023, ferret's code.

    Example:
        >>> from fastattnerase.measures.plausibility import plausibility
        >>> found = plausibility([0.9, 0.5, 0.1, 0.2], [[[0, 2]]], [0, 4], share=0.5)
        >>> found.auprc.values.tolist(), found.token_f1.macro, found.iou_f1.micro
        ([1.0], 1.0, 1.0)
    """
    if preset == "ferret" and share is not None:
        raise ValueError("share: given with ferret, needed count (5 by default)")
    chosen = choose_words(scores, offsets, share=share, count=count, preset=preset)
    human = marked_words(spans, np.diff(np.asarray(offsets, dtype=np.int64)))
    return Plausibility(
        auprc(scores, human, offsets, only_positive=preset == "ferret"),
        token_f1(chosen, human, offsets),
        iou_f1(chosen, spans, offsets),
        token_iou(chosen, human, offsets),
        chosen,
    )
