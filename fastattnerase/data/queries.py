"""What a row has beside its text: a query, the answers that are allowed, spans of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastattnerase.data.errors import DataError

if TYPE_CHECKING:
    from fastattnerase.data.config import DataConfig

Span = tuple[int, int]  # first word, and the one after the last, counted from 0


class Columns(NamedTuple):
    """The columns that are read of each row; None where the data carry none.

    Attributes:
        text: the texts.
        label: the labels.
        split: train, dev or test.
        query: the second text of each row.
        answers: the labels that are allowed.
        spans: the words of the text that are marked.
    """

    text: str
    label: str | None = None
    split: str | None = None
    query: str | None = None
    answers: str | None = None
    spans: str | None = None

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
        )

    @property
    def names(self) -> list[str]:
        """The columns that a reader is asked for."""
        return [name for name in self if name is not None]


class LeftOut(Counter[str]):
    """Counts rows that are left out, by reason; keeps of the first what it lacked.

    Attributes:
        first: for reasons that concern the query, a line that names file, row and what is needed.
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


def read_spans(value: object, words: int, where: str, column: str) -> tuple[Span, ...]:
    """Read spans of words: pairs of numbers, or a text such as `3:8;10:14`.

    A span goes from its first word, counted from 0, to before its second number.

    Args:
        value: what a reader gave; None and an empty text are no spans.
        words: of the text, which white space separates.
        where: file and row, for errors.
        column: for errors.

    Example:
        >>> read_spans("3:5;0:2", 5, "a.csv, row 1", "spans")
        ((3, 5), (0, 2))
    """
    parts: object = value
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        parts = [part.split(":") for part in value.split(";")]
    try:
        assert isinstance(parts, Sequence)
        spans = tuple((int(begin), int(end)) for begin, end in parts)
    except (AssertionError, TypeError, ValueError):
        spans = ((0, 0),)
    if any(not 0 <= begin < end <= words for begin, end in spans):
        raise DataError(
            f"{where}: given {value!r:.60} in column {column!r}, needed spans of the {words} words "
            "of the text: pairs of numbers, or a text such as '3:8;10:14'"
        )
    return spans


def cut_spans(spans: Sequence[Span], words: int) -> tuple[list[Span], int]:
    """Cut spans at the end of a text of so many words; count those that lost words.

    Example:
        >>> cut_spans([(0, 2), (1, 4), (3, 4)], 3)
        ([(0, 2), (1, 3)], 2)
    """
    kept = [(begin, min(end, words)) for begin, end in spans if begin < words]
    return kept, sum(end > words for _, end in spans)


def known_answers(
    answers: Sequence[str] | None, classes: Mapping[str, int]
) -> tuple[int, ...] | None:
    """Give the classes that are allowed, in order; names of no class say nothing."""
    if answers is None:
        return None
    return tuple(sorted(classes[name] for name in answers if name in classes))


def as_pairs(spans: Sequence[Span]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Give spans as an array `[K, 2]`."""
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
