"""Text files, plain or compressed, read as strict UTF-8."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from fastattnerase.data.errors import DataError
from fastattnerase.extras import needs
from fastattnerase.plurals import counted

_SEPARATORS = re.compile(r"[\s,\[\]]*")
COMPRESSIONS = (".xz", ".gz", ".zst")
# What a damaged file raises while it is decompressed; zlib's error is no OSError.
_DAMAGE = (lzma.LZMAError, zlib.error, EOFError, OSError)


def split_suffix(path: Path) -> tuple[str, str]:
    """Give the format's and the compression's suffix of a file name, in lower case.

    Args:
        path: a file name such as `reviews.csv.xz`.

    Returns:
        `(".csv", ".xz")`; an empty string where there is none.

    Example:
        >>> split_suffix(Path("reviews.CSV.xz"))
        ('.csv', '.xz')
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    return (suffixes[-1] if suffixes else ""), compression


def find_file(path: Path) -> Path:
    """Find a file that may be compressed.

    Args:
        path: its name without compression.

    Returns:
        The file, or where there is none of that name the first of `.xz`, `.gz` and `.zst` that is
        there; the name itself where none is.

    Example:
        >>> find_file(Path("nowhere.csv")).name
        'nowhere.csv'
    """
    names = [path, *(path.with_name(path.name + suffix) for suffix in COMPRESSIONS)]
    return next((name for name in names if name.exists()), path)


def _open_binary(path: Path) -> IO[bytes]:
    compression = split_suffix(path)[1]
    if compression == ".xz":
        return lzma.open(path, "rb")
    if compression == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if compression == ".zst":
        with needs("text"):
            import pyarrow as pa
        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    return open(path, "rb")


@contextmanager
def open_binary(path: Path) -> Iterator[IO[bytes]]:
    """Open a file as bytes, through its decompression where the name ends in .xz, .gz or .zst.

    Args:
        path: the file.

    Yields:
        The open file.

    Raises:
        DataError: no such file, not readable, damaged compression.
    """
    _require_file(path)
    try:
        with _open_binary(path) as file:
            yield file
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _require_file(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.is_dir():
        raise DataError(f"{path}: given a folder, needed a file")


def _describe_bad_byte(path: Path) -> str:
    """Find the first byte that is not UTF-8: only ever called once decoding has failed."""
    offset = 0
    with open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                return (
                    f"byte 0x{byte:02x} at offset {offset + error.start} (line {number}, byte "
                    f"{error.start + 1} of the line)"
                )
            offset += len(line)
    return "the last character, which is cut off"


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 text file, through its decompression where the name ends in .xz, .gz or .zst.

    A byte-order mark is skipped; line ends are left as they are.

    Args:
        path: the file.

    Yields:
        The open file.

    Raises:
        DataError: no such file, not readable, damaged compression, or a byte that is not UTF-8
            (with its line and offset).
    """
    _require_file(path)
    try:
        with io.TextIOWrapper(_open_binary(path), encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8: {_describe_bad_byte(path)}; convert the file to UTF-8"
        ) from error
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def stream_json(path: Path) -> Iterator[dict[str, Any]]:
    """Stream the objects of a JSON file: one array of objects, or objects one after another.

    Args:
        path: the file, plain or `.xz`, `.gz`, `.zst`.

    Yields:
        The objects.

    Raises:
        DataError: not JSON, not objects, a byte that is not UTF-8.
    """
    decoder = json.JSONDecoder()
    count = 0
    with open_text(path) as file:
        text, position, ended = "", 0, False
        while not ended:
            chunk = file.read(1 << 20)
            ended = not chunk
            text, position = text[position:] + chunk, 0
            while True:
                # Brackets and commas between objects need no checking: each object is parsed.
                position = _SEPARATORS.match(text, position).end()  # type: ignore[union-attr]
                if position == len(text):
                    break
                try:
                    value, position = decoder.raw_decode(text, position)
                except json.JSONDecodeError as error:
                    if not ended:
                        break  # the object goes on in the next chunk
                    raise DataError(
                        f"{path}, after {counted(count, 'object')}: given what is not JSON "
                        f"({error.msg}), needed an array of objects, or one object a line"
                    ) from error
                except (ValueError, RecursionError) as error:  # huge integers, deep nesting
                    raise DataError(
                        f"{path}, after {counted(count, 'object')}, is JSON that cannot be read "
                        f"({error})"
                    ) from error
                if not isinstance(value, dict):
                    raise DataError(
                        f"{path}, after {counted(count, 'object')}: given a JSON "
                        f"{type(value).__name__}, needed objects"
                    )
                count += 1
                yield value
