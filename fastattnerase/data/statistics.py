"""What a corpus is like: Table 1 of Serrano & Smith 2019."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastattnerase.data.dataset import PreparedCorpus


@dataclass(frozen=True)
class CorpusStatistics:
    """One line of the paper's Table 1; words and sentences over the documents of all splits.

    Attributes:
        words: mean words of a document.
        words_sd: their standard deviation (with the number of documents as the divisor).
        sentences: mean sentences of a document.
        sentences_sd: their standard deviation.
        train: training documents.
        dev: development documents.
        test: test documents.
        classes: classes.
    """

    words: float
    words_sd: float
    sentences: float
    sentences_sd: float
    train: int
    dev: int
    test: int
    classes: int

    @property
    def train_and_dev(self) -> int:
        """Training and development documents together, as the paper counts them."""
        return self.train + self.dev

    def to_dict(self) -> dict[str, Any]:
        """Give the statistics as a dictionary for JSON."""
        return asdict(self)


def corpus_statistics(prepared: PreparedCorpus) -> CorpusStatistics:
    """Count a corpus as Table 1 does.

    Args:
        prepared: the corpus, in memory or on disk; at least one document.

    Returns:
        Means, standard deviations and counts.

    Source: Serrano & Smith 2019, Table 1.

    Example:
        >>> corpus_statistics(prepared).words  # doctest: +SKIP
        104.2
    """
    splits = (prepared.train, prepared.dev, prepared.test)
    words = np.concatenate([split.sizes.words for split in splits])  # [B]
    sentences = np.concatenate([split.sizes.sentences for split in splits])  # [B]
    return CorpusStatistics(
        float(words.mean()),
        float(words.std()),
        float(sentences.mean()),
        float(sentences.std()),
        len(prepared.train),
        len(prepared.dev),
        len(prepared.test),
        len(prepared.classes),
    )
