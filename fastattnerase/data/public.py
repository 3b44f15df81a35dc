"""The public names of `fastattnerase.data`, which that package imports when one is used."""

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import (
    Corpus,
    demo_config,
    demo_corpus,
    load_corpus,
    load_examples,
)
from fastattnerase.data.dataset import (
    Dataset,
    DocumentBatch,
    PreparedCorpus,
    batches_in_order,
    collate,
    encode,
    prepare,
    shuffled_batches,
)
from fastattnerase.data.documents import Document, Sizes, StoredDocuments
from fastattnerase.data.errors import DataError
from fastattnerase.data.examples import Example
from fastattnerase.data.labels import odd_labels
from fastattnerase.data.readers import READERS, register_reader
from fastattnerase.data.statistics import CorpusStatistics, corpus_statistics
from fastattnerase.data.stored import prepare_stored
from fastattnerase.data.tokens import TokenisedText, tokenise
from fastattnerase.data.vectors import WordVectors, read_vectors
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.data.word2vec import Word2VecConfig, train_word2vec

__all__ = [
    "READERS",
    "Corpus",
    "CorpusStatistics",
    "DataConfig",
    "DataError",
    "Dataset",
    "Document",
    "DocumentBatch",
    "Example",
    "PreparedCorpus",
    "Sizes",
    "StoredDocuments",
    "TokenisedText",
    "Vocabulary",
    "Word2VecConfig",
    "WordVectors",
    "batches_in_order",
    "collate",
    "corpus_statistics",
    "demo_config",
    "demo_corpus",
    "encode",
    "load_corpus",
    "load_examples",
    "odd_labels",
    "prepare",
    "prepare_stored",
    "read_vectors",
    "register_reader",
    "shuffled_batches",
    "tokenise",
    "train_word2vec",
]
