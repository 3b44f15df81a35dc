"""Data sets of the Hugging Face hub, by name, for users who have network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastattnerase.data.errors import DataError
from fastattnerase.data.readers.registry import register_reader, require_columns
from fastattnerase.extras import needs

_SPLITS = {"train": "train", "validation": "dev", "dev": "dev", "test": "test"}


@register_reader("hub")
def read_hub(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream a data set of the Hugging Face hub, split by split.

    Besides its own columns there is `split` (`train`, `dev` or `test`), so that
    `DataConfig(path="fancyzhx/ag_news", reader="hub", split_column="split")` keeps its splits;
    splits of other names are skipped. Numbers of named classes become their names.

    Args:
        path: `owner/name`, or `owner/name:configuration`; a folder that the library can load.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: no such data set; a missing column.
        MissingPackageError: the package `datasets` is not installed.
    """
    with needs("hub"):
        import datasets
    name, _, configuration = path.as_posix().partition(":")
    try:
        splits: Mapping[str, Any] = datasets.load_dataset(
            name, configuration or None, streaming=True
        )
    except (ValueError, OSError) as error:  # the library's own errors are among these
        reason = " ".join(str(error).split())
        raise DataError(f"the data set {name!r} cannot be loaded: {reason}") from error
    for split, rows in splits.items():
        if split not in _SPLITS:
            continue
        features = rows.features or {}
        for row in rows:
            row = {"split": _SPLITS[split], **row}
            require_columns(path, columns, list(row))
            yield {column: _named(row[column], features.get(column)) for column in columns}


def _named(value: object, feature: Any) -> object:
    names = getattr(feature, "names", None)
    if names is None or not isinstance(value, int) or value < 0:
        return value
    return names[value]
