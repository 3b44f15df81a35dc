"""What a row has beside its text: a query, the answers that are allowed, spans of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastattnerase.data.errors import DataError
from fastattnerase.data.spans import SpansUnit

if TYPE_CHECKING:
    from fastattnerase.data.config import DataConfig
else:  # imported where they are used; hints that are read at run time say Any
    DataConfig = Any


class Columns(NamedTuple):
    """The columns that are read of each row; None where the data carry none.

    Attributes:
        text: the texts.
        label: the labels.
        split: train, dev or test.
        query: the second text of each row.
        answers: the labels that are allowed.
        spans: the words of the text that are marked.
        spans_unit: what spans count.
    """

    text: str
    label: str | None = None
    split: str | None = None
    query: str | None = None
    answers: str | None = None
    spans: str | None = None
    spans_unit: SpansUnit = "words"

    @classmethod
    def of(cls, config: DataConfig, *, split: str | None) -> Columns:
        """Give the columns of a configuration."""
        return cls(
            config.text_column,
            config.label_column,
            split,
            config.query_column,
            config.answers_column,
            config.spans_column,
            config.spans_unit,
        )

    @property
    def names(self) -> list[str]:
        """The columns that a reader is asked for."""
        *names, _ = self
        return [name for name in names if name is not None]


class LeftOut(Counter[str]):
    """Counts rows that are left out, by reason; keeps of the first what it lacked.

    Attributes:
        first: of some reasons the first row, in words: file, row and what is needed where it is
            the query, the document where it is a text without a piece of a word.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, str] = {}

    def add(self, reason: str, line: str) -> None:
        """Count a row."""
        self[reason] += 1
        self.first.setdefault(reason, line)


def read_answers(value: object, where: str, column: str) -> tuple[str, ...]:
    """Read labels: a list of texts, or a text with semicolons between.

    Example:
        >>> read_answers("garden; office", "a.csv, row 1", "answers")
        ('garden', 'office')
    """
    if value is None:
        return ()
    if isinstance(value, str):
        value = value.split(";")
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, (str, int)) for v in value):
        raise DataError(
            f"{where}: given {value!r:.60} in column {column!r}, needed labels: a list of texts, "
            "or a text with ';' between"
        )
    return tuple(dict.fromkeys(name for v in value if (name := str(v).strip())))


def known_answers(
    answers: Sequence[str] | None, classes: Mapping[str, int]
) -> tuple[int, ...] | None:
    """Give the classes that are allowed, in order; names of no class say nothing."""
    if answers is None:
        return None
    return tuple(sorted(classes[name] for name in answers if name in classes))
