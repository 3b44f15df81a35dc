"""Text files, plain or compressed, read as strict UTF-8."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO, cast

import pyarrow as pa

from fastattnerase.data.errors import DataError

COMPRESSIONS = (".xz", ".gz", ".zst")


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


def _open_binary(path: Path) -> IO[bytes]:
    compression = split_suffix(path)[1]
    if compression == ".xz":
        return lzma.open(path, "rb")
    if compression == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if compression == ".zst":
        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    return open(path, "rb")


def _describe_bad_byte(path: Path) -> str:
    """Find the first byte that is not UTF-8: only ever called once decoding has failed."""
    offset = 0
    with _open_binary(path) as file:
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
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.is_dir():
        raise DataError(f"{path} is a folder; a file is needed")
    try:
        with io.TextIOWrapper(_open_binary(path), encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8: {_describe_bad_byte(path)}; convert the file to UTF-8"
        ) from error
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
