"""The IMDB reviews of Diao et al. 2014 (JMARS): `data.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.files import stream_json
from fastattnerase.data.readers.registry import register_reader, require_columns


@register_reader("jmars")
def read_jmars(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the reviews: `text` is a review's body, `label` its rating, None where it has none.

    The other keys of the file (`title`, `movie`, `user`, ...) are columns too.

    Args:
        path: `data.json`, one array of objects or one object a line; plain or `.xz`, `.gz`, `.zst`.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: not such JSON, a review without a wanted key, a byte that is not UTF-8.

    Source: Diao et al., KDD 2014.
    """
    names = {"text": "review", "label": "rating"}
    for number, review in enumerate(stream_json(path), start=1):
        keys = [names.get(column, column) for column in columns]
        require_columns(Path(f"{path}, review {number}"), keys, list(review))
        yield {column: review[key] for column, key in zip(columns, keys, strict=True)}
