"""What a preset says of its data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from fastattnerase.data.cleaning import Clean
from fastattnerase.data.config import DataConfig

NO_LIMIT = 2**63 - 1  # as `shorter_than`: no document is too long


class Draw(NamedTuple):
    """Rows that scikit-learn's `train_test_split` draws from a published seed.

    Attributes:
        seed: its `random_state`.
        share: its `test_size`, the share of the rows that is drawn.
        split: where rows drawn from train go to; nothing is drawn where the files have that split.
        stratified: whether the share holds in each class.
    """

    seed: int
    share: float
    split: Literal["dev", "test"] = "dev"
    stratified: bool = False


@dataclass(frozen=True)
class DataPreset:
    """A data set: where it is, how it is cleaned, filtered and split.

    Attributes:
        title: for tables.
        config: from the folder of all data sets, where the files are and how they are split.
        clean: from a text to its words; of two texts both.
        min_documents: a word of the vocabulary is in at least so many training documents; each of
            two texts counts as one.
        longer_than: shorter documents, and those of this length, are left out; None, as in the
            published preparation: each split's shortest are. 0 keeps all.
        shorter_than: longer documents, and those of this length, are left out; None: each split's
            longest are. `NO_LIMIT` keeps all.
        about: what differs from the published data.
        draws: splits that are drawn from train, one after another, before the filters.
        test_draw: the test documents that are kept, drawn after the filters; None keeps all.
        answers: from the folder of all data sets, what may be answered to any question, where that
            is more than the training rows' answers.
        answers_are_words: whether answers are in the vocabulary however rare they are.
        words_of_all: whether the vocabulary is that of all training documents, as published, or of
            those that the filters keep.
        lower_case: whether words are compared in lower case.
    """

    title: str
    config: Callable[[Path], DataConfig]
    clean: Clean
    min_documents: int
    longer_than: int | None
    shorter_than: int | None
    about: str = ""
    draws: tuple[Draw, ...] = ()
    test_draw: Draw | None = None
    answers: Callable[[Path], tuple[str, ...]] | None = None
    answers_are_words: bool = False
    words_of_all: bool = True
    lower_case: bool = True
