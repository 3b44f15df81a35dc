"""The rows of a corpus that a study wants, where it wants fewer or other labels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from fastattnerase.data import DataConfig
from fastattnerase.data.corpus import read_rows
from fastattnerase.data.queries import LeftOut
from fastattnerase.extras import needs
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.study import CorpusSpec

with needs("text"):
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS = 4096  # rows of a group of the file


def write_rows(corpus: CorpusSpec, config: DataConfig, path: Path) -> None:
    """Write the rows of a corpus that a study wants as Parquet: text, label, split.

    Labels are read by the corpus's pattern; of each split and label so many rows are taken that
    the whole has `corpus.rows`, those with the smallest hash of seed and row number.

    Args:
        corpus: the pattern and the number of rows.
        config: files and columns; `classes` are the labels to keep, after the pattern.
        path: where to; the file appears whole or not at all.

    Raises:
        RunError: a label in which the pattern finds nothing.
        DataError: as reading does.
    """
    pattern = None if corpus.label_pattern is None else re.compile(corpus.label_pattern)
    plain = dataclasses.replace(config, classes=None)

    def rows() -> Iterator[tuple[int, str, str, str]]:
        for row in read_rows(plain, LeftOut()):
            label = row.label
            if pattern is not None:
                match = pattern.search(label)
                if match is None:
                    raise RunError(
                        f"{row.where}: label_pattern {pattern.pattern!r} finds nothing in {label!r}"
                    )
                label = match[1]
            if config.classes is None or label in config.classes:
                yield row.id, row.text, label, row.split

    groups: dict[tuple[str, str], list[int]] = {}
    for number, _, label, split in rows():
        groups.setdefault((split, label), []).append(number)
    kept = _draw(groups, corpus.rows, config.seed)
    schema = pa.schema([("text", pa.string()), ("label", pa.string()), ("split", pa.string())])
    partial = path.with_suffix(".partial")
    pending: list[tuple[str, str, str]] = []
    with pq.ParquetWriter(partial, schema, compression="zstd") as writer:

        def flush() -> None:
            columns = [list(column) for column in zip(*pending, strict=True)]
            writer.write_table(pa.table(columns, schema=schema))
            pending.clear()

        for number, text, label, split in rows():
            if number in kept:
                pending.append((text, label, split))
            if len(pending) == _ROWS:
                flush()
        if pending:
            flush()
    partial.replace(path)


def _draw(groups: dict[tuple[str, str], list[int]], rows: int | None, seed: int) -> set[int]:
    total = sum(len(group) for group in groups.values())
    if rows is None or rows >= total:
        return {number for group in groups.values() for number in group}
    exact = {key: len(group) * rows / total for key, group in groups.items()}
    sizes = {key: int(share) for key, share in exact.items()}
    left = rows - sum(sizes.values())
    for key in sorted(exact, key=lambda key: (sizes[key] - exact[key], key))[:left]:
        sizes[key] += 1

    def drawn(number: int) -> bytes:
        return blake2b(f"{seed}:row:{number}".encode(), digest_size=8).digest()

    return {n for key, group in groups.items() for n in sorted(group, key=drawn)[: sizes[key]]}
