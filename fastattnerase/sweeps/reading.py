"""A shard's batches, read ahead of the engine, with the checksum of the file beside."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TypeVar

import torch

from fastattnerase.dumps.checksums import crc32
from fastattnerase.dumps.manifest import Shard
from fastattnerase.dumps.reading import Dump, check_digest
from fastattnerase.extras import needs
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk

T = TypeVar("T")
_WAIT = 0.2  # seconds after which the thread looks whether anybody still wants its items
_PIECE = 1 << 20  # bytes that are hashed at a time, while they are in the cache


class DamagedError(Exception):
    """The file of a shard is not what the manifest says; the message says why."""


def read_chunks(dump: Dump, shard: Shard) -> Iterator[Chunk]:
    """Yield the batches of a shard; its checksum is computed along with them.

    What is mapped into memory is read for the checksum before anybody looks at it: a disk that
    cannot read it then gives an error, by which the shard is set aside, and not the end of the
    process. So it is where values are the last in the file, as they mostly are.

    Raises:
        DamagedError: the file is damaged, does not fit the manifest, or `erase --tensors` would
            refuse it. As the checksum is known last, batches of a damaged file may come before.
    """
    with needs("text"):
        from safetensors import SafetensorError
    path = dump.folder / shard.file
    value = getattr(torch, dump.manifest.dtypes["values"]).itemsize
    item = math.prod(dump.manifest.inner) * value
    before = shard.bytes - shard.items * item  # bytes of all else
    digest, done = _Digest(path, shard), 0
    try:
        with suppress(FileNotFoundError, IsADirectoryError):  # whoever opens it says more
            digest.advance(before)
        source = dump.open(shard)
        for chunk in source.chunks(0):
            done += chunk.batch.num_items
            digest.advance(before + done * item)
            yield chunk
        digest.check()
    except (RunError, SafetensorError) as error:
        raise DamagedError(str(error).replace(f"{dump.folder}/", "")) from error
    except OSError as error:
        raise DamagedError(f"{shard.file}: {error.strerror or error}") from error


class _Digest:
    """A checksum of a shard's file, computed piece by piece as it is read.

    CRC-32, or SHA-256 of a dump whose manifest has no other.
    """

    def __init__(self, path: Path, shard: Shard) -> None:
        self._path, self._shard = path, shard
        self._crc = 0
        self._sha256 = hashlib.sha256()
        self._done = 0
        self._piece = memoryview(bytearray(_PIECE))  # new memory for each would cost as much again

    def advance(self, end: int) -> None:
        """Go on to a byte of the file, or to its end."""
        with open(self._path, "rb", buffering=0) as file:
            file.seek(self._done)
            while self._done < end:
                count = file.readinto(self._piece[: end - self._done])
                if not count:
                    return
                if self._shard.crc32 is None:
                    self._sha256.update(self._piece[:count])
                else:
                    self._crc = crc32(self._piece[:count], self._crc)
                self._done += count

    def check(self) -> None:
        """Go on to the end of the file and refuse it where its checksum is another.

        Raises:
            RunError: it is damaged.
        """
        self.advance(self._path.stat().st_size)
        if self._shard.crc32 is None:
            check_digest(self._path, "SHA-256", self._sha256.hexdigest(), self._shard.sha256)
        else:
            check_digest(self._path, "CRC-32", f"{self._crc:08x}", self._shard.crc32)


def ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """Make items in a thread, one while the one before is used.

    What making one raises is raised here, in its place. Where nobody wants more, the thread ends.

    Example:
        >>> list(ahead(range(3)))
        [0, 1, 2]
    """
    queue: Queue[tuple[T | None, BaseException | None]] = Queue(maxsize=1)
    unwanted = threading.Event()

    def put(item: T | None, error: BaseException | None) -> bool:
        while not unwanted.is_set():
            try:
                queue.put((item, error), timeout=_WAIT)
                return True
            except Full:
                continue
        return False

    def make() -> None:
        try:
            for item in items:
                if not put(item, None):
                    return
        except BaseException as error:  # whatever it is, it is raised where the item is wanted
            put(None, error)
        else:
            put(None, StopIteration())

    thread = threading.Thread(target=make, name="ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item, error = queue.get(timeout=_WAIT)
            except Empty:
                continue  # where Ctrl-C is heard
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        unwanted.set()
        thread.join()
