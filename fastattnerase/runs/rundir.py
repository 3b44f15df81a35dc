"""Run directories: what was run where, per-instance tables written in parts, and the result."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from fastattnerase.extras import needs
from fastattnerase.threads import side_by_side

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Schema, Table
    from pyarrow.parquet import ParquetWriter
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = ParquetWriter = Schema = Table = Any

RUN = "run.json"
RESULT = "result.json"
_PARTS = "parts"
_PACKAGES = (
    *("fastattnerase", "torch", "numpy", "scipy", "pandas", "pyarrow"),
    *("scikit-learn", "transformers"),
)


class RunError(ValueError):
    """A run directory or its input is not what it must be; the message says what to do."""


def provenance() -> dict[str, Any]:
    """Name the versions and the machine: what a reader needs to judge or repeat a run.

    Returns:
        A JSON-able dictionary with `versions` and `machine`; nothing that identifies a user, a
        host or a folder.

    Example:
        >>> from fastattnerase.runs.rundir import provenance
        >>> sorted(provenance())
        ['machine', 'versions']
    """
    import torch  # only here: what reads a record needs none

    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):  # what an extra would bring
            versions[name] = importlib.metadata.version(name)
    return {
        "versions": versions,
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = 2) -> None:
    """Write a JSON file as a whole or not at all; NaN is refused. Without indent, in one line."""
    partial = path.with_name(path.name + ".partial")
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


class _Record(dict[str, Any]):
    """An object of a JSON file, which says what it lacks."""

    _file: Path

    def __missing__(self, key: str) -> Any:
        raise RunError(f"{self._file} is damaged: it lacks {key!r}; delete it and run again")


def read_json(path: Path, delete: Path | None = None) -> dict[str, Any]:
    """Read a JSON object, which with all objects in it says which key the file lacks.

    Args:
        path: of the file.
        delete: what an error advises to delete; default: the folder, in which all belongs together.

    Raises:
        RunError: the file holds no JSON object; later, a key that is asked for is missing.
    """

    def record(found: dict[str, Any]) -> _Record:
        of_file = _Record(found)
        of_file._file = path
        return of_file

    delete = delete or path.parent
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_hook=record)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, nested too deeply
        raise RunError(f"{path} is damaged: {error}; delete {delete} and run again") from error
    if not isinstance(content, dict):
        raise RunError(
            f"{path} is damaged: it holds {type(content).__name__}, not an object; delete {delete} "
            "and run again"
        )
    return content


def read_table(path: Path, columns: list[str] | None = None) -> DataFrame:
    """Read a table of a finished run.

    Raises:
        RunError: the file is missing or damaged.
    """
    with needs("text"):
        import pandas as pd
        import pyarrow as pa
    try:
        return pd.read_parquet(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise RunError(
            f"{path} is missing or damaged: {reason}; delete {path.parent} and run again"
        ) from error


def begin(folder: Path, state: Mapping[str, Any], *, name: str, about: Mapping[str, Any]) -> bool:
    """Begin a run in a directory, or find the one that is there.

    Args:
        folder: the run directory; created where absent.
        state: what the results depend on, with the run's `kind`.
        name: of the run, for reports; a finished run takes it on.
        about: what else its record says, beside versions and machine.

    Returns:
        Whether the run is finished.

    Raises:
        RunError: the directory holds a run of another state.
    """
    path = folder / RUN
    if path.exists():
        before = read_json(path)
        changed = [_difference(key, before.get(key), state[key]) for key in state
                   if before.get(key) != state[key]]  # fmt: skip
        # A first try that failed before its first part has left nothing to protect.
        empty = before.get("kind") == state["kind"] and not _has_results(folder)
        if changed and not empty:
            raise RunError(
                f"{folder} holds a run with another {' and '.join(changed)}; choose another "
                "directory (--out) or delete it"
            )
        if (folder / RESULT).exists():
            if before.get("name") != name:
                write_json(path, before | {"name": name})
            return True
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {**state, "name": name, **about, **provenance()})
    return False


def _difference(key: str, there: Any, here: Any) -> str:
    """Name what differs between two records, the options of a configuration one by one."""
    if key == "source" and isinstance(there, Mapping) and "hash" in there and "hash" in here:
        return "source (the model, as by more training, or its data have changed since)"
    if key != "config" or not isinstance(there, Mapping):
        return key
    options = [
        f"{name} is {_given(there.get(name))} there and {_given(here.get(name))} here"
        for name in dict.fromkeys((*here, *there))
        if there.get(name) != here.get(name)
    ]
    return f"{key} ({'; '.join(options)})" if options else key


def _given(value: Any) -> str:
    return "not given" if value is None else repr(value)


def finished(folder: Path, *, kind: str, again: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the record and the result of a finished run.

    Args:
        folder: the run directory.
        kind: of the run.
        again: how the run is repeated, for errors.

    Returns:
        What `run.json` and `result.json` hold.

    Raises:
        RunError: no such run, an unfinished one, or one of another kind.
    """
    if not (folder / RUN).is_file():
        raise RunError(f"{folder} is not a run directory: it has no {RUN}")
    run = read_json(folder / RUN)
    if run.get("kind") != kind:
        raise RunError(f"{folder} is a run of kind {run.get('kind')!r}, not {kind!r}")
    if not (folder / RESULT).is_file():
        raise RunError(f"{folder} is not finished; run {again} again")
    return run, read_json(folder / RESULT)


def _has_results(folder: Path) -> bool:
    """Say whether a run directory holds a result, or any complete file of a part."""
    return (folder / RESULT).exists() or any((folder / _PARTS).glob("*.parquet"))


def _whole(file: Path) -> Table:
    with needs("text"):
        import pyarrow.parquet as pq
    # Threads would read ahead into buffers of their own.
    with pq.ParquetFile(file) as parquet:
        return parquet.read(use_threads=False)


def packed(schema: Schema) -> dict[str, Any]:
    """Say how tables are compressed: numbers, of which few are alike, without a dictionary.

    Looking for one takes most of the time of writing, and ends in a larger file.
    """
    with needs("text"):
        import pyarrow as pa

    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    return {"compression": "zstd", "use_dictionary": texts}


class PartialTables:
    """Tables of one run that grow part by part, so that an interrupted run goes on.

    A part is complete once the last table's file of it exists; files appear whole or not at all.

    Args:
        folder: the run directory; parts live in its folder `parts` until `merge`.
        names: the tables; the last one marks a part as complete.
        state: what the parts depend on. Parts of another state are deleted.
    """

    def __init__(self, folder: Path, names: Sequence[str], state: Mapping[str, Any]) -> None:
        self.folder = folder
        self.names = tuple(names)
        self.parts = folder / _PARTS
        marker = self.parts / "state.json"
        if self.parts.exists() and not (marker.exists() and read_json(marker) == dict(state)):
            shutil.rmtree(self.parts)
        self.parts.mkdir(parents=True, exist_ok=True)
        if not marker.exists():
            write_json(marker, state)
        self.count = 0
        while self.file(self.names[-1], self.count).exists():
            self.count += 1

    def file(self, name: str, part: int) -> Path:
        """Give the file of a part of a table."""
        return self.parts / f"{name}-{part:06d}.parquet"

    def rows(self) -> int:
        """Count the rows of the marking table in the complete parts."""
        with needs("text"):
            import pyarrow.parquet as pq
        files = [self.file(self.names[-1], part) for part in range(self.count)]
        return sum(int(self.read(pq.read_metadata, file).num_rows) for file in files)

    def read(self, read: Callable[[Path], Any], file: Path) -> Any:
        """Read a part by a function of pyarrow.

        Raises:
            RunError: it is missing or damaged.
        """
        with needs("text"):
            import pyarrow as pa
        try:
            return read(file)
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            raise RunError(
                f"{file} is missing or damaged: {reason}; delete {self.parts} and run again"
            ) from error

    def append(self, tables: Mapping[str, Table]) -> None:
        """Add one part: a table for each name."""
        with needs("text"):
            import pyarrow.parquet as pq
        for name in self.names:
            file = self.file(name, self.count)
            partial = file.with_suffix(".partial")
            pq.write_table(tables[name], partial, **packed(tables[name].schema))
            partial.replace(file)
        self.count += 1

    def merge(
        self,
        schemas: Mapping[str, Schema],
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Write `NAME.parquet` of every table, from the parts that there are.

        Args:
            schemas: of each table.
            report: told how many files of parts are copied, of how many.
        """
        with Merging(self, schemas) as merging:
            merging.finish(report)

    def discard(self) -> None:
        """Delete the parts."""
        shutil.rmtree(self.parts)


class Merging:
    """Whole tables that grow beside the parts they are made of, within `with`.

    `NAME.parquet` has one row group a part, and appears once it is whole; one part of a table at a
    time is in memory.

    Args:
        tables: the parts.
        schemas: of each table.
    """

    def __init__(self, tables: PartialTables, schemas: Mapping[str, Schema]) -> None:
        self._tables = tables
        self._copies = {name: _Copy(tables, name, schemas[name]) for name in tables.names}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fastattnerase")
        self._beside: Future[None] | None = None
        self._ended = False  # whether nothing more is copied beside the caller

    def __enter__(self) -> Merging:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._pool.shutdown(wait=True)
        for copy in self._copies.values():
            copy.close()

    def go_on(self) -> None:
        """Copy what there is by now in a thread beside the caller.

        Raises:
            RunError: a part that was to be copied is damaged.
        """
        if self._beside is not None and not self._beside.done():
            return
        self._raise_errors()
        self._beside = self._pool.submit(self._copy_some)

    def finish(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Copy what is left of all tables, several at a time, and put the whole ones in place.

        Args:
            report: told how many files of parts are copied, of how many.
        """
        self._ended = True
        self._pool.shutdown(wait=True)
        self._raise_errors()
        files, one_at_a_time = len(self._copies) * self._tables.count, Lock()
        stopped = False  # by an error or by the user
        report(sum(copy.done for copy in self._copies.values()), files)

        def end(copy: _Copy) -> None:
            while copy.left() and not stopped:
                copy.next()
                with one_at_a_time:
                    report(sum(copy.done for copy in self._copies.values()), files)
            if not stopped:
                copy.end()

        def bytes_left(copy: _Copy) -> int:
            return copy.left() * copy.size()  # of every table the same number of parts

        try:  # the one with most left first, beside which the others are written
            order = sorted(self._copies.values(), key=bytes_left, reverse=True)
            deque(side_by_side(end, order), maxlen=0)
        finally:
            stopped = True

    def _copy_some(self) -> None:
        for copy in self._copies.values():
            while copy.left() and not self._ended:
                copy.next()

    def _raise_errors(self) -> None:
        if self._beside is not None:
            self._beside.result()


class _Copy:
    """One table that is copied from its parts; one thread at a time has it.

    Attributes:
        done: parts that are copied.
    """

    def __init__(self, tables: PartialTables, name: str, schema: Schema) -> None:
        self.done = 0
        self._tables, self._name, self._schema = tables, name, schema
        self._partial = tables.parts / f"{name}.partial"
        self._writer: ParquetWriter | None = None

    def left(self) -> int:
        """Count the parts that are there and not copied."""
        return self._tables.count - self.done

    def size(self) -> int:
        """Give the bytes of all parts."""
        files = self._tables.parts.glob(f"{self._name}-*.parquet")
        return sum(file.stat().st_size for file in files)

    def next(self) -> None:
        """Copy a part."""
        self._open().write_table(
            self._tables.read(_whole, self._tables.file(self._name, self.done))
        )
        self.done += 1

    def end(self) -> None:
        """Put the whole table in its place."""
        self._open()
        self.close()
        self._partial.replace(self._tables.folder / f"{self._name}.parquet")

    def close(self) -> None:
        """Write no more."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> ParquetWriter:
        with needs("text"):
            import pyarrow.parquet as pq
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._partial, self._schema, **packed(self._schema))
        return self._writer
