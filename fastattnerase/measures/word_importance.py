"""Word importance: what each word of a data set does on average, a table of words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastattnerase.measures.base import Floats, Ints, measure, read_scores


class WordImportance(NamedTuple):
    """Words by what they do on average, the most important first, ties in order of the words.

    Attributes:
        words: `[V]`, each word (or index) once.
        mean: `[V]`, float64, the mean of its scores.
        counts: `[V]`, int64, how many times it occurs.
    """

    words: NDArray[np.generic]
    mean: Floats
    counts: Ints


@measure(better=None, low=-np.inf, high=np.inf)
def word_importance(scores: ArrayLike, words: ArrayLike) -> WordImportance:
    """Average the scores of each word type over a data set: `mean of s_i over all i of that word`.

    With scores of `omission` it is the importance of Li et al.; it says something about words, not
    about the order of those of one text.

    Args:
        scores: `[T]`, of the words of all texts, one text after another.
        words: `[T]`, integers or texts: the word of each.

    Returns:
        The table.

    Raises:
        ValueError: another number of words than of scores, or a score that is NaN.

    Source:
        Li, Monroe and Jurafsky 2016, Understanding neural networks through representation erasure.

    Example:
        >>> from fastattnerase.measures.word_importance import word_importance
        >>> found = word_importance([0.5, -0.25, 0.25], ["good", "a", "good"])
        >>> found.words.tolist(), found.mean.tolist(), found.counts.tolist()
        (['good', 'a'], [0.375, -0.25], [2, 1])
    """
    of = np.asarray(words)
    values, _ = read_scores("scores", scores, [0, len(of)])
    if values.ndim != 1 or of.ndim != 1:
        raise ValueError(f"scores, words: given {values.shape} and {of.shape}, needed [T] each")
    types, which = np.unique(of, return_inverse=True)
    count = np.bincount(which, minlength=len(types))
    mean = np.bincount(which, values, len(types)) / np.maximum(count, 1)
    order = np.argsort(-mean, kind="stable")
    return WordImportance(types[order], mean[order], count[order])
