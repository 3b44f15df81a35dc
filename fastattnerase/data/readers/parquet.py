"""Apache Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import split_suffix
from fastattnerase.data.readers.registry import register_reader, require_columns


@register_reader("parquet", (".parquet",))
def read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the rows of a Parquet file.

    Args:
        path: the file; Parquet compresses inside, so no `.xz` around it.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: no such file, not Parquet, a missing column.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if split_suffix(path)[1]:
        raise DataError(f"{path}: Parquet compresses inside the file; give the .parquet itself")
    try:
        with pq.ParquetFile(path) as file:
            require_columns(path, columns, file.schema_arrow.names)
            for batch in file.iter_batches(columns=list(columns)):
                yield from batch.to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error
