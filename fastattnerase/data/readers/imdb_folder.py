"""IMDB reviews as distributed: a folder for each split and class, a file a review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns

_COLUMNS = ("text", "label", "rating", "split")
_CLASSES = {"neg": "negative", "pos": "positive"}


@register_reader("imdb_folder")
def read_imdb_folder(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the reviews of `train/neg`, `train/pos`, `test/neg` and `test/pos`, by their numbers.

    Columns: `text`; `label`, `negative` or `positive`; `rating`, the stars in a file's name
    (`7_10.txt`: review 7, 10 stars); `split`, train or test. `train/unsup` is not read.

    Args:
        path: the folder `aclImdb`.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a missing folder, an empty one, a file of another name, a missing column.

    Source: Maas et al., ACL 2011.
    """
    require_columns(path, columns, _COLUMNS)
    for split in ("train", "test"):
        for name, label in _CLASSES.items():
            folder = path / split / name
            files = sorted((_number(file), file) for file in folder.glob("*.txt"))
            if not files:
                raise DataError(
                    f"{folder}: given no folder with files NUMBER_STARS.txt, needed one, as "
                    "aclImdb has it"
                )
            for (_, rating), file in files:
                with open_text(file) as opened:
                    text = opened.read()
                row = {"text": text, "label": label, "rating": str(rating), "split": split}
                yield {column: row[column] for column in columns}


def _number(file: Path) -> tuple[int, int]:
    """Read the review's number and its stars from a file's name."""
    number, _, rating = file.stem.partition("_")
    if not (number.isascii() and number.isdigit() and rating.isascii() and rating.isdigit()):
        raise DataError(f"{file}: given this name, needed NUMBER_STARS.txt, such as 7_10.txt")
    return int(number), int(rating)
