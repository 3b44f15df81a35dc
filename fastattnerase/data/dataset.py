"""Texts as indices, ready for a model, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import Corpus
from fastattnerase.data.documents import Document, Numbered, PackedDocuments, Sizes
from fastattnerase.data.errors import DataError
from fastattnerase.data.examples import Example
from fastattnerase.data.spans import as_pairs, cut_spans
from fastattnerase.data.splits import SPLITS
from fastattnerase.data.tokens import TokenisedText, tokenise
from fastattnerase.data.vectors import read_vectors
from fastattnerase.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Dataset(Sequence[Document]):
    """Documents, in the order of the examples.

    Attributes:
        documents: the documents, or `PackedDocuments`, in memory or on disk.
        truncated: how many were cut at `max_tokens`.
        too_long: how many were left out by a length limit.
        spans_cut: how many marked spans lost words, or all, where documents were cut.
        spans_unfit: how many marked spans do not fit the words: they have none, or, of characters,
            begin or end inside of one.
        first_unfit: the first of these, in a line that names its document.
    """

    documents: Sequence[Document]
    truncated: int = 0
    too_long: int = 0
    spans_cut: int = 0
    spans_unfit: int = 0
    first_unfit: str = ""

    @cached_property
    def sizes(self) -> Sizes:
        """The labels and lengths of the documents."""
        if isinstance(self.documents, PackedDocuments):
            return self.documents.sizes
        rows = [
            (d.label, len(d), len(d.sentence_lengths), max(d.sentence_lengths.tolist(), default=0))
            for d in self.documents
        ]
        columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4).T  # [4, B]
        return Sizes(*columns)

    def digest(self) -> str:
        """Give a hash of labels, sentence boundaries and word indices, in memory or on disk.

        Of documents with a query also of its words, the answers that are allowed and the spans.
        Without a query spans do not count: a model's documents are the same, marked or not.
        """
        digest = blake2b(digest_size=16)
        for column in self.sizes:
            digest.update(column.astype("<i8").tobytes())
        if isinstance(self.documents, PackedDocuments):
            for part in self.documents.numbers():
                digest.update(part.astype("<i8").tobytes())
        else:
            for document in self.documents:
                digest.update(document.sentence_lengths.astype("<i8").tobytes())
            for document in self.documents:
                digest.update(document.token_ids.astype("<i8").tobytes())
        for part in self._query_numbers():
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()

    def numbered(self) -> Iterator[Numbered]:
        """Go through the documents without texts: id, label, token ids and sentence lengths."""
        if isinstance(self.documents, PackedDocuments):
            return self.documents.numbered()
        return ((d.id, d.label, d.token_ids, d.sentence_lengths) for d in self.documents)

    @property
    def has_queries(self) -> bool:
        """Whether the documents have a second text."""
        if isinstance(self.documents, PackedDocuments):
            return self.documents.has_queries
        return any(document.query_ids is not None for document in self.documents)

    def _query_numbers(self) -> Iterator[npt.NDArray[Any]]:
        """Stream what belongs to queries, as `PackedDocuments.query_numbers` does."""
        if isinstance(self.documents, PackedDocuments):
            yield from self.documents.query_numbers()
        elif self.has_queries:
            for name in ("query_ids", "answers", "spans"):
                parts = [getattr(document, name) for document in self.documents]
                yield np.array([0 if part is None else part.size for part in parts])
                yield from (part for part in parts if part is not None)

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Document | Dataset:
        """Give one document, or a data set of some (with the counts of the whole)."""
        if isinstance(index, slice):
            return replace(self, documents=self.documents[index])
        return self.documents[index]


class DocumentBatch(NamedTuple):
    """Documents one after another, without padding.

    Attributes:
        ids: `[B]`, int64.
        labels: `[B]`, int64.
        token_ids: `[T]`, int64.
        document_lengths: `[B]`, int64, words of each document.
        sentence_lengths: `[S]`, int64, words of each sentence.
        sentence_counts: `[B]`, int64, sentences of each document.
        query_ids: `[Q]`, int64, the second texts; None where the documents have none.
        query_lengths: `[B]`, int64, words of each; None as there.
        answers: `[A]`, int64, the classes that are allowed, document after document; None where
            all are in every document.
        answer_counts: `[B]`, int64, how many of them each document has, 0 where all classes are
            allowed; None as there.
    """

    ids: Tensor
    labels: Tensor
    token_ids: Tensor
    document_lengths: Tensor
    sentence_lengths: Tensor
    sentence_counts: Tensor
    query_ids: Tensor | None = None
    query_lengths: Tensor | None = None
    answers: Tensor | None = None
    answer_counts: Tensor | None = None

    def to(self, device: torch.device | str) -> DocumentBatch:
        """Give the batch on a device."""
        moved = {n: t.to(device) for n, t in self._asdict().items() if t is not None}
        return self._replace(**moved)


class PreparedCorpus(NamedTuple):
    """A corpus as data sets.

    Attributes:
        vocabulary: the words of train and dev.
        embeddings: `[V, E]`, float32, the words' pre-trained vectors, or None.
        vectors_found: how many known words have a pre-trained vector.
        train: the training documents.
        dev: the development documents.
        test: the test documents.
        classes: the classes' names.
        dropped: how many rows were left out, by reason; `too_long_train` and the like count those
            beyond a length limit.
    """

    vocabulary: Vocabulary
    embeddings: Tensor | None
    vectors_found: int
    train: Dataset
    dev: Dataset
    test: Dataset
    classes: list[str]
    dropped: dict[str, int]


def cut(lengths: Sequence[int], max_tokens: int | None) -> list[int]:
    """Give the sentence lengths of a document cut after so many words."""
    if max_tokens is None or sum(lengths) <= max_tokens:
        return list(lengths)
    ends = np.minimum(np.cumsum(lengths), max_tokens)
    return [length for length in np.diff(ends, prepend=0).tolist() if length]


class Indices(Protocol):
    """Words as indices: a `Vocabulary`, or the pieces of a transformer's words."""

    def indices(self, words: Iterable[str]) -> list[int]:
        """Give each word's index."""


def encode(
    texts: Iterable[Example] | Iterable[TokenisedText],
    vocabulary: Indices,
    *,
    max_tokens: int | None = None,
    line_breaks: bool = True,
) -> Dataset:
    """Turn texts into indices.

    Args:
        texts: examples, which are tokenised by English rules, or texts tokenised before.
        vocabulary: the known words.
        max_tokens: longer documents are cut there; `Dataset.truncated` counts them, and
            `Dataset.spans_cut` the marked spans that are cut with them. Queries are not.
        line_breaks: HTML line breaks are white space, for examples.

    Returns:
        The data set.

    Example:
        >>> dataset = encode([Example(0, "A good film.", 1)], Vocabulary(["good", "film"]))
        >>> dataset[0].token_ids.tolist(), dataset[0].tokens
        ([3, 1, 2, 3], ['A', 'good', 'film', '.'])
    """
    documents: list[Document] = []
    unfit: list[str] = []
    truncated = spans_cut = 0
    for text in texts:
        if isinstance(text, Example):
            [text] = tokenise([text], line_breaks=line_breaks)
        tokens = [word for sentence in text.sentences for word in sentence]
        lengths = cut([len(sentence) for sentence in text.sentences], max_tokens)
        truncated += sum(lengths) < len(tokens)
        tokens = tokens[: sum(lengths)]
        spans, lost = cut_spans(text.spans, len(tokens))
        spans_cut += lost
        unfit += [f"document {text.id}: {line}" for line in text.unfit]
        document = Document(
            text.id,
            text.label,
            np.array(vocabulary.indices(tokens), dtype=np.int64),
            np.array(lengths, dtype=np.int64),
            tokens,
            text.sentence_texts[: len(lengths)],
            spans=as_pairs(spans) if spans else None,
        )
        if text.query is not None:
            document = replace(
                document,
                query_ids=np.array(vocabulary.indices(text.query), dtype=np.int64),
                query_tokens=text.query,
                answers=np.array(text.answers, dtype=np.int64) if text.answers else None,
            )
        documents.append(document)
    first = unfit[0] if unfit else ""
    return Dataset(
        documents, truncated, spans_cut=spans_cut, spans_unfit=len(unfit), first_unfit=first
    )


def prepare(
    corpus: Corpus,
    config: DataConfig,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> PreparedCorpus:
    """Tokenise a corpus once, collect the vocabulary of train and dev, and encode the splits.

    Texts and their queries share the vocabulary.

    Args:
        corpus: the texts.
        config: vocabulary, length and vector options.
        progress: told after each text how many are tokenised, and of how many.

    Returns:
        The vocabulary, the word vectors where the configuration names a file, and the data sets.

    Raises:
        DataError: the file of word vectors is bad.

    Example:
        >>> prepared = prepare(demo_corpus(), demo_config())  # doctest: +SKIP
    """
    texts: dict[str, list[TokenisedText]] = {}
    done, total = 0, sum(len(getattr(corpus, split)) for split in SPLITS)
    too_long = dict.fromkeys(SPLITS, 0)
    for split in SPLITS:
        found = []
        for tokenised in tokenise(getattr(corpus, split), **config.tokenisation):
            found.append(tokenised)
            done += 1
            if progress is not None:
                progress(done, total)
        texts[split] = found
        if split in config.limited_splits and config.length_limited:
            texts[split] = [t for t in found if config.fits([len(s) for s in t.sentences])]
            too_long[split] = len(found) - len(texts[split])
    vocabulary = Vocabulary.build(
        (
            words
            for split in ("train", "dev")
            for text in texts[split]
            for words in (*text.sentences, text.query or ())
        ),
        min_count=config.min_count,
        lower_case=config.lower_case,
    )
    embeddings, vectors_found = load_vectors(config, vocabulary)
    splits = {
        split: replace(
            encode(texts[split], vocabulary, max_tokens=config.max_tokens), too_long=too_long[split]
        )
        for split in SPLITS
    }
    dropped = count_dropped(corpus.dropped, too_long)
    return PreparedCorpus(
        vocabulary, embeddings, vectors_found, **splits, classes=corpus.classes, dropped=dropped
    )


def load_vectors(config: DataConfig, vocabulary: Vocabulary) -> tuple[Tensor | None, int]:
    """Read the configuration's word vectors, where it names a file; count the words found."""
    if config.vectors is None:
        return None, 0
    return read_vectors(config.vectors, vocabulary, unit=config.unit_vectors, seed=config.seed)


def count_dropped(dropped: Mapping[str, int], too_long: Mapping[str, int]) -> dict[str, int]:
    """Put together why rows were left out."""
    return dict(dropped) | {f"too_long_{split}": n for split, n in too_long.items() if n}


def collate(documents: Sequence[Document]) -> DocumentBatch:
    """Put documents one after another.

    Args:
        documents: the documents, at least one; empty ones are allowed.

    Returns:
        The batch, on the CPU.

    Raises:
        DataError: some of the documents have a query and some have none.
    """
    batch = DocumentBatch(
        ids=torch.tensor([document.id for document in documents]),
        labels=torch.tensor([document.label for document in documents]),
        token_ids=_concatenate([document.token_ids for document in documents]),
        document_lengths=torch.tensor([len(document) for document in documents]),
        sentence_lengths=_concatenate([document.sentence_lengths for document in documents]),
        sentence_counts=torch.tensor([len(document.sentence_lengths) for document in documents]),
    )
    queries = [document.query_ids for document in documents if document.query_ids is not None]
    if not queries:
        return batch
    if len(queries) < len(documents):
        alone = next(document.id for document in documents if document.query_ids is None)
        raise DataError(
            f"document {alone}: given no query, needed one, as others of its batch have"
        )
    batch = batch._replace(
        query_ids=_concatenate(queries), query_lengths=torch.tensor([len(q) for q in queries])
    )
    answers = [document.answers for document in documents]
    if all(own is None for own in answers):
        return batch
    return batch._replace(
        answers=_concatenate([own for own in answers if own is not None]),
        answer_counts=torch.tensor([0 if own is None else len(own) for own in answers]),
    )


def _concatenate(arrays: Sequence[npt.NDArray[np.int64]]) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays))


def batches_in_order(dataset: Dataset, batch_tokens: int) -> Iterator[DocumentBatch]:
    """Cut a data set into batches of at most so many words, in order.

    Args:
        dataset: the documents.
        batch_tokens: words of a batch; a longer document makes a batch of its own.

    Yields:
        The batches.
    """
    part: list[Document] = []
    tokens = 0
    for document in dataset:
        if part and tokens + len(document) > batch_tokens:
            yield collate(part)
            part, tokens = [], 0
        part.append(document)
        tokens += len(document)
    if part:
        yield collate(part)


def shuffled_batches(
    dataset: Dataset,
    batch_size: int,
    batch_tokens: int,
    seed: int,
    *,
    unit: Literal["document", "sentence"] = "document",
) -> list[list[int]]:
    """Draw the training batches of one epoch: documents of similar length together.

    Documents are sorted by length with 10 % noise and cut into batches, whose order is then
    shuffled (Serrano & Smith 2019, code).

    Args:
        dataset: the documents.
        batch_size: documents of a batch, at most.
        batch_tokens: longest length times documents of a batch, at most; a longer document makes a
            batch of its own.
        seed: of the noise and the shuffle.
        unit: what `batch_tokens` measures: the words of the longest `document`, with documents
            sorted by words; or those of the longest `sentence`, with documents sorted by sentences.

    Returns:
        The batches, as indices into the data set; every document is in one.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = dataset.sizes
    noise = 1 + 0.1 * (2 * torch.rand(len(dataset), generator=generator) - 1)  # [B]
    by_sentence = unit == "sentence"
    keys = torch.from_numpy(sizes.sentences if by_sentence else sizes.words)  # [B]
    lengths = (sizes.longest_sentence if by_sentence else sizes.words).tolist()
    batches: list[list[int]] = [[]]
    longest = 0
    for index in torch.argsort(keys * noise, stable=True).tolist():
        batch = batches[-1]
        longest = max(longest, lengths[index])
        if batch and (len(batch) == batch_size or longest * (len(batch) + 1) > batch_tokens):
            batches.append(batch := [])
            longest = lengths[index]
        batch.append(index)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
