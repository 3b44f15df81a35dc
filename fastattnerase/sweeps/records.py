"""What the folder of a sweep holds: a part of each table for each shard, and a record of the shard.

```
OUT/
  sweep.json                      `SweepState` as the first call wrote it, versions, machine
  parts/<table>/<shard>.parquet   tables of `TABLES`, in the columns that `erase` writes:
                                  parts/instances/shard-000000.parquet, parts/multi/…
  shards/<shard>.json             a `ShardRecord`: the shard is done, or set aside with its reason
  manifest.json                   `Manifest`, rebuilt from the records alone by `write_manifest`
  aggregate/                      run.json, result.json, tables/*.csv: `aggregate.aggregate_parts`
```

A part is written aside, synced and renamed; the record comes last, so that a shard without one is
not done, whatever parts of it are there. Parts of a shard that is set aside are not there. The
column `row` is the number of the instance in the dump, `id` its id. Columns are those of
`studies.serrano_smith.instance_tables`: `INSTANCES`, `MULTI`, `SINGLE`, `ERASED`. The table
`curves` of `erase` has no parts: 300 bytes an instance and ranking, of which no sum is made.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fastattnerase.models.storage import write_json
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import RunError, read_json
from fastattnerase.sweeps.names import SWEEP

KIND = "fastattnerase sweep"
FORMAT = 1  # raised when what the folder holds changes
TABLES = ("instances", "multi", "single", "erased")
MANIFEST, PARTS, SHARDS = "manifest.json", "parts", "shards"


@dataclass(frozen=True)
class SweepState:
    """What all results of a sweep depend on; another call with another state is refused.

    Attributes:
        kind: `KIND`.
        format: `FORMAT`.
        config: options of the experiment, `serrano_smith.config.Config.to_dict()`.
        dump: digest of the dump's manifest, its numbers of shards, instances and items.
        name: of the sweep in reports.
        classes: names of the classes.
        head_bias: `[C]`, the bias that all instances share; None where each has its own.
        near_ties: `values`, or `contributions` of a compact dump.
    """

    kind: str
    format: int
    config: dict[str, Any]
    dump: dict[str, Any]
    name: str
    classes: tuple[str, ...]
    head_bias: tuple[float, ...] | None
    near_ties: str


@dataclass(frozen=True)
class Part:
    """A file of a table.

    Attributes:
        rows: of the table.
        bytes: size of the file.
        sha256: of the file, in hexadecimal digits.
    """

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardRecord:
    """What became of a shard.

    Attributes:
        shard: its name, `shard-000000`.
        state: `done`, or `aside` where its file is damaged.
        reason: why it is set aside; empty where it is done.
        instances: that it holds, as the dump's manifest has it.
        items: that these have.
        tables: from the table to its part; empty where it is set aside.
        first_row: number of its first instance in the dump; None in records that were written
            before there was one.
        engine: what computed its tables, `cpu-avx512` or `cuda`; empty where it is set aside, and
            in records that were written before there was one.
    """

    shard: str
    state: Literal["done", "aside"]
    reason: str
    instances: int
    items: int
    tables: dict[str, Part] = field(default_factory=dict)
    first_row: int | None = None
    engine: str = ""


@dataclass(frozen=True)
class Manifest:
    """What is there of a sweep.

    Attributes:
        complete: whether every shard is done or set aside.
        shards: of the dump.
        done: shards.
        instances: in the shards that are done.
        items: in these.
        rows: from the table to its rows in all parts.
        aside: from the name of each shard that is set aside to its reason.
        engines: from what computed tables, as records have it, to the shards of which it did.
    """

    complete: bool
    shards: int
    done: int
    instances: int
    items: int
    rows: dict[str, int]
    aside: dict[str, str]
    engines: dict[str, int] = field(default_factory=dict)


def part_path(out: Path, table: str, shard: str) -> Path:
    """Say where a part of a table is."""
    return out / PARTS / table / f"{shard}.parquet"


def record_path(out: Path, shard: str) -> Path:
    """Say where the record of a shard is."""
    return out / SHARDS / f"{shard}.json"


def read_state(out: Path) -> SweepState:
    """Read what the results in a folder depend on.

    Raises:
        RunError: no sweep, one of another format, or a damaged file.
    """
    path = out / SWEEP
    if not path.is_file():
        raise RunError(f"{out}: given no {SWEEP}, needed a folder that `fastattnerase sweep` wrote")
    content = read_json(path)
    if content.get("kind") != KIND or content.get("format") != FORMAT:
        raise RunError(
            f"{path}: given {content.get('kind')!r} of format {content.get('format')!r}, needed "
            f"{KIND!r} of format {FORMAT}"
        )
    return read_record(SweepState, content, path)


def read_shard(out: Path, shard: str) -> ShardRecord | None:
    """Read the record of a shard; None where it has none, so that it is still to be done.

    Raises:
        RunError: the record is damaged.
    """
    path = record_path(out, shard)
    if not path.is_file():
        return None
    # The others are whole: this one alone is done again.
    return read_record(ShardRecord, read_json(path, delete=path), path)


def write_shard(out: Path, record: ShardRecord) -> None:
    """Write the record of a shard: from then on it is done, or set aside."""
    write_json(record_path(out, record.shard), to_json(record))


def read_shards(out: Path) -> list[ShardRecord]:
    """Read the records of all shards that are done or set aside, in the order of the dump.

    Names need not follow it: a dump that was put together by hand may have any. Where a record
    lacks its first row the names decide all the same, as they once did.
    """
    found = []
    for path in sorted((out / SHARDS).glob("*.json")):
        record = read_shard(out, path.stem)
        if record is not None:  # a call that does it again may have deleted it since
            found.append(record)
    rows = {record.shard: record.first_row for record in found}
    if None not in rows.values():
        found.sort(key=lambda record: rows[record.shard] or 0)
    return found


def digest_of_records(records: Sequence[ShardRecord]) -> str:
    """Compute the SHA-256 of what records say, the checksums of all parts among it."""
    return hashlib.sha256(repr(list(records)).encode()).hexdigest()


def write_manifest(out: Path) -> Manifest:
    """Rebuild `manifest.json` from the records alone, and write it where it has changed.

    Returns:
        What it says.
    """
    found = manifest_of(read_state(out), read_shards(out))
    path, content = out / MANIFEST, {"kind": KIND, "format": FORMAT} | to_json(found)
    try:
        current = path.is_file() and read_json(path) == content
    except RunError:  # damaged, and nothing that the records do not have
        current = False
    if not current:
        write_json(path, content)
    return found


def manifest_of(state: SweepState, records: Sequence[ShardRecord]) -> Manifest:
    """Sum up the records of a sweep."""
    shards = int(state.dump["shards"])
    done = [record for record in records if record.state == "done"]
    return Manifest(
        complete=len(records) == shards,
        shards=shards,
        done=len(done),
        instances=sum(record.instances for record in done),
        items=sum(record.items for record in done),
        rows={table: sum(record.tables[table].rows for record in done) for table in TABLES},
        aside={record.shard: record.reason for record in records if record.state == "aside"},
        engines=dict(sorted(Counter(record.engine for record in done if record.engine).items())),
    )


def read_manifest(out: Path) -> Manifest:
    """Read `manifest.json`.

    Raises:
        RunError: it is missing or damaged.
    """
    path = out / MANIFEST
    if not path.is_file():
        raise RunError(
            f"{out}: given no {MANIFEST}, needed a folder that `fastattnerase sweep` wrote"
        )
    return read_record(Manifest, read_json(path), path)
