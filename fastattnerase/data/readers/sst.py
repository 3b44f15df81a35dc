"""The Stanford Sentiment Treebank: one tree a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns

_COLUMNS = ("text", "label", "binary", "split")
_LEAF = re.compile(r"\((\d) ([^()]+)\)")
_ROOT = re.compile(r"\(([0-4]) ")
_BINARY = {"0": "negative", "1": "negative", "2": "", "3": "positive", "4": "positive"}


@register_reader("sst_trees")
def read_sst_trees(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the sentences of a folder with `train.txt`, `dev.txt` and `test.txt`, also `.xz`.

    Columns: `text`, the leaves joined by spaces, brackets as `-LRB-` and `-RRB-`; `label`, the
    root's, 0 (very negative) to 4; `binary`, `negative` or `positive`, empty for neutral ones;
    `split`.

    Args:
        path: the folder.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a missing file or column, a line that is no tree.

    Source: Socher et al., EMNLP 2013 (`trainDevTestTrees_PTB`).
    """
    require_columns(path, columns, _COLUMNS)
    for split in ("train", "dev", "test"):
        plain = path / f"{split}.txt"
        file_path = plain if plain.exists() else path / f"{split}.txt.xz"
        with open_text(file_path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                root = _ROOT.match(line)
                words = [word for _, word in _LEAF.findall(line)]
                if root is None or not words or line.count("(") != line.count(")"):
                    raise DataError(
                        f"{file_path}, line {number}: given no tree, needed `(3 (2 It) (4 works))`"
                    )
                row = {
                    "text": " ".join(words),
                    "label": root[1],
                    "binary": _BINARY[root[1]],
                    "split": split,
                }
                yield {column: row[column] for column in columns}
