"""The registry of readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError, MissingColumnError
from fastattnerase.data.files import COMPRESSIONS, split_suffix

Reader = Callable[[Path, Sequence[str]], Iterator[Mapping[str, object]]]

READERS: dict[str, Reader] = {}
_SUFFIXES: dict[str, str] = {}  # file suffix → name of its reader


def register_reader(name: str, suffixes: Sequence[str] = ()) -> Callable[[Reader], Reader]:
    """Register a reader under a name and for file suffixes.

    Args:
        name: what `DataConfig.reader` calls it.
        suffixes: suffixes of file names, with the dot and without compression, that choose it.

    Returns:
        A decorator.

    Raises:
        ValueError: the name or a suffix is taken.
    """

    def decorate(reader: Reader) -> Reader:
        if name in READERS:
            raise ValueError(
                f"reader: given {name!r}, which is registered already, needed another name"
            )
        for suffix in suffixes:
            if suffix in _SUFFIXES:
                raise ValueError(
                    f"suffix: given {suffix!r}, which is that of reader {_SUFFIXES[suffix]!r}, "
                    "needed another"
                )
            _SUFFIXES[suffix] = name
        READERS[name] = reader
        return reader

    return decorate


def find_reader(path: Path, name: str | None = None) -> Reader:
    """Give the reader of a name, or of a file's suffix where no name is given.

    Args:
        path: the file to read.
        name: a registered reader; default: by suffix.

    Returns:
        The reader.

    Raises:
        DataError: unknown name or suffix; the message lists the known ones.
    """
    if name is not None:
        if name not in READERS:
            raise DataError(f"reader: given {name!r}, needed one of {', '.join(sorted(READERS))}")
        return READERS[name]
    suffix = split_suffix(path)[0]
    if path.is_dir() and suffix not in _SUFFIXES:
        raise DataError(f"{path}: given a folder, needed a file")
    if suffix not in _SUFFIXES:
        raise DataError(
            f"{path}: given file type {suffix or '(no extension)'!r}, needed one of "
            f"{', '.join(sorted(_SUFFIXES))}, each also with {', '.join(COMPRESSIONS)}"
        )
    return READERS[_SUFFIXES[suffix]]


def require_columns(path: Path, wanted: Sequence[str], present: Collection[str]) -> None:
    """Refuse a file that lacks a wanted column, naming those present."""
    missing = [column for column in wanted if column not in present]
    if missing:
        raise MissingColumnError(
            f"{path} has no column {', '.join(map(repr, missing))}; its columns are "
            f"{', '.join(map(repr, present)) or '(none)'}"
        )
