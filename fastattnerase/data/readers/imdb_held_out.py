"""IMDB reviews in two files of which one is a part of the other: that part is the test split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.readers.delimited import read_csv
from fastattnerase.data.readers.registry import register_reader, require_columns

_COLUMNS = ("text", "label", "split")
_KEY = 200  # letters and digits by which a review is found again
_OTHER = re.compile(r"[^a-z0-9]+")


@register_reader("imdb_held_out")
def read_imdb_held_out(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the reviews of `imdb_train25k.csv`, those of `movie_review_5k.csv` as the test split.

    Texts are the same where their first 200 letters and digits are, in lower case. Columns: `text`,
    `label` (0 negative, 1 positive) and `split`, train or test.

    Args:
        path: the folder of both files (`.xz`).
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a missing file or column.

    Source: Maas et al., ACL 2011.
    """
    require_columns(path, columns, _COLUMNS)
    held_out = set()
    for row in read_csv(path / "movie_review_5k.csv.xz", ("text", "label")):
        held_out.add(_key(str(row["text"])))
        whole = {**row, "split": "test"}
        yield {column: whole[column] for column in columns}
    for row in read_csv(path / "imdb_train25k.csv.xz", ("text", "label")):
        if _key(str(row["text"])) not in held_out:
            whole = {**row, "split": "train"}
            yield {column: whole[column] for column in columns}


def _key(text: str) -> str:
    return _OTHER.sub("", text.lower())[:_KEY]
