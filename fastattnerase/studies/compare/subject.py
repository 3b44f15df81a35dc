"""What is compared: documents of a model, kept with the run so that every step finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.data.dataset import Dataset
from fastattnerase.data.documents import Document
from fastattnerase.extras import needs
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.runs.rundir import read_table

if TYPE_CHECKING:
    from fastattnerase.huggingface import TransformerClassifier
else:  # imported where they are used; hints that are read at run time say Any
    TransformerClassifier = Any

with needs("report"):
    import pandas as pd

TABLE = "documents.parquet"
_PART_WORDS, _PART_DOCUMENTS = 10_000, 100


@dataclass(frozen=True)
class Subject:
    """A model and its documents, as the record of a run has them.

    Attributes:
        model: folder of the model.
        classes: names of its classes.
        items: what its last attention layer averages: `words` or `sentences`.
        documents: how many are compared.
        words: of all of them.
        marked: of how many documents people marked words.
        share: mean share of marked words in the training texts that have some; None where unknown.
        spans_cut: marked spans that lost words where documents were cut.
        spans_unfit: marked spans that do not fit the words.
        digest: of the model's weights, of the documents and of their marked words.
        transformer: what an item of a transformer is; None of other models.
    """

    model: str
    classes: tuple[str, ...]
    items: str
    documents: int
    words: int
    marked: int
    share: float | None
    spans_cut: int
    spans_unfit: int
    digest: str
    transformer: TransformerConfig | None = None

    @property
    def choices(self) -> dict[str, Any]:
        """What an item of a transformer is, and how words of the input are erased."""
        of = self.transformer
        return {} if of is None else {one.name: getattr(of, one.name) for one in fields(of)}


def describe(
    folder: Path,
    model: AttentionClassifier | TransformerClassifier,
    classes: Sequence[str],
    dataset: Dataset,
    share: float | None,
) -> Subject:
    """Say what a model and documents are.

    Args:
        folder: of the model.
        model: the model.
        classes: names of its classes.
        dataset: the documents that are compared, with the marked words.
        share: of marked words in the training texts.
    """
    digest = blake2b(digest_size=16)
    for tensor in model.state_dict().values():
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    digest.update(dataset.digest().encode())
    for document in dataset:
        spans = [] if document.spans is None else document.spans.tolist()
        digest.update(f"|{document.id}|{spans}".encode())
    return Subject(
        str(folder),
        tuple(classes),
        "sentences" if model.config.kind == "han" else "words",
        len(dataset),
        sum(map(len, dataset)),
        sum(document.spans is not None for document in dataset),
        share,
        dataset.spans_cut,
        dataset.spans_unfit,
        digest.hexdigest(),
        config if isinstance(config := model.config, TransformerConfig) else None,
    )


def write_documents(dataset: Dataset, folder: Path) -> None:
    """Write documents into a folder, as a whole or not at all."""
    table = pd.DataFrame(
        {
            "id": document.id,
            "label": document.label,
            "token_ids": document.token_ids,
            "sentence_lengths": document.sentence_lengths,
            "tokens": document.tokens,
            "sentences": document.sentences,
            "query_ids": document.query_ids,
            "query_tokens": document.query_tokens,
            "answers": document.answers,
            "spans": None if document.spans is None else document.spans.ravel(),
        }
        for document in dataset
    )
    partial = folder / f"{TABLE}.partial"
    table.to_parquet(partial, index=False, compression="zstd")
    partial.replace(folder / TABLE)


def read_documents(folder: Path) -> Dataset:
    """Read the documents that `write_documents` wrote."""
    table = read_table(folder / TABLE)
    rows: Any = table.to_dict("records")
    return Dataset([_document(row) for row in rows])


def _document(row: Mapping[str, Any]) -> Document:
    def ints(name: str) -> NDArray[np.int64] | None:
        value = row[name]
        return None if value is None else np.asarray(value, dtype=np.int64)

    token_ids, lengths, spans = ints("token_ids"), ints("sentence_lengths"), ints("spans")
    assert token_ids is not None
    assert lengths is not None
    return Document(
        int(row["id"]),
        int(row["label"]),
        token_ids,
        lengths,
        list(row["tokens"]),
        list(row["sentences"]),
        ints("query_ids"),
        None if row["query_tokens"] is None else list(row["query_tokens"]),
        ints("answers"),
        None if spans is None else spans.reshape(-1, 2),
    )


def parts_of(lengths: Sequence[int]) -> list[range]:
    """Cut documents into parts, which a step does one after another and never again.

    Example:
        >>> parts_of([9_000, 2_000, 5])
        [range(0, 1), range(1, 3)]
    """
    parts: list[range] = []
    begin, words = 0, 0
    for number, length in enumerate(lengths):
        full = words + length > _PART_WORDS or number - begin == _PART_DOCUMENTS
        if number > begin and full:
            parts.append(range(begin, number))
            begin, words = number, 0
        words += length
    return [*parts, range(begin, len(lengths))] if len(lengths) else []


def sentence_sums(document: Document, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add the scores `[n]` of a document's words up by sentence, `[M]`."""
    if not len(document.sentence_lengths):
        return np.zeros(0)
    starts = np.cumsum(document.sentence_lengths) - document.sentence_lengths
    return np.asarray(np.add.reduceat(scores, starts), dtype=np.float64)
