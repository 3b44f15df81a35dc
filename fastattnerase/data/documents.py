"""Documents as indices: one in memory, and many in a folder, read where they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fastattnerase.data.errors import DataError

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """One text as indices.

    Attributes:
        id: the example's id.
        label: the index of its class, -1 for none.
        token_ids: `[N]`, int64, indices into the vocabulary.
        sentence_lengths: `[M]`, int64, words of each sentence, none 0; they add to `N`.
        tokens: the `N` words, as in the text.
        sentences: the `M` sentences' texts.
        query_ids: `[Q]`, int64, the second text as indices; None where there is none.
        query_tokens: its words, as in the text; None where there is none.
        answers: `[A]`, int64, the classes that are allowed, at least one, in order; None where all
            are.
        spans: `[K, 2]`, int64, words that are marked: the first, and the one after the last; None
            where the data mark none.
    """

    id: int
    label: int
    token_ids: npt.NDArray[np.int64]
    sentence_lengths: npt.NDArray[np.int64]
    tokens: list[str]
    sentences: list[str]
    query_ids: npt.NDArray[np.int64] | None = None
    query_tokens: list[str] | None = None
    answers: npt.NDArray[np.int64] | None = None
    spans: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


class Sizes(NamedTuple):
    """The labels and lengths of documents.

    Attributes:
        labels: `[B]`, int64.
        words: `[B]`, int64, words of each document.
        sentences: `[B]`, int64, sentences of each document.
        longest_sentence: `[B]`, int64, words of each document's longest sentence, 0 for none.
    """

    labels: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]
    sentences: npt.NDArray[np.int64]
    longest_sentence: npt.NDArray[np.int64]


class StoredDocuments(Sequence[Document]):
    """Documents in a folder of memory-mapped arrays: only what is looked at is read.

    Written by `prepare_stored`. Slicing gives a list.

    Args:
        folder: the folder of one split.

    Raises:
        DataError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ids = self._open("ids")  # [B]
        self._labels = self._open("labels")  # [B]
        self._token_ids = self._open("token_ids")  # [T]
        self._ends = self._open("document_ends")  # [B]
        self._sentence_lengths = self._open("sentence_lengths")  # [S]
        self._sentence_ends = self._open("sentence_ends")  # [B]
        self._text = self._open("text")  # UTF-8 of the words and sentences, a line each
        self._word_ends = self._open("word_text_ends")  # [B], where a document's words end
        self._text_ends = self._open("text_ends")  # [B], where its sentences end
        self.has_queries = (folder / "query_ends.npy").exists()
        if self.has_queries:
            self._query_ids = self._open("query_ids")  # [Q]
            self._query_ends = self._open("query_ends")  # [B]
            self._query_text = self._open("query_text")  # UTF-8 of the words, a line each
            self._query_text_ends = self._open("query_text_ends")  # [B]
            self._answers = self._open("answers")  # [A]
            self._answer_ends = self._open("answer_ends")  # [B]; none of a document: all allowed
        self.has_spans = (folder / "span_ends.npy").exists()
        if self.has_spans:
            self._spans = self._open("spans")  # [2K]
            self._span_ends = self._open("span_ends")  # [B]

    def _open(self, name: str) -> npt.NDArray[Any]:
        path = self.folder / f"{name}.npy"
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is missing or damaged ({error})") from error

    @property
    def sizes(self) -> Sizes:
        """The labels and lengths of all documents."""
        counts = np.diff(self._sentence_ends, prepend=0)  # [B]
        longest = np.zeros(len(counts), dtype=np.int64)
        some = np.flatnonzero(counts)
        if len(some):
            starts = self._sentence_ends[some] - counts[some]
            longest[some] = np.maximum.reduceat(self._sentence_lengths, starts)
        words = np.diff(self._ends, prepend=0)  # [B]
        return Sizes(np.array(self._labels, dtype=np.int64), words, counts, longest)

    def numbers(self) -> Iterator[npt.NDArray[Any]]:
        """Stream all sentence lengths, then all word indices, in pieces."""
        for column in (self._sentence_lengths, self._token_ids):
            for begin in range(0, len(column), _PIECE):
                yield column[begin : begin + _PIECE]

    def query_numbers(self) -> Iterator[npt.NDArray[Any]]:
        """Stream what belongs to queries, in pieces: all lengths, then all numbers, of each kind.

        The kinds are queries' words, answers that are allowed, and spans. Nothing without queries.
        """
        if not self.has_queries:
            return
        for ends, column in (
            (self._query_ends, self._query_ids),
            (self._answer_ends, self._answers),
            (self._span_ends, self._spans),
        ):
            yield np.diff(ends, prepend=0)
            for begin in range(0, len(column), _PIECE):
                yield column[begin : begin + _PIECE]

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Document]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        """Read one document, or a list of some."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        index %= len(self)
        words = slice(*self._range(self._ends, index))
        sentences = slice(*self._range(self._sentence_ends, index))
        start, end = self._range(self._text_ends, index)
        middle = int(self._word_ends[index])
        document = Document(
            int(self._ids[index]),
            int(self._labels[index]),
            self._token_ids[words].astype(np.int64),
            self._sentence_lengths[sentences].astype(np.int64),
            _lines(self._text[start:middle]),
            _lines(self._text[middle:end]),
        )
        if self.has_spans:
            spans = self._spans[slice(*self._range(self._span_ends, index))]
            if len(spans):
                document = replace(document, spans=spans.astype(np.int64).reshape(-1, 2))
        return self._with_query(document, index) if self.has_queries else document

    def _with_query(self, document: Document, index: int) -> Document:
        """Add the second text of a document, and what belongs to it."""
        query, answers, text = (
            column[slice(*self._range(ends, index))]
            for column, ends in (
                (self._query_ids, self._query_ends),
                (self._answers, self._answer_ends),
                (self._query_text, self._query_text_ends),
            )
        )
        return replace(
            document,
            query_ids=query.astype(np.int64),
            query_tokens=_lines(text),
            answers=answers.astype(np.int64) if len(answers) else None,
        )

    @staticmethod
    def _range(ends: npt.NDArray[np.int64], index: int) -> tuple[int, int]:
        return (int(ends[index - 1]) if index else 0), int(ends[index])


def _lines(text: npt.NDArray[np.uint8]) -> list[str]:
    return bytes(text).decode("utf-8", "surrogatepass").split("\n")[:-1]
