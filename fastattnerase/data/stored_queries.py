"""What documents on disk have beside their text: how shards keep it, and the columns of a split."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import Row
from fastattnerase.data.documents import QUERY_COLUMNS, SPAN_COLUMNS
from fastattnerase.data.queries import known_answers
from fastattnerase.data.spans import cut_spans
from fastattnerase.data.tokens import TokenisedText
from fastattnerase.data.vocabulary import Vocabulary


class Column(Protocol):
    """An array that grows."""

    def append(self, values: Sequence[int]) -> None:
        """Add values at its end."""


def columns_beside(config: DataConfig) -> dict[str, type[np.generic]]:
    """Name the columns of what a corpus has beside its texts, with their types."""
    if config.query_column is not None:
        return QUERY_COLUMNS | SPAN_COLUMNS
    return SPAN_COLUMNS if config.spans_column is not None else {}


def pack_beside(row: Row, text: TokenisedText) -> str:
    """Write what a document has beside its text as a line of JSON."""
    return json.dumps([text.query, row.answers, text.spans, text.unfit])


def words_of(packed: str) -> list[str]:
    """Give the words of a packed query; none without one."""
    words: list[str] | None = json.loads(packed)[0] if packed else None
    return words or []


class QueryWriter:
    """Writes the queries of a split, and what belongs to them, document after document.

    Args:
        vocabulary: the words.
        classes: from a class's name to its number.
        columns: those of `columns_beside`.
    """

    def __init__(
        self, vocabulary: Vocabulary, classes: Mapping[str, int], columns: Mapping[str, Column]
    ) -> None:
        self._vocabulary = vocabulary
        self._classes = classes
        self._columns = columns
        self._ends = dict.fromkeys(("query", "answer", "span", "query_text"), 0)
        self._cut = 0
        self._unfit: list[str] = []

    @property
    def of_spans(self) -> tuple[int, int, str]:
        """How many spans were cut, how many do not fit the words, and the first of these."""
        return self._cut, len(self._unfit), self._unfit[0] if self._unfit else ""

    def write(self, row: int, packed: str, words: int) -> None:
        """Add what a document, of this row and so many words, has beside them."""
        values: list[Any] = json.loads(packed)
        query, names, spans, unfit = (*values, [])[:4]  # shards of earlier versions have three
        kept, lost = cut_spans(spans, words)
        self._cut += lost
        self._unfit += [f"document {row}: {line}" for line in unfit]
        self._add("span", "spans", [place for span in kept for place in span])
        if query is not None:
            text = "".join(f"{word}\n" for word in query).encode("utf-8", "surrogatepass")
            self._add("query", "query_ids", self._vocabulary.indices(query))
            self._add("answer", "answers", list(known_answers(names, self._classes) or ()))
            self._add("query_text", "query_text", list(text))

    def _add(self, kind: str, column: str, numbers: Sequence[int]) -> None:
        self._columns[column].append(numbers)
        self._ends[kind] += len(numbers)
        self._columns[f"{kind}_ends"].append([self._ends[kind]])
