"""What a preset says of its data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastattnerase.data.cleaning import Clean
from fastattnerase.data.config import DataConfig


@dataclass(frozen=True)
class DataPreset:
    """A data set: where it is, how it is cleaned, filtered and split.

    Attributes:
        title: for tables.
        config: from the folder of all data sets, where the files are and how they are split.
        clean: from a text to its words.
        min_documents: a word of the vocabulary is in at least so many training documents.
        longer_than: shorter documents, and those of this length, are left out; None, as in the
            published preparation: each split's shortest are. -1 keeps all.
        shorter_than: longer documents, and those of this length, are left out; None: each split's
            longest are.
        about: what differs from the published data.
    """

    title: str
    config: Callable[[Path], DataConfig]
    clean: Clean
    min_documents: int
    longer_than: int | None
    shorter_than: int | None
    about: str = ""
