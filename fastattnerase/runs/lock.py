"""One process at a time in a folder, by a lock that the system ends with the process."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

from fastattnerase.runs.rundir import RunError

LOCK = ".lock"

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_PAUSE = 0.1  # seconds between two tries
_held: dict[Path, int] = {}  # folders locked by this process, and the thread that did it


@contextmanager
def alone(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep others out of a folder while this process writes there.

    The lock is on the file `.lock` in it, which says who holds it. It ends with the process,
    however that ends; the file stays, but where an error ends the work before anything else is in
    the folder: then a folder that was made here is gone again. The thread that holds it may ask
    again. A folder that this user cannot write to is not locked: there is nothing to protect.

    Args:
        folder: made where it is missing.
        wait: whether to wait for another process instead of refusing.

    Raises:
        RunError: another process is writing there; says which, and since when.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, alone(Path(folder)):
        ...     _ = (Path(folder) / "result.json").write_text("{}")
    """
    path, thread = folder.resolve(), threading.get_ident()
    if _held.get(path) == thread:
        yield
        return
    missing = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    try:
        file = _locked(folder, wait)
    except OSError as error:
        if not folder.is_dir() or error.errno not in _READ_ONLY:
            raise
        yield
        return
    with file:
        file.truncate(0)
        file.write(f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')}".encode())
        file.flush()
        _held[path] = thread
        try:
            yield
        except BaseException:
            with suppress(OSError):  # some systems keep a file that is open
                if missing and os.listdir(folder) == [LOCK]:
                    os.unlink(folder / LOCK)
                    for place in missing:  # those above it as far as nothing else is in them
                        os.rmdir(place)
            raise
        finally:
            del _held[path]


def _locked(folder: Path, wait: bool) -> BinaryIO:
    """Lock a folder's file until it is closed.

    Raises:
        RunError: another process holds the lock, and is not waited for.
        OSError: the folder or the file cannot be made.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = open(folder / LOCK, "a+b")  # noqa: SIM115
        except FileNotFoundError:  # the folder has gone since
            continue
        try:
            while not _take(file):
                if not wait:
                    raise RunError(
                        f"{folder}: given a folder in which {_holder(file)}, needed another folder "
                        "(--out), or that process to end"
                    )
                time.sleep(_PAUSE)
            if _is_there(file, folder / LOCK):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # who held it has taken it away


def _is_there(file: BinaryIO, path: Path) -> bool:
    """Say whether an open file is still the one of this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _take(file: BinaryIO) -> bool:
    """Try to lock a file until it is closed."""
    try:
        if sys.platform == "win32":
            file.seek(1 << 20)  # beyond what the file holds, which others are to read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            raise
        return False
    return True


def _holder(file: BinaryIO) -> str:
    """Say which process holds a lock, as its file has it."""
    file.seek(0)
    process, _, since = file.read().decode("utf-8", "replace").partition(" ")
    if not process.isdecimal():  # locked, and not yet written; or by an older version
        return "another process is writing"
    return f"process {process} has been writing since {since}"
