"""Data are called after their file, or its folder where the file is called after a split."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastattnerase.data.naming import data_name, is_split, split_name


@pytest.mark.parametrize(
    ("path", "of_data", "of_file"),
    [
        ("reviews.csv", "reviews", "reviews"),
        ("corpora/reviews.csv.gz", "reviews", "reviews"),
        ("psytar/train.tsv", "psytar", "psytar/train"),
        ("psytar/Test.TSV", "psytar", "psytar/Test"),
        ("/home/me/imdb/validation.jsonl", "imdb", "imdb/validation"),
        ("imdb/train-00000-of-00002.parquet", "imdb", "imdb/train-00000-of-00002"),
        ("imdb/data/train.csv", "imdb", "imdb/train"),  # data is no name
        ("psytar/train_ade.tsv", "train_ade", "train_ade"),
        ("psytar/trains.tsv", "trains", "trains"),
        ("train.csv", "train", "train"),  # nothing else is known
        ("/train.csv", "train", "train"),
        ("data/.hidden", ".hidden", ".hidden"),
    ],
)
def test_names(path: str, of_data: str, of_file: str) -> None:
    assert data_name(Path(path)) == of_data
    assert split_name(Path(path)) == of_file


@pytest.mark.parametrize(
    "name", ["train", "training", "dev", "devel", "val", "valid", "validation", "test", "TEST_2"]
)
def test_names_of_splits(name: str) -> None:
    assert is_split(Path(f"{name}.csv"))
