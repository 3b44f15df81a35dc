"""The folder of a sweep: who may work in it, what is done there, and what is left."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
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
    record_path,
    write_manifest,
)

_CALL, _AT_WORK, _TURN, _MANIFEST = ".call.lock", ".work.lock", ".turn", ".manifest"
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)


@contextmanager
def taken(
    out: Path,
    state: SweepState,
    shards: Iterable[Shard],
    *,
    retry: bool = False,
    call: str = "",
    rank: int = 0,
) -> Iterator[Callable[[], bool]]:
    """Work in a folder: another call is refused, another rank of the same call is not.

    Locks end with the process, however that ends; the files stay. The first call writes what the
    results depend on. The first process of a call deletes the records of what is to be done again,
    whichever rank does it: until then the others do not take it for done.

    Args:
        out: the folder, made where it is missing.
        state: what the results depend on.
        shards: of the dump. Those whose parts are missing, or of another size than the record says,
            are done again.
        retry: whether those that are set aside are done again, too.
        call: what the ranks of a call have in common; empty where the call is one process.
        rank: number of the rank.

    Yields:
        A function for a rank that has done its part: says whether others of its call are at work.

    Raises:
        RunError: another call, or the same rank, works there; the folder holds a sweep with another
            state, a dump, or a damaged record.
        OSError: the folder cannot be written to.
    """
    if (out / MANIFEST).is_file() and not (out / SWEEP).is_file():  # it would be written over
        raise RunError(
            f"{out}: given a folder with a {MANIFEST} of something else, such as a dump, needed "
            "another folder (--out)"
        )
    require_writable(out)
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        with _needing_locks(out):
            file, own, work = (
                files.enter_context(open(out / name, "a+b"))
                for name in (_CALL, f".rank-{rank}.lock", _AT_WORK)
            )
            with alone(out / _TURN, wait=True):  # one at a time asks who is there
                first = _enter(out, file, call)
                if not _lock(own, fcntl.LOCK_EX):
                    raise RunError(
                        f"{out}: given a folder in which {_holder(own)[0]} as rank {rank} of what "
                        "seems the same call, needed another folder (--out), or that process to "
                        "end; torchrun tells its calls apart with --standalone or --rdzv-id"
                    )
                _sign(own, call)
                _lock(work, fcntl.LOCK_SH)
                if first:
                    _clear(out)
                _begin(out, state)
                if first:
                    _forget(out, shards, retry=retry)
        yield lambda: _others_at_work(out, work)
        with alone(out / _TURN, wait=True):
            if not call or _lock(file, fcntl.LOCK_EX):  # the last of its call
                _clear(out)  # of workers that were killed and replaced


@contextmanager
def _needing_locks(out: Path) -> Iterator[None]:
    """Say in a line where a file system has no locks."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise RunError(
            f"{out}: given a file system without locks ({error.strerror}), needed one on which "
            "`flock` works: another folder (--out), Lustre mounted with `flock`, or NFS with its "
            "lock service"
        ) from error


def _enter(out: Path, file: BinaryIO, call: str) -> bool:
    """Lock the folder for a call; say whether this is the first process of it."""
    first = _lock(file, fcntl.LOCK_EX)
    if first:
        _sign(file, call)
    else:
        holder, there = _holder(file)
        if not call or there != call or not _lock(file, fcntl.LOCK_SH):
            raise RunError(
                f"{out}: given a folder in which {holder}, needed another folder (--out), or that "
                "process to end"
            )
    if call:
        _lock(file, fcntl.LOCK_SH)  # others of this call may enter
    return first


def _sign(file: BinaryIO, call: str) -> None:
    """Write into the file of a lock who holds it."""
    file.truncate(0)
    file.write(f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')} {call}".encode())
    file.flush()


def _holder(file: BinaryIO) -> tuple[str, str]:
    """Say which process holds a lock, and of which call it is."""
    file.seek(0)
    told = file.read().decode("utf-8", "replace").split(" ", 3)
    process, day, hour, call = [*told, *[""] * 4][:4]
    return f"process {process} has been sweeping since {day} {hour}", call


def _lock(file: BinaryIO, kind: int) -> bool:
    """Try to lock a file until it is closed."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _others_at_work(out: Path, own: BinaryIO) -> bool:
    """Give back the own lock of those at work, and say whether anybody else has one."""
    with alone(out / _TURN, wait=True):
        nobody = _lock(own, fcntl.LOCK_EX)
        fcntl.flock(own, fcntl.LOCK_UN)
    return not nobody


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


def _forget(out: Path, shards: Iterable[Shard], *, retry: bool) -> None:
    """Delete the records of shards that are to be done again.

    Were they written over at the end, all would look done meanwhile; after a kill they are left.
    """
    again = False
    for shard in shards:
        record = read_shard(out, shard.name)
        if record is not None and (retry if record.state == "aside" else not _whole(out, record)):
            record_path(out, shard.name).unlink()
            again = True
    if again:
        renew_manifest(out)


def _whole(out: Path, record: ShardRecord) -> bool:
    for table, part in record.tables.items():
        path = part_path(out, table, record.shard)
        if not path.is_file() or path.stat().st_size != part.bytes:
            return False
    return True


def left(out: Path, shards: Iterable[Shard]) -> list[Shard]:
    """Find the shards that are still to be done: those without a record."""
    return [shard for shard in shards if not record_path(out, shard.name).is_file()]


def renew_manifest(out: Path) -> Manifest:
    """Rebuild the manifest; of ranks that do so at once the last sees all records."""
    with alone(out / _MANIFEST, wait=True):
        return write_manifest(out)
