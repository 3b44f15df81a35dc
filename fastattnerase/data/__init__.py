"""Labelled text: readers, splits, words, vocabulary, word vectors and data sets."""

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import (
    Corpus,
    Example,
    demo_config,
    demo_corpus,
    load_corpus,
    load_examples,
)
from fastattnerase.data.dataset import (
    Dataset,
    Document,
    DocumentBatch,
    PreparedCorpus,
    batches_in_order,
    collate,
    encode,
    prepare,
    shuffled_batches,
)
from fastattnerase.data.errors import DataError
from fastattnerase.data.readers import READERS, register_reader
from fastattnerase.data.tokens import TokenisedText, tokenise
from fastattnerase.data.vectors import WordVectors, read_vectors
from fastattnerase.data.vocabulary import Vocabulary

__all__ = [
    "READERS",
    "Corpus",
    "DataConfig",
    "DataError",
    "Dataset",
    "Document",
    "DocumentBatch",
    "Example",
    "PreparedCorpus",
    "TokenisedText",
    "Vocabulary",
    "WordVectors",
    "batches_in_order",
    "collate",
    "demo_config",
    "demo_corpus",
    "encode",
    "load_corpus",
    "load_examples",
    "prepare",
    "read_vectors",
    "register_reader",
    "shuffled_batches",
    "tokenise",
]
