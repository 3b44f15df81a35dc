"""Presets of whole corpora as they are distributed, split as published."""

from __future__ import annotations

from pathlib import Path

from fastattnerase.data.cleaning import clean_post, clean_review, clean_text
from fastattnerase.data.config import DataConfig
from fastattnerase.data.files import find_file
from fastattnerase.data.published.record import DataPreset, Draw
from fastattnerase.data.readers.newsgroups_folder import SPORTS


def _imdb(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "imdb" / "aclImdb"),
        reader="imdb_folder",
        split_column="split",
        classes=("negative", "positive"),
        fractions=(1.0, 0.0, 0.0),
    )


def _ag_news(root: Path) -> DataConfig:
    return DataConfig(
        train=str(find_file(root / "ag_news" / "train.csv")),
        test=str(find_file(root / "ag_news" / "test.csv")),
        reader="ag_news",
        classes=("World", "Business"),
        fractions=(1.0, 0.0, 0.0),
    )


def _newsgroups(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "20news"),
        reader="newsgroups_sports",
        classes=SPORTS,
        fractions=(1.0, 0.0, 0.0),
    )


PRESETS: dict[str, DataPreset] = {
    "imdb_official": DataPreset(
        "IMDB, both halves",
        _imdb,
        clean_review,
        10,
        6,
        400,
        "published seeds on reviews in the order of their numbers, not that of Keras's file, which "
        "is no longer passed on: other rows are drawn",
        draws=(Draw(1378, 0.2),),
        test_draw=Draw(1378, 0.2, "test"),
    ),
    "ag_news_official": DataPreset(
        "AG News, both files",
        _ag_news,
        clean_text,
        5,
        None,
        None,
        "World against Business",
        draws=(Draw(16377, 0.15),),
    ),
    "20news_official": DataPreset(
        "20News sports, both halves",
        _newsgroups,
        clean_post,
        2,
        6,
        500,
        "both halves by date together, in scikit-learn's order, split anew",
        draws=(Draw(13478, 0.2, "test", True), Draw(13478, 0.2, "dev", True)),
    ),
}
