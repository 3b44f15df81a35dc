"""CSV and TSV with a header line and CSV quoting; the header line tells what separates columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from fastattnerase.data.errors import DataError, MissingColumnError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns
from fastattnerase.extras import needs
from fastattnerase.plurals import counted

_CHUNK_ROWS = 8192
_SEPARATORS = (",", ";", "\t", "|")


def _read(
    path: Path, columns: Sequence[str], separator: str, quoting: Literal[0, 3]
) -> Iterator[Mapping[str, object]]:
    with needs("text"):
        import pandas as pd
    separator, trailing = _find_separator(path, columns, separator, quoting)
    with open_text(path) as file:
        try:
            # Every field stays text: "NA" and "null" are words, "01" is not 1.
            chunks = pd.read_csv(
                file,
                sep=separator,
                dtype=str,
                keep_default_na=False,
                na_filter=False,
                index_col=False,
                usecols=list(columns) if trailing else None,
                quoting=quoting,
                chunksize=_CHUNK_ROWS,
            )
            with chunks:
                for chunk in chunks:
                    for row in zip(*(chunk[column] for column in columns), strict=True):
                        yield dict(zip(columns, row, strict=True))
        except pd.errors.EmptyDataError as error:
            raise DataError(
                f"{path}: given an empty file, needed a header line and rows"
            ) from error
        except pd.errors.ParserError as error:
            raise DataError(_unparsed(path, str(error).strip(), separator)) from error


def _unparsed(path: Path, reason: str, separator: str) -> str:
    """Say what pandas could not parse, and what to do."""
    if found := re.search(r"EOF inside string starting at row (\d+)", reason):
        return (
            f'{path}, row {found[1]}: given a quotation mark (") that is not closed, needed '
            'another where the text ends; within a text it is written twice ("")'
        )
    if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason):
        return (
            f"{path}, row {int(found[2]) - 1}: given {counted(int(found[3]), 'field')}, needed "
            f"{found[1]}, as the "
            f'header line has; a text with {separator!r} in it stands in quotation marks (")'
        )
    return f"{path} cannot be parsed: {reason}"


def _find_separator(
    path: Path, columns: Sequence[str], usual: str, quoting: Literal[0, 3]
) -> tuple[str, bool]:
    """Find what separates columns, and whether one more of it ends each row.

    It is the format's own, or another where the header has more of the columns. A header that has
    a wanted column twice is refused, for pandas would take the first, unasked; so is a first row
    with more fields than the header, for it would lose the last.
    """
    heads = {usual: _head(path, usual, quoting)}
    if not set(columns) <= set(heads[usual][0]):
        for separator in _SEPARATORS:
            with suppress(DataError):  # a field that is too long where nothing separates
                heads[separator] = _head(path, separator, quoting)
    found, (header, first) = max(
        heads.items(), key=lambda own: (len(set(columns) & set(own[1][0])), len(own[1][0]))
    )
    if header and not set(columns) <= set(header):
        try:
            require_columns(path, columns, header)
        except MissingColumnError as error:
            alone = "; no comma, semicolon, tab or | separates them" if len(header) == 1 else ""
            raise MissingColumnError(f"{error}{alone}") from None
    twins = [column for column in columns if header.count(column) > 1]
    if twins:
        raise DataError(
            f"{path}: given several columns {', '.join(map(repr, twins))}, needed distinct names"
        )
    if any(first[len(header) :]):
        raise DataError(
            f"{path}, row 1: given {counted(len(first), 'field')}, needed {len(header)}, as the "
            "header line "
            f'has; a text with {found!r} in it stands in quotation marks (")'
        )
    return found, len(first) > len(header)


def _head(path: Path, separator: str, quoting: Literal[0, 3]) -> tuple[list[str], list[str]]:
    """Read the header line and the first row; no row where there is none, or too long a field."""
    with open_text(path) as file:
        rows = filter(None, csv.reader(file, delimiter=separator, quoting=quoting))
        try:
            header = next(rows, [])
        except csv.Error as error:
            raise DataError(f"{path} cannot be parsed: {error}") from error
        try:
            return header, next(rows, [])
        except csv.Error:
            return header, []


@register_reader("csv", (".csv",))
def read_csv(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the rows of a CSV file: header line, commas, fields quoted with `"` where needed.

    Semicolons, TABs or `|` are taken for commas where the header line has the columns so.

    Args:
        path: the file, plain or `.xz`, `.gz`, `.zst`.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a missing column, an empty file, rows that do not parse, a byte that is not
            UTF-8.
    """
    return _read(path, columns, ",", csv.QUOTE_MINIMAL)


@register_reader("tsv", (".tsv", ".tab"))
def read_tsv(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the rows of a TSV file: as `read_csv`, with TABs for commas."""
    return _read(path, columns, "\t", csv.QUOTE_MINIMAL)


@register_reader("tsv-unquoted")
def read_tsv_unquoted(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the rows of a TSV file in which `"` is an ordinary character."""
    return _read(path, columns, "\t", csv.QUOTE_NONE)
