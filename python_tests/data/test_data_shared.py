"""The readers on real files; skipped where the repository's `shared` folder is absent."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from fastattnerase.data import DataConfig, Vocabulary, load_corpus, read_vectors

SHARED = Path(os.environ.get("FASTATTNERASE_SHARED", Path(__file__).parents[3] / "shared"))
DATA = SHARED / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no folder {DATA}")


def test_imdb_reviews() -> None:
    corpus = load_corpus(DataConfig(path=str(DATA / "imdb" / "movie_review_5k.csv.xz")))
    assert [len(s) for s in (corpus.train, corpus.dev, corpus.test)] == [4000, 500, 500]
    labels = Counter(e.label for s in (corpus.train, corpus.dev, corpus.test) for e in s)
    assert labels == {0: 2483, 1: 2517}
    assert corpus.dropped == {}


def test_hotel_reviews() -> None:
    path = DATA / "reviews_5class" / "hotel_reviews.csv.xz"
    corpus = load_corpus(DataConfig(path=str(path), label_column="stars"))
    assert corpus.classes == ["1", "2", "3", "4", "5"]
    labels = Counter(e.label for s in (corpus.train, corpus.dev, corpus.test) for e in s)
    assert [labels[c] for c in range(5)] == [335, 351, 649, 1541, 2112]


def test_newsgroups_with_empty_texts_and_a_split_column() -> None:
    path = DATA / "20news" / "sports.jsonl.xz"
    corpus = load_corpus(DataConfig(path=str(path), split_column="split"))
    assert corpus.dropped == {"empty_text": 4}
    assert len(corpus.train) + len(corpus.dev) + len(corpus.test) == 1989
    assert corpus.classes == ["rec.sport.baseball", "rec.sport.hockey"]


def test_drug_reviews_in_three_files() -> None:
    files = {split: str(DATA / "psytar" / f"{split}.tsv") for split in ("train", "dev", "test")}
    config = DataConfig(**files, text_column="sentences", label_column="ADR")
    corpus = load_corpus(config)
    sizes = [len(s) for s in (corpus.train, corpus.dev, corpus.test)]
    assert sum(sizes) + corpus.dropped.get("empty_text", 0) == 4201 + 612 + 1189
    assert sum(e.label for e in corpus.test) == 418


def test_glove() -> None:
    vocabulary = Vocabulary(["the", "pad", "zzzzqqq"])
    table, found = read_vectors(DATA / "glove" / "glove.6B.50d.top20k.txt.xz", vocabulary)
    assert found == 2
    assert table.shape == (5, 50)
    assert table[1, 0].item() == pytest.approx(0.418)
