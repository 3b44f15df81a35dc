"""Texts as indices, ready for a model, and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import Corpus, Example
from fastattnerase.data.tokens import TokenisedText, tokenise
from fastattnerase.data.vectors import read_vectors
from fastattnerase.data.vocabulary import Vocabulary


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
    """

    id: int
    label: int
    token_ids: npt.NDArray[np.int64]
    sentence_lengths: npt.NDArray[np.int64]
    tokens: list[str]
    sentences: list[str]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class Dataset(Sequence[Document]):
    """Documents, in the order of the examples.

    Attributes:
        documents: the documents.
        truncated: how many were cut at `max_tokens`.
    """

    documents: list[Document]
    truncated: int = 0

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Document | Dataset:
        """Give one document, or a data set of some (`truncated` stays that of the whole)."""
        if isinstance(index, slice):
            return Dataset(self.documents[index], self.truncated)
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
    """

    ids: Tensor
    labels: Tensor
    token_ids: Tensor
    document_lengths: Tensor
    sentence_lengths: Tensor
    sentence_counts: Tensor

    def to(self, device: torch.device | str) -> DocumentBatch:
        """Give the batch on a device."""
        return DocumentBatch(*(tensor.to(device) for tensor in self))


class PreparedCorpus(NamedTuple):
    """A corpus as data sets.

    Attributes:
        vocabulary: the words of train and dev.
        embeddings: `[V, E]`, float32, the words' pre-trained vectors, or None.
        vectors_found: how many known words have a pre-trained vector.
        train: the training documents.
        dev: the development documents.
        test: the test documents.
    """

    vocabulary: Vocabulary
    embeddings: Tensor | None
    vectors_found: int
    train: Dataset
    dev: Dataset
    test: Dataset


def encode(
    texts: Iterable[Example] | Iterable[TokenisedText],
    vocabulary: Vocabulary,
    *,
    max_tokens: int | None = None,
    line_breaks: bool = True,
) -> Dataset:
    """Turn texts into indices.

    Args:
        texts: examples, which are tokenised, or texts tokenised before.
        vocabulary: the known words.
        max_tokens: longer documents are cut there; `Dataset.truncated` counts them.
        line_breaks: HTML line breaks are white space, for examples.

    Returns:
        The data set.

    Example:
        >>> dataset = encode([Example(0, "A good film.", 1)], Vocabulary(["good", "film"]))
        >>> dataset[0].token_ids.tolist(), dataset[0].tokens
        ([3, 1, 2, 3], ['A', 'good', 'film', '.'])
    """
    documents: list[Document] = []
    truncated = 0
    for text in texts:
        if isinstance(text, Example):
            [text] = tokenise([text], line_breaks=line_breaks)
        tokens = [word for sentence in text.sentences for word in sentence]
        lengths = [len(sentence) for sentence in text.sentences]
        if max_tokens is not None and len(tokens) > max_tokens:
            truncated += 1
            ends = np.minimum(np.cumsum(lengths), max_tokens)
            lengths = [n for n in np.diff(ends, prepend=0).tolist() if n]
            tokens = tokens[:max_tokens]
        documents.append(
            Document(
                text.id,
                text.label,
                np.array(vocabulary.indices(tokens), dtype=np.int64),
                np.array(lengths, dtype=np.int64),
                tokens,
                text.sentence_texts[: len(lengths)],
            )
        )
    return Dataset(documents, truncated)


def prepare(corpus: Corpus, config: DataConfig) -> PreparedCorpus:
    """Tokenise a corpus once, collect the vocabulary of train and dev, and encode the splits.

    Args:
        corpus: the texts.
        config: vocabulary, length and vector options.

    Returns:
        The vocabulary, the word vectors where the configuration names a file, and the data sets.

    Raises:
        DataError: the file of word vectors is bad.

    Example:
        >>> prepared = prepare(demo_corpus(), demo_config())  # doctest: +SKIP
    """
    texts = {
        split: list(tokenise(getattr(corpus, split), line_breaks=config.line_breaks))
        for split in ("train", "dev", "test")
    }
    vocabulary = Vocabulary.build(
        (words for split in ("train", "dev") for text in texts[split] for words in text.sentences),
        min_count=config.min_count,
        lower_case=config.lower_case,
    )
    embeddings, found = None, 0
    if config.vectors is not None:
        embeddings, found = read_vectors(
            config.vectors, vocabulary, unit=config.unit_vectors, seed=config.seed
        )
    splits = {
        split: encode(texts[split], vocabulary, max_tokens=config.max_tokens) for split in texts
    }
    return PreparedCorpus(vocabulary, embeddings, found, **splits)


def collate(documents: Sequence[Document]) -> DocumentBatch:
    """Put documents one after another.

    Args:
        documents: the documents, at least one; empty ones are allowed.

    Returns:
        The batch, on the CPU.
    """
    return DocumentBatch(
        ids=torch.tensor([document.id for document in documents]),
        labels=torch.tensor([document.label for document in documents]),
        token_ids=_concatenate([document.token_ids for document in documents]),
        document_lengths=torch.tensor([len(document) for document in documents]),
        sentence_lengths=_concatenate([document.sentence_lengths for document in documents]),
        sentence_counts=torch.tensor([len(document.sentence_lengths) for document in documents]),
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
    dataset: Dataset, batch_size: int, batch_tokens: int, seed: int
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

    Returns:
        The batches, as indices into the data set; every document is in one.
    """
    generator = torch.Generator().manual_seed(seed)
    noise = 1 + 0.1 * (2 * torch.rand(len(dataset), generator=generator) - 1)  # [B]
    lengths = torch.tensor([len(document) for document in dataset])  # [B]
    batches: list[list[int]] = [[]]
    longest = 0
    for index in torch.argsort(lengths * noise, stable=True).tolist():
        batch = batches[-1]
        longest = max(longest, len(dataset[index]))
        if batch and (len(batch) == batch_size or longest * (len(batch) + 1) > batch_tokens):
            batches.append(batch := [])
            longest = len(dataset[index])
        batch.append(index)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
