"""AG News as Zhang et al. distribute it, with title and description apart."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns
from fastattnerase.plurals import counted

_COLUMNS = ("text", "title", "label")
_CLASSES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}


@register_reader("ag_news")
def read_ag_news(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream `train.csv` or `test.csv`: class number, title, description, without a header.

    Columns: `text`, the description; `title`; `label`, the class's name. A backslash, which stands
    for a line break, becomes a space.

    Args:
        path: the file, plain or compressed.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a row of another form, a missing column.

    Source: Zhang, Zhao and LeCun, NeurIPS 2015.
    """
    require_columns(path, columns, _COLUMNS)
    with open_text(path) as file:
        for number, fields in enumerate(csv.reader(file), start=1):
            if len(fields) != 3 or fields[0] not in _CLASSES:
                raise DataError(
                    f"{path}, row {number}: given {counted(len(fields), 'field')}, needed a class "
                    "from 1 to 4, a title and a description"
                )
            row = {
                "text": fields[2].replace("\\", " "),
                "title": fields[1].replace("\\", " "),
                "label": _CLASSES[fields[0]],
            }
            yield {column: row[column] for column in columns}
