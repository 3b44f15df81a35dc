"""Splits as scikit-learn draws them from the seeds that were published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastattnerase.data.corpus import Corpus
from fastattnerase.data.errors import DataError
from fastattnerase.data.published.record import Draw
from fastattnerase.extras import needs


def draw(labels: Sequence[int], how: Draw) -> list[int]:
    """Draw rows as scikit-learn's `train_test_split` does.

    Args:
        labels: `R` classes of the rows, in their published order.
        how: seed and share.

    Returns:
        The drawn rows' indices, ascending.

    Raises:
        DataError: too few rows, or too few of a class.

    Example:
        >>> draw([0, 1, 0, 1], Draw(seed=0, share=0.5))
        [2, 3]
    """
    with needs("text"):
        from sklearn.model_selection import train_test_split  # slow to import
    try:
        _, drawn = train_test_split(
            range(len(labels)),
            test_size=how.share,
            random_state=how.seed,
            stratify=list(labels) if how.stratified else None,
        )
    except ValueError as error:
        raise DataError(
            f"rows: given {len(labels)}, needed enough to draw {how.share:.0%} ({error})"
        ) from error
    return sorted(drawn)


def drawn_corpus(corpus: Corpus, draws: Sequence[Draw]) -> Corpus:
    """Draw the splits that a corpus lacks from its training examples, one after another."""
    for how in draws:
        if getattr(corpus, how.split):
            continue
        train = corpus.train
        chosen = set(draw([example.label for example in train], how))
        drawn = [example for i, example in enumerate(train) if i in chosen]
        rest = [example for i, example in enumerate(train) if i not in chosen]
        if how.split == "dev":
            corpus = replace(corpus, train=rest, dev=drawn)
        else:
            corpus = replace(corpus, train=rest, test=drawn)
    return corpus
