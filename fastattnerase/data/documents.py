"""Documents as indices: one in memory, and many in a folder, read where they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fastattnerase.data.errors import DataError

_PIECE = 1 << 20
_TEXTS = ("tokens", "sentences")
COLUMNS: dict[str, type[np.generic]] = {
    "ids": np.int64,
    "labels": np.int64,
    "token_ids": np.int32,
    "sentence_lengths": np.int32,
    "document_ends": np.int64,
    "sentence_ends": np.int64,
    "word_text_ends": np.int64,
    "text_ends": np.int64,
    "text": np.uint8,
}
QUERY_COLUMNS: dict[str, type[np.generic]] = {  # of documents with queries alone
    "query_ids": np.int32,
    "answers": np.int32,
    "query_ends": np.int64,
    "answer_ends": np.int64,
    "query_text_ends": np.int64,
    "query_text": np.uint8,
}
SPAN_COLUMNS: dict[str, type[np.generic]] = {"spans": np.int32, "span_ends": np.int64}


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


# Id, label, token ids and sentence lengths of a document.
Numbered = tuple[int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]


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


class PackedDocuments(Sequence[Document]):
    """Documents as a few arrays: a document is put together when it is looked at.

    Slicing gives a list.

    Args:
        columns: from a name to an array, as `pack` gives them.
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._ids = columns["ids"]  # [B]
        self._labels = columns["labels"]  # [B]
        self._token_ids = columns["token_ids"]  # [T]
        self._ends = columns["document_ends"]  # [B]
        self._sentence_lengths = columns["sentence_lengths"]  # [S]
        self._sentence_ends = columns["sentence_ends"]  # [B]
        self._text = columns["text"]  # UTF-8 of the words and sentences, a line each
        self._word_ends = columns["word_text_ends"]  # [B], where a document's words end
        self._text_ends = columns["text_ends"]  # [B], where its sentences end
        self.has_queries = "query_ends" in columns
        if self.has_queries:
            self._query_ids = columns["query_ids"]  # [Q]
            self._query_ends = columns["query_ends"]  # [B]
            self._query_text = columns["query_text"]  # UTF-8 of the words, a line each
            self._query_text_ends = columns["query_text_ends"]  # [B]
            self._answers = columns["answers"]  # [A]
            self._answer_ends = columns["answer_ends"]  # [B]; none of a document: all allowed
        self.has_spans = "span_ends" in columns
        if self.has_spans:
            self._spans = columns["spans"]  # [2K]
            self._span_ends = columns["span_ends"]  # [B]

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

    def numbered(self) -> Iterator[Numbered]:
        """Go through the documents without their texts."""
        begin = first = 0
        ends = zip(self._ends.tolist(), self._sentence_ends.tolist(), strict=True)
        for row, (end, last) in enumerate(ends):
            yield (
                int(self._ids[row]),
                int(self._labels[row]),
                self._token_ids[begin:end].astype(np.int64),
                self._sentence_lengths[first:last].astype(np.int64),
            )
            begin, first = end, last

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


class StoredDocuments(PackedDocuments):
    """Documents in a folder of memory-mapped arrays: only what is looked at is read.

    Written by `prepare_stored`. Slicing gives a list.

    Args:
        folder: the folder of one split.

    Raises:
        DataError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        queries = QUERY_COLUMNS if (folder / "query_ends.npy").exists() else {}
        spans = SPAN_COLUMNS if (folder / "span_ends.npy").exists() else {}
        super().__init__({name: self._open(name) for name in COLUMNS | queries | spans})

    def _open(self, name: str) -> npt.NDArray[Any]:
        path = self.folder / f"{name}.npy"
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is missing or damaged ({error})") from error
        return mapped.view(np.ndarray)  # type: ignore[no-any-return]


def pack(documents: Sequence[Document]) -> dict[str, npt.NDArray[Any]]:
    """Put documents into the arrays of which `PackedDocuments` reads them.

    Args:
        documents: the documents; all have a query, or none has.

    Returns:
        From the names of `COLUMNS` and `SPAN_COLUMNS`, and with queries of `QUERY_COLUMNS`, to
        arrays.

    Example:
        >>> one = Document(7, 1, np.array([3, 1]), np.array([2]), ["A", "film"], ["A film"])
        >>> PackedDocuments(pack([one]))[0].tokens
        ['A', 'film']
    """
    words, sentences = ([to_lines(getattr(d, name)) for d in documents] for name in _TEXTS)
    lines = [part for pair in zip(words, sentences, strict=True) for part in pair]
    text_ends = _ends(lines)  # [2B]
    packed: dict[str, npt.NDArray[Any]] = {
        "ids": np.array([document.id for document in documents]),
        "labels": np.array([document.label for document in documents]),
        "token_ids": _joined([document.token_ids for document in documents]),
        "sentence_lengths": _joined([document.sentence_lengths for document in documents]),
        "document_ends": _ends([document.token_ids for document in documents]),
        "sentence_ends": _ends([document.sentence_lengths for document in documents]),
        "word_text_ends": text_ends[::2],
        "text_ends": text_ends[1::2],
        "text": np.frombuffer(b"".join(lines), dtype=np.uint8),
    }
    beside = {"spans": ("span_ends", SPAN_COLUMNS)}
    if queries := any(document.query_ids is not None for document in documents):
        beside |= {
            "query_ids": ("query_ends", QUERY_COLUMNS),
            "answers": ("answer_ends", QUERY_COLUMNS),
        }
    dtypes = COLUMNS
    for name, (ends, own) in beside.items():
        parts = [_flat(getattr(document, name)) for document in documents]
        packed |= {name: _joined(parts), ends: _ends(parts)}
        dtypes = dtypes | own
    if queries:
        lines = [to_lines(document.query_tokens or ()) for document in documents]
        packed["query_text"] = np.frombuffer(b"".join(lines), dtype=np.uint8)
        packed["query_text_ends"] = _ends(lines)
    return {name: packed[name].astype(dtype) for name, dtype in dtypes.items()}


def to_lines(texts: Sequence[str]) -> bytes:
    """Write texts as lines of UTF-8."""
    # JSON escapes can name halves of surrogate pairs, which strict UTF-8 refuses.
    return "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass")


def _flat(part: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64) if part is None else part.ravel()


def _joined(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([_flat(None), *parts])


def _ends(parts: Sequence[Sized]) -> npt.NDArray[np.int64]:
    return np.cumsum([len(part) for part in parts], dtype=np.int64)
