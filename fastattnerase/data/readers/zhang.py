"""The text classification data sets of Zhang, Zhao and LeCun 2015, as distributed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns
from fastattnerase.extras import needs

_CHUNK_ROWS = 8192
_COLUMNS = ("text", "label")


@register_reader("zhang_csv")
def read_zhang_csv(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream a CSV without a header line: the class's number, then one field of text or several.

    Yahoo Answers has title, question and best answer, Amazon title and review, Yelp the review; the
    text is all of them joined by a space. Line breaks, which the files write as `\\n`, become
    spaces, and `\\"` a quote. Columns: `text` and `label`.

    Args:
        path: `train.csv` or `test.csv`, plain or `.xz`, `.gz`, `.zst`.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: rows of a single field, a row with more fields than the first, an empty file, a
            byte that is not UTF-8.

    Source: Zhang, Zhao and LeCun, NeurIPS 2015.
    """
    with needs("text"):
        import pandas as pd
    require_columns(path, columns, _COLUMNS)
    with open_text(path) as file:
        try:
            chunks = pd.read_csv(
                file,
                header=None,
                index_col=False,
                dtype=str,
                keep_default_na=False,
                na_filter=False,
                chunksize=_CHUNK_ROWS,
            )
            with chunks:
                number = 0
                for chunk in chunks:
                    for label, *fields in chunk.itertuples(index=False, name=None):
                        number += 1
                        if not fields:
                            raise DataError(
                                f"{path}, row {number}: given no text, needed a class and its text"
                            )
                        text = " ".join(field for field in fields if field)
                        text = text.replace("\\n", " ").replace('\\"', '"')
                        row = {"text": text, "label": label}
                        yield {column: row[column] for column in columns}
        except pd.errors.EmptyDataError as error:
            raise DataError(
                f"{path}: given an empty file, needed rows of a class and its text"
            ) from error
        except pd.errors.ParserError as error:
            raise DataError(f"{path} cannot be parsed: {str(error).strip()}") from error
