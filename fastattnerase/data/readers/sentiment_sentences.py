"""The UCI sentiment-labelled sentences, which ship with the package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns

FOLDER = Path(__file__).parent.parent / "sentiment_sentences"
_FILES = ("amazon_cells_labelled.txt", "imdb_labelled.txt", "yelp_labelled.txt")
_LABELS = {"0": "negative", "1": "positive"}
_COLUMNS = ("text", "label", "source")


@register_reader("sentiment_sentences")
def read_sentiment_sentences(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the 3,000 sentences: columns `text`, `label` (negative, positive) and `source`.

    Lines end at LF only and the label follows the last TAB: some sentences hold other separators.

    Args:
        path: the folder of the three files.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a missing file or column, a line without a TAB and a label.

    Source: Kotzias et al., KDD 2015; CC BY 4.0.
    """
    require_columns(path, columns, _COLUMNS)
    for name in _FILES:
        with open_text(path / name) as file:
            lines = file.read().split("\n")
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            text, tab, label = line.rpartition("\t")
            if not tab or label not in _LABELS:
                raise DataError(
                    f"{path / name}, line {number} has no 0 or 1 after a TAB at its end"
                )
            row = {"text": text, "label": _LABELS[label], "source": name.split("_")[0]}
            yield {column: row[column] for column in columns}
