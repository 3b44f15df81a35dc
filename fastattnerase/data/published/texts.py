"""Presets of single texts, on the files that are at hand without an agreement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fastattnerase.data.cleaning import (
    clean_post,
    clean_review,
    clean_sentiment,
    clean_text,
    clean_words,
)
from fastattnerase.data.config import DataConfig
from fastattnerase.data.files import find_file
from fastattnerase.data.published.record import NO_LIMIT, DataPreset, Draw


def _sst(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "sst"),
        reader="sst_trees",
        label_column="binary",
        split_column="split",
        classes=("negative", "positive"),
    )


def _imdb(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "imdb"),
        reader="imdb_held_out",
        split_column="split",
        fractions=(0.8, 0.2, 0.0),
        seed=1378,
    )


def _imdb_5k(root: Path) -> DataConfig:
    path = root / "imdb" / "movie_review_5k.csv.xz"
    return DataConfig(path=str(path), fractions=(0.64, 0.16, 0.2), seed=1378)


def _ag_news(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "ag_news" / "test.csv.xz"),
        reader="ag_news",
        classes=("World", "Business"),
        fractions=(0.6, 0.1, 0.3),
        seed=16377,
    )


def _newsgroups(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "20news" / "sports.jsonl.xz"),
        split_column="split",
        classes=("rec.sport.baseball", "rec.sport.hockey"),
        fractions=(0.8, 0.2, 0.0),
        seed=13478,
    )


def _psytar(root: Path) -> DataConfig:
    folder = root / "psytar"
    return DataConfig(
        train=str(folder / "train.tsv"),
        dev=str(folder / "dev.tsv"),
        test=str(folder / "test.tsv"),
        text_column="sentences",
        label_column="ADR",
    )


def _adr(root: Path) -> DataConfig:
    return DataConfig(
        train=str(find_file(root / "adr" / "train.csv")),
        test=str(find_file(root / "adr" / "test.csv")),
        classes=("0", "1"),
        fractions=(1.0, 0.0, 0.0),
    )


def _movies(root: Path) -> DataConfig:
    config = DataConfig(
        split_column="split", spans_column="spans", classes=("NEG", "POS"), sentences="spaces"
    )
    if (root / "movies" / "docs").is_dir():
        return replace(config, path=str(root / "movies"), reader="eraser")
    path = find_file(root / "movie_rationales" / "movies.jsonl")
    return replace(config, path=str(path), spans_column="rationales")


PRESETS: dict[str, DataPreset] = {
    "sst": DataPreset("SST", _sst, clean_sentiment, 1, 5, None, words_of_all=False),
    "imdb": DataPreset(
        "IMDB",
        _imdb,
        clean_review,
        10,
        6,
        400,
        "trained on the official training half but 5,000 reviews, which are the test split",
        words_of_all=False,
    ),
    "imdb_5k": DataPreset(
        "IMDB 5k",
        _imdb_5k,
        clean_review,
        10,
        6,
        400,
        "5,000 reviews of the official training half, split 64/16/20",
        words_of_all=False,
    ),
    "ag_news": DataPreset(
        "AG News",
        _ag_news,
        clean_text,
        5,
        None,
        None,
        "World against Business of the 7,600-row test file, split 60/10/30",
        words_of_all=False,
    ),
    "20news_sports": DataPreset(
        "20News sports",
        _newsgroups,
        clean_post,
        2,
        6,
        500,
        "official by-date split; a fifth of train is dev",
        words_of_all=False,
    ),
    "psytar": DataPreset(
        "PsyTAR",
        _psytar,
        clean_text,
        2,
        5,
        100,
        "patients' posts in place of the ADR tweets, which may not be passed on",
        words_of_all=False,
    ),
    "adr": DataPreset(
        "ADR",
        _adr,
        clean_words,
        2,
        5,
        100,
        "the user's own tweets, train.csv and test.csv: columns text and label (1: a reaction)",
        draws=(Draw(16377, 0.15),),
        lower_case=False,
    ),
    "movies": DataPreset(
        "Movie reviews",
        _movies,
        clean_words,
        2,
        0,
        NO_LIMIT,
        "ERASER's split; spans are the words by which people explained their label",
        words_of_all=False,
    ),
}
