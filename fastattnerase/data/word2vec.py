"""Word vectors trained on the corpus itself, by word2vec."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fastattnerase.data.dataset import Dataset, PreparedCorpus
from fastattnerase.data.errors import DataError
from fastattnerase.extras import needs


@dataclass(frozen=True)
class Word2VecConfig:
    """How word vectors are trained; JSON-able.

    Defaults are the settings of Serrano & Smith 2019 (code), but one worker, so that the same seed
    gives the same vectors.

    Attributes:
        size: Width of the vectors.
        window: Largest number of words to either side.
        negative: Noise words of each step.
        iterations: Passes over the documents.
        cbow: Whether a word is predicted from its neighbours (continuous bag of words); else its
            neighbours are from the word (skip-gram).
        unit: Whether each vector is scaled to length 1.
        workers: Threads; with several, the same seed gives other vectors each time.
        seed: Seed of all random choices.
    """

    size: int = 200
    window: int = 5
    negative: int = 5
    iterations: int = 30
    cbow: bool = True
    unit: bool = True
    workers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "window", "negative", "iterations", "workers"):
            if getattr(self, name) < 1:
                raise DataError(f"{name}: given {getattr(self, name)}, needed at least 1")

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Word2VecConfig:
        """Make a configuration from `to_dict`'s result; unknown names are refused."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise DataError(f"word2vec configuration: unknown {', '.join(map(repr, unknown))}")
        return cls(**values)


def train_word2vec(
    prepared: PreparedCorpus, config: Word2VecConfig, cache: str | Path | None = None
) -> Tensor:
    """Train word vectors on the sentences of train and dev.

    Words outside the vocabulary are all the unknown word, which so gets a vector of its own; where
    it never occurs, that is a random one. Padding's vector is zero. Sentences are read from the
    data sets as they are trained on, pass by pass.

    Args:
        prepared: the corpus, in memory or on disk.
        config: how to train.
        cache: a folder for results; the same documents, words and configuration are then trained
            on once only. Default: none.

    Returns:
        `[V, E]`, float32, a row an index of the vocabulary: `build_model`'s `embeddings`.

    Raises:
        DataError: no words to train on; a damaged file in the cache.
        MissingPackageError: the package gensim is not installed.

    Source: Mikolov et al. 2013; Yang et al. 2016, section 2.2; Serrano & Smith 2019, code.

    Example:
        >>> vectors = train_word2vec(prepared, Word2VecConfig(), "runs/cache")  # doctest: +SKIP
        >>> vectors.shape  # doctest: +SKIP
        torch.Size([8123, 200])
    """
    with needs("text"):
        from safetensors import SafetensorError
        from safetensors.torch import load_file, save
    path = None if cache is None else Path(cache) / f"word2vec-{_key(prepared, config)}.safetensors"
    if path is not None and path.exists():
        try:
            return load_file(path)["vectors"]
        except (SafetensorError, KeyError) as error:
            raise DataError(f"{path} is damaged ({error}); delete it to train anew") from error
    vectors = _train(prepared, config)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        with open(partial, "wb") as file:
            file.write(save({"vectors": vectors}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    return vectors


def _key(prepared: PreparedCorpus, config: Word2VecConfig) -> str:
    digest = blake2b(digest_size=16)
    digest.update(json.dumps(config.to_dict(), sort_keys=True).encode())
    digest.update(f"|{len(prepared.vocabulary)}|".encode())
    for dataset in (prepared.train, prepared.dev):
        digest.update(dataset.digest().encode())
    return digest.hexdigest()


class _Sentences:
    """The sentences of data sets, again and again; words are their indices, written out."""

    def __init__(self, datasets: tuple[Dataset, ...]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[list[str]]:
        for dataset in self.datasets:
            for document in dataset:
                # Indices instead of words: no text can be mistaken for the unknown word.
                words = [str(index) for index in document.token_ids.tolist()]
                begin = 0
                for length in document.sentence_lengths.tolist():
                    yield words[begin : begin + length]
                    begin += length


def _train(prepared: PreparedCorpus, config: Word2VecConfig) -> Tensor:
    with needs("word2vec"):
        from gensim.models import Word2Vec
    if not len(prepared.train.sizes.words) or not prepared.train.sizes.words.sum():
        raise DataError("prepared: given no words, needed some to train vectors on")
    model = Word2Vec(
        sentences=_Sentences((prepared.train, prepared.dev)),
        vector_size=config.size,
        window=config.window,
        negative=config.negative,
        sg=0 if config.cbow else 1,
        min_count=0,
        epochs=config.iterations,
        workers=config.workers,
        seed=config.seed,
        hashfxn=_hash,
    )
    vocabulary = prepared.vocabulary
    generator = torch.Generator().manual_seed(config.seed)
    table = torch.zeros(len(vocabulary), config.size)  # [V, E]
    table[vocabulary.unknown] = torch.randn(config.size, generator=generator) * config.size**-0.5
    known = torch.tensor([int(word) for word in model.wv.index_to_key])
    table[known] = torch.from_numpy(model.wv.vectors.copy())
    return F.normalize(table, dim=1) if config.unit else table


def _hash(text: str) -> int:
    # Python's own differs from process to process.
    return zlib.crc32(text.encode())
