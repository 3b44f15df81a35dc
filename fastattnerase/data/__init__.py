"""Labelled text: readers, splits, words, vocabulary, word vectors and data sets."""

from typing import TYPE_CHECKING

from fastattnerase.lazy import public_names

if TYPE_CHECKING:
    from fastattnerase.data.public import *  # noqa: F403
else:
    __getattr__, __dir__ = public_names(__name__)
