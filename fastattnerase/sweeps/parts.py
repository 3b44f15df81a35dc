"""One shard's parts of the tables: written aside as batches come, and put in place at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fastattnerase.dumps.checksums import digest_of
from fastattnerase.extras import needs
from fastattnerase.runs.rundir import packed
from fastattnerase.studies.serrano_smith.instance_tables import SCHEMAS
from fastattnerase.sweeps.records import TABLES, Part, part_path

with needs("text"):
    import pyarrow as pa
    import pyarrow.parquet as pq

_INSTANCES = 2048  # in a group of rows, and at most one more batch


class PartWriter:
    """Writes the parts of a shard. What `finish` has not put in place is deleted on leaving.

    What a worker that was killed left of the shard is deleted with the end of the call, or the next
    one: a look for it here, among all parts, would cost more with each shard.

    Args:
        out: the folder of the sweep.
        shard: name of the shard.
    """

    def __init__(self, out: Path, shard: str) -> None:
        self._paths = {table: part_path(out, table, shard) for table in TABLES}
        self._partial = {
            table: path.with_name(f"{path.name}.{os.getpid()}.partial")
            for table, path in self._paths.items()
        }
        self._pending: list[Mapping[str, pa.Table]] = []
        self._rows = dict.fromkeys(TABLES, 0)
        self._files: dict[str, Any] = {}
        self._writers: dict[str, Any] = {}

    def __enter__(self) -> PartWriter:
        for table, path in self._partial.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # A file of Python's, whose errors say what failed: such as a disk that is full.
            self._files[table] = open(path, "wb")
            schema = SCHEMAS[table]
            self._writers[table] = pq.ParquetWriter(self._files[table], schema, **packed(schema))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:
            for path in self._partial.values():
                stack.callback(path.unlink, missing_ok=True)
            for file in self._files.values():
                stack.callback(_close, file)
            for writer in self._writers.values():
                stack.callback(_close, writer)

    def append(self, tables: Mapping[str, pa.Table]) -> None:
        """Add the rows of a batch."""
        self._pending.append(tables)
        if sum(part["instances"].num_rows for part in self._pending) >= _INSTANCES:
            self._flush()

    def _flush(self) -> None:
        for table, writer in self._writers.items():
            rows = pa.concat_tables([part[table] for part in self._pending])
            writer.write_table(rows)
            self._rows[table] += rows.num_rows
        self._pending.clear()

    def finish(self) -> dict[str, Part]:
        """Put the parts in place, whole and on the disk.

        Returns:
            From the table to its part.
        """
        if self._pending:
            self._flush()
        found = {}
        for table, path in self._partial.items():
            self._writers[table].close()
            file = self._files[table]
            file.flush()
            os.fsync(file.fileno())
            file.close()
            found[table] = Part(self._rows[table], path.stat().st_size, digest_of(path))
        for table, path in self._partial.items():
            os.replace(path, self._paths[table])
        return found


def _close(opened: Any) -> None:
    """Close what is deleted next: a disk that is full refuses the end of a file."""
    with suppress(OSError, pa.ArrowException):
        opened.close()
