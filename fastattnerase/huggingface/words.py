"""Words as pieces: what a tokenizer makes of each word of the data, by an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset, cut
from fastattnerase.data.documents import Document
from fastattnerase.data.spans import as_pairs, cut_spans
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.models.errors import ModelError


class Pieces:
    """The pieces of words, by an index that documents have as `token_ids`.

    A word of one piece has that piece's index in the tokenizer; words of several pieces, or of
    none, have indices after all pieces, in the order in which they are first asked for. Words are
    tokenised each by itself, as words of a text that is split already (`is_split_into_words`).

    Args:
        tokenizer: a fast one, which puts a classifying token before every text.

    Raises:
        ModelError: a slow tokenizer; one that puts nothing before a text.

    Example:
        >>> Pieces(tokenizer).indices(["A", "film"])  # doctest: +SKIP
        [1037, 2143]
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(
                f"tokenizer: given {type(tokenizer).__name__}, a slow one, needed a fast one (a "
                "tokenizer.json beside the model), which knows the pieces of each word"
            )
        self.tokenizer = tokenizer
        self.before, self.after = self._special()
        self._specials = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}  # ids
        self._size = len(tokenizer)
        self._of_word: dict[str, int] = {}
        self._of_pieces: dict[tuple[int, ...], int] = {}
        self._several: list[tuple[int, ...]] = []
        self._table: tuple[Tensor, Tensor, Tensor] | None = None  # starts, counts and pieces

    def _special(self) -> tuple[list[int], list[int]]:
        """Find the special tokens that stand before a text and after it."""
        ids = self.tokenizer([], is_split_into_words=True)["input_ids"]
        other = self.tokenizer.unk_token_id or 0
        piece = self.tokenizer.convert_ids_to_tokens(other)
        whole = self.tokenizer([piece], is_split_into_words=True, return_special_tokens_mask=True)
        mask = whole["special_tokens_mask"]
        if not mask or not mask[0]:
            raise ModelError(
                f"tokenizer: given {type(self.tokenizer).__name__}, which puts no token before a "
                "text, needed one that puts the classifying token there"
            )
        begin = next((place for place, special in enumerate(mask) if not special), len(ids))
        return list(ids[:begin]), list(ids[begin:])

    @property
    def special(self) -> int:
        """How many special tokens every text has."""
        return len(self.before) + len(self.after)

    def has_words(self, words: Iterable[str]) -> bool:
        """Whether words of a text have a piece that is no special token.

        Args:
            words: all words of the text.

        Example:
            >>> model.words.has_words(["[SEP]", "film"])  # doctest: +SKIP
            True
        """
        return not self._of(self.indices(words)) <= self._specials

    def _of(self, indices: Iterable[int]) -> set[int]:
        return {piece for index in set(indices) for piece in self.pieces(index)}

    def require_words(self, document: Document, indices: Sequence[int]) -> None:
        """Refuse a document with a second text, or of special tokens only.

        Args:
            document: it is named by its id.
            indices: of its words.

        Raises:
            ModelError: it is such a document.
        """
        if document.query_ids is not None:
            raise ModelError(
                f"dataset: given a second text for document {document.id}, needed documents of one "
                "text"
            )
        own = self._of(indices)
        if own and own <= self._specials:
            raise ModelError(
                f"dataset: given document {document.id}, {' '.join(document.tokens)!r:.40}, of "
                "special tokens only, needed words"
            )

    def fresh(self) -> Pieces:
        """Give the same tokenizer's pieces without the words that were asked for so far."""
        return Pieces(self.tokenizer)

    def __contains__(self, word: str) -> bool:
        """Whether a word is one piece that the tokenizer knows."""
        index = self.indices([word])[0]
        return index < self._size and index != self.tokenizer.unk_token_id

    def to_dict(self) -> dict[str, Any]:
        """Say which tokenizer it is, for records."""
        return {
            "tokenizer": type(self.tokenizer).__name__,
            "size": self._size,
            "before": self.before,
            "after": self.after,
        }

    def indices(self, words: Iterable[str]) -> list[int]:
        """Give each word's index.

        Args:
            words: words of texts.

        Returns:
            An index each.
        """
        words = list(words)
        new = [word for word in dict.fromkeys(words) if word not in self._of_word]
        if new:
            found = self.tokenizer(
                [[word] for word in new],
                is_split_into_words=True,
                add_special_tokens=False,
                verbose=False,  # no warning of a long word: texts are cut later
            )["input_ids"]
            for word, pieces in zip(new, found, strict=True):
                self._of_word[word] = self.index(pieces)
        return [self._of_word[word] for word in words]

    def index(self, pieces: Sequence[int]) -> int:
        """Give the index of a word that is made of these pieces."""
        if len(pieces) == 1:
            return int(pieces[0])
        key = tuple(pieces)
        known = self._of_pieces.get(key)
        if known is None:
            known = self._of_pieces[key] = self._size + len(self._several)
            self._several.append(key)
            self._table = None
        return known

    def pieces(self, index: int) -> tuple[int, ...]:
        """Give the pieces of a word."""
        return (index,) if index < self._size else self._several[index - self._size]

    def texts(self, index: int) -> list[str]:
        """Give the pieces of a word as texts."""
        found: list[str] = self.tokenizer.convert_ids_to_tokens(list(self.pieces(index)))
        return found

    def masked(self, index: int) -> int:
        """Give the index of a word of as many mask tokens as a word has pieces.

        Raises:
            ModelError: the tokenizer has no mask token.
        """
        mask = self.tokenizer.mask_token_id
        if mask is None:
            raise ModelError(
                f"erasure: given mask with {type(self.tokenizer).__name__}, which has no mask "
                "token, needed remove"
            )
        return self.index([mask] * len(self.pieces(index)))

    def expanded(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Give the pieces of words.

        Args:
            indices: `[T]`, int64.

        Returns:
            `[P]`, int64, all pieces one after another; `[T]`, int64, how many each word has.
        """
        if self._table is None:
            counts = torch.tensor([len(pieces) for pieces in self._several], dtype=torch.int64)
            flat = [piece for pieces in self._several for piece in pieces]
            pieces = torch.tensor(flat, dtype=torch.int64)
            self._table = (counts.cumsum(0) - counts, counts, pieces)
        if not self._several:
            return indices, torch.ones_like(indices)
        starts, own, every = (part.to(indices.device) for part in self._table)  # [S], [S], [P']
        several = indices >= self._size  # [T]
        place = (indices - self._size).clamp(min=0)  # [T]
        lengths = torch.where(several, own[place], 1)  # [T]
        row = torch.repeat_interleave(lengths)  # [P], the word of each piece
        within = torch.arange(len(row), device=row.device) - (lengths.cumsum(0) - lengths)[row]
        if not len(every):  # the words that are not of one piece have none
            return indices[row], lengths
        of_several = every[(starts[place][row] + within).clamp(max=len(every) - 1)]  # [P]
        return torch.where(several[row], of_several, indices[row]), lengths


def fitted(dataset: Dataset, words: Pieces, config: TransformerConfig, limit: int) -> Dataset:
    """Make a data set's documents those of a transformer.

    Words become their pieces' indices, texts are cut after as many pieces as the model takes, a
    word that is cut keeps those that are left; with `unit="pieces"` each piece is a word.

    Args:
        dataset: documents with their words as texts.
        words: the pieces of words.
        config: what an item is.
        limit: pieces of a text, without special tokens, at most.

    Returns:
        The documents; `truncated` counts those that were cut, `spans_cut` the marked spans that
        lost words by it.

    Raises:
        ModelError: documents with a second text; a text of special tokens only.
    """
    documents = []
    truncated, spans_cut = dataset.truncated, dataset.spans_cut
    # Encoding has asked for every word before any is cut. Documents that were kept for going on
    # are not encoded again: their words get the same numbers, and the run the same hash, by this.
    for document in dataset:
        words.indices(document.tokens)
    for document in dataset:
        indices = words.indices(document.tokens)
        words.require_words(document, indices)
        counts = np.array([len(words.pieces(index)) for index in indices], dtype=np.int64)  # [n]
        ends = counts.cumsum()
        n = len(counts)
        if n and ends[-1] > limit:
            n = int(np.searchsorted(ends, limit, side="left")) + 1  # the word at the limit
            left = limit - int(ends[n - 1] - counts[n - 1])
            if left:
                indices = [
                    *indices[: n - 1], words.index(words.pieces(indices[n - 1])[:left])
                ]  # fmt: skip
            else:
                n -= 1
            indices = indices[:n]
            truncated += indices != document.token_ids.tolist()  # else it has been cut before
        documents.append(_document(document, indices, n, words, config))
        if document.spans is not None:
            spans_cut += cut_spans(document.spans.tolist(), n)[1]
    return replace(dataset, documents=documents, truncated=truncated, spans_cut=spans_cut)


def _document(
    document: Document, indices: list[int], n: int, words: Pieces, config: TransformerConfig
) -> Document:
    """Give a document's first `n` words, or their pieces, as items."""
    spans = None
    if document.spans is not None:
        kept, _ = cut_spans(document.spans.tolist(), n)
        spans = kept or None
    lengths = np.array(cut(document.sentence_lengths.tolist(), n), dtype=np.int64)
    tokens = document.tokens[:n]
    if config.unit == "pieces":
        pieces = [words.pieces(index) for index in indices]
        counts = np.array([len(own) for own in pieces], dtype=np.int64)  # [n]
        ends = np.concatenate([[0], counts.cumsum()])
        bounds = np.concatenate([[0], lengths.cumsum()])
        lengths = np.diff(ends[bounds])
        lengths = lengths[lengths > 0]  # no sentence is empty
        tokens = [text for index in indices for text in words.texts(index)]
        indices = [piece for own in pieces for piece in own]
        if spans is not None:
            of_pieces = [(int(ends[begin]), int(ends[end])) for begin, end in spans]
            spans = [(begin, end) for begin, end in of_pieces if begin < end] or None
    return replace(
        document,
        token_ids=np.array(indices, dtype=np.int64),
        sentence_lengths=lengths,
        tokens=tokens,
        sentences=document.sentences[: len(lengths)],
        spans=None if spans is None else as_pairs(spans),
    )
