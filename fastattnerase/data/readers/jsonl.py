"""JSON lines, one object a line, and JSON arrays of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text, stream_json
from fastattnerase.data.readers.registry import register_reader, require_columns

_ARRAY = re.compile(r"\s*\[\s*(\{|\]|$)")  # how an array of objects begins


@register_reader("jsonl", (".jsonl", ".ndjson", ".json"))
def read_jsonl(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the rows of a file with one JSON object a line, or with an array of them.

    Blank lines are skipped.

    Args:
        path: the file, plain or `.xz`, `.gz`, `.zst`.
        columns: names of the wanted keys; every object must have them.

    Yields:
        A mapping from each wanted key to its value.

    Raises:
        DataError: a line that is no JSON object or lacks a key, a byte that is not UTF-8.
    """
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if number == 1 and _ARRAY.match(line):
                yield from _read_array(path, columns)
                return
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: given no JSON ({error}), needed one object a line"
                ) from error
            except (ValueError, RecursionError) as error:  # huge integers, deep nesting
                raise DataError(
                    f"{path}, line {number} is JSON that cannot be read ({error})"
                ) from error
            if not isinstance(row, dict):
                raise DataError(
                    f"{path}, line {number}: given a JSON {type(row).__name__}, needed one object "
                    "a line"
                )
            require_columns(Path(f"{path}, line {number}"), columns, list(row))
            yield {column: row[column] for column in columns}


def _read_array(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    for number, row in enumerate(stream_json(path), start=1):
        require_columns(Path(f"{path}, object {number}"), columns, list(row))
        yield {column: row[column] for column in columns}
