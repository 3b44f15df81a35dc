"""The folder of a sweep: who may work in it, what is done there, and what is left."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fastattnerase.dumps.manifest import Shard
from fastattnerase.models.storage import require_writable, write_json
from fastattnerase.runs.lock import alone
from fastattnerase.runs.records import to_json
from fastattnerase.runs.rundir import RunError, provenance, read_json
from fastattnerase.runs.workspace import differences
from fastattnerase.sweeps.names import SWEEP
from fastattnerase.sweeps.records import (
    MANIFEST,
    PARTS,
    SHARDS,
    Manifest,
    ShardRecord,
    SweepState,
    part_path,
    read_shard,
    write_manifest,
)

_CALL, _TURN, _MANIFEST = ".call.lock", ".turn", ".manifest"


@contextmanager
def taken(out: Path, state: SweepState, call: str = "", rank: int = 0) -> Iterator[None]:
    """Work in a folder: another call is refused, another rank of the same call is not.

    Locks end with the process, however that ends; the files stay. The first call writes what the
    results depend on.

    Args:
        out: the folder, made where it is missing.
        state: what the results depend on.
        call: what the ranks of a call have in common; empty where the call is one process.
        rank: number of the rank.

    Raises:
        RunError: another call, or the same rank, works there; the folder holds a sweep with another
            state, or a dump.
        OSError: the folder cannot be written to.
    """
    if (out / MANIFEST).is_file() and not (out / SWEEP).is_file():  # it would be written over
        raise RunError(
            f"{out}: given a folder with a {MANIFEST} of something else, such as a dump, needed "
            "another folder (--out)"
        )
    require_writable(out)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / _CALL, "a+b") as file:
        with alone(out / _TURN, wait=True):  # one at a time asks who is there
            _enter(out, file, call, rank)
            _begin(out, state)
        yield
        if not call:
            _clear(out)  # of workers that were killed and replaced


def _enter(out: Path, file: BinaryIO, call: str, rank: int) -> None:
    own = f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')} {call}"
    if _lock(file, fcntl.LOCK_EX):
        file.truncate(0)
        file.write(own.encode())
        file.flush()
        _clear(out)
    else:
        file.seek(0)
        told = file.read().decode("utf-8", "replace").split(" ", 3)
        process, day, hour, there = [*told, *[""] * 4][:4]
        if not call or there != call or not _lock(file, fcntl.LOCK_SH):
            raise RunError(
                f"{out}: given a folder in which process {process} has been sweeping since {day} "
                f"{hour}, needed another folder (--out), or that process to end"
            )
    if call:
        _lock(file, fcntl.LOCK_SH)  # others of this call may enter


def _lock(file: BinaryIO, kind: int) -> bool:
    """Try to lock a file until it is closed."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def others_at_work(out: Path) -> bool:
    """Say whether a rank of this call, which has left the folder, has left others there."""
    with alone(out / _TURN, wait=True), open(out / _CALL, "a+b") as file:
        return not _lock(file, fcntl.LOCK_EX)


def _clear(out: Path) -> None:
    """Delete what a killed call has left unfinished; nobody is at work."""
    for pattern in (f"{PARTS}/*/*.partial", f"{SHARDS}/*.partial", "*.json.*.partial"):
        for partial in out.glob(pattern):
            partial.unlink(missing_ok=True)


def _begin(out: Path, state: SweepState) -> None:
    """Write what the results depend on, or refuse a folder where they depend on something else."""
    path, now = out / SWEEP, to_json(state)
    if not path.is_file():
        write_json(path, now | provenance())
        return
    before = read_json(path)
    changed = [
        text for key in now if key != "name" for text in differences(before.get(key), now[key], key)
    ]
    if changed:
        raise RunError(
            f"{out} holds another sweep: {'; '.join(changed)}; choose another --out, or delete it"
        )


def left(out: Path, shards: tuple[Shard, ...], *, retry: bool) -> Iterator[Shard]:
    """Yield the shards that are still to be done.

    A shard is done where it has a record, and its parts the sizes that the record tells of.

    Args:
        out: the folder of the sweep.
        shards: of the dump.
        retry: whether those that are set aside are done again.
    """
    for shard in shards:
        record = read_shard(out, shard.name)
        if record is None or (retry if record.state == "aside" else not _whole(out, record)):
            yield shard


def _whole(out: Path, record: ShardRecord) -> bool:
    for table, part in record.tables.items():
        path = part_path(out, table, record.shard)
        if not path.is_file() or path.stat().st_size != part.bytes:
            return False
    return True


def renew_manifest(out: Path) -> Manifest:
    """Rebuild the manifest; of ranks that do so at once the last sees all records."""
    with alone(out / _MANIFEST, wait=True):
        return write_manifest(out)
