"""Apache Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import split_suffix
from fastattnerase.data.readers.registry import register_reader, require_columns
from fastattnerase.extras import needs

if TYPE_CHECKING:
    from pyarrow import RecordBatch
else:  # imported where they are used; hints that are read at run time say Any
    RecordBatch = Any


@register_reader("parquet", (".parquet",))
def read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the rows of a Parquet file.

    Args:
        path: the file; Parquet compresses inside, so no `.xz` around it.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: no such file, not Parquet, a missing column, a value that has no form in Python
            (such as text that is not UTF-8).
    """
    with needs("text"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if split_suffix(path)[1]:
        raise DataError(f"{path}: Parquet compresses inside the file; give the .parquet itself")
    try:
        with pq.ParquetFile(path) as file:
            require_columns(path, columns, file.schema_arrow.names)
            start = 1
            for batch in file.iter_batches(columns=list(columns)):
                try:
                    rows = batch.to_pylist()
                except (ValueError, OverflowError) as error:
                    raise DataError(
                        f"{path}, {_place_of_bad_value(batch, start)}, cannot be read: {error}"
                    ) from error
                yield from rows
                start += len(rows)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error


def _place_of_bad_value(batch: RecordBatch, start: int) -> str:
    """Find the first value that Python cannot hold: only ever called once a batch has failed."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for number, value in enumerate(column, start=start):
            try:
                value.as_py()
            except (ValueError, OverflowError):
                return f"row {number}, column {name!r}"
    return f"rows from {start} on"
