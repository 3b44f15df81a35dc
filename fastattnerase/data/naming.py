"""What data are called, after the file that holds them."""

from __future__ import annotations

import re
from pathlib import Path

# Names of splits, with the numbers of a file of several: `train-00000-of-00002`.
_SPLIT = re.compile(
    r"(train|training|dev|devel|development|val|valid|validation|test|testing)([-_]\d+(-of-\d+)?)?",
    re.IGNORECASE,
)
_NO_NAMES = ("", "data")  # of folders


def stem(path: Path) -> str:
    """Give a file's name without its extensions.

    Example:
        >>> stem(Path("reviews.csv.gz"))
        'reviews'
    """
    return path.name.partition(".")[0] or path.name


def is_split(path: Path) -> bool:
    """Say whether a file is called after a split of data, as `train.csv` is.

    Example:
        >>> is_split(Path("dev.tsv")), is_split(Path("train-00000-of-00002.parquet"))
        (True, True)
        >>> is_split(Path("trains.csv"))
        False
    """
    return _SPLIT.fullmatch(stem(path)) is not None


def data_name(path: Path) -> str:
    """Name data after their file, or its folder where the file is called after a split.

    Args:
        path: of the file; folders are those that it names.

    Returns:
        The name; that of the split where no folder has one.

    Example:
        >>> data_name(Path("corpora/reviews.csv")), data_name(Path("corpora/psytar/train.tsv"))
        ('reviews', 'psytar')
    """
    if not is_split(path):
        return stem(path)
    folders = (folder.name for folder in path.parents)
    return next((name for name in folders if name.lower() not in _NO_NAMES), stem(path))


def split_name(path: Path) -> str:
    """Name one file of data: with its folder where it is called after a split.

    Example:
        >>> split_name(Path("corpora/reviews.csv")), split_name(Path("corpora/psytar/test.tsv"))
        ('reviews', 'psytar/test')
    """
    of_data, own = data_name(path), stem(path)
    return own if own == of_data else f"{of_data}/{own}"
