"""Queries on disk: how shards keep them, and the columns of a split that has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastattnerase.data.corpus import Row
from fastattnerase.data.queries import cut_spans, known_answers
from fastattnerase.data.tokens import TokenisedText
from fastattnerase.data.vocabulary import Vocabulary

QUERY_COLUMNS: dict[str, type[np.generic]] = {  # of a corpus with queries alone
    "query_ids": np.int32,
    "answers": np.int32,
    "spans": np.int32,
    "query_ends": np.int64,
    "answer_ends": np.int64,
    "span_ends": np.int64,
    "query_text_ends": np.int64,
    "query_text": np.uint8,
}

Append = Callable[[str, Sequence[int]], None]  # the name of a column, and what it grows by


def pack_query(row: Row, text: TokenisedText) -> str:
    """Write what a document has beside its text as a line of JSON."""
    return json.dumps([text.query, row.answers, row.spans])


def words_of(packed: str) -> list[str]:
    """Give the words of a packed query; none without one."""
    words: list[str] = json.loads(packed)[0] if packed else []
    return words


class QueryWriter:
    """Writes the queries of a split, and what belongs to them, document after document.

    Args:
        vocabulary: the words.
        classes: from a class's name to its number.
        append: adds to a column.
    """

    def __init__(self, vocabulary: Vocabulary, classes: Mapping[str, int], append: Append) -> None:
        self._vocabulary = vocabulary
        self._classes = classes
        self._append = append
        self._ends = dict.fromkeys(("query", "answer", "span", "query_text"), 0)
        self.spans_cut = 0

    def write(self, packed: str, words: int) -> None:
        """Add what a document of so many words has beside them."""
        values: list[Any] = json.loads(packed)
        query, names, spans = values
        kept, lost = cut_spans(spans, words)
        self.spans_cut += lost
        text = "".join(f"{word}\n" for word in query).encode("utf-8", "surrogatepass")
        flat = [place for span in kept for place in span]
        for column, kind, numbers in (
            ("query_ids", "query", self._vocabulary.indices(query)),
            ("answers", "answer", list(known_answers(names, self._classes) or ())),
            ("spans", "span", flat),
            ("query_text", "query_text", list(text)),
        ):
            self._append(column, numbers)
            self._ends[kind] += len(numbers)
            self._append(f"{kind}_ends", [self._ends[kind]])
