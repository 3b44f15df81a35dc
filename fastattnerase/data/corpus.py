"""Labelled texts in three splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fastattnerase.data.config import DataConfig
from fastattnerase.data.errors import DataError
from fastattnerase.data.readers import find_reader
from fastattnerase.data.readers.sentiment_sentences import FOLDER as _DEMO_FOLDER

_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}
_SPLITS = ("train", "dev", "test")
NO_LABEL = -1


class Example(NamedTuple):
    """One labelled text.

    Attributes:
        id: the number of its row among all rows read, from 0; unique over the splits.
        text: the text, not empty.
        label: the index of its class; -1 where the data carry no label.
    """

    id: int
    text: str
    label: int


@dataclass(frozen=True)
class Corpus:
    """Labelled texts in three splits.

    Attributes:
        train: the training examples.
        dev: the development examples.
        test: the test examples.
        classes: the labels' names; `label` is an index into them. Sorted, by value where all are
            numbers.
        dropped: how many rows were left out, by reason; `empty_text` counts those whose text is
            empty or white space.
    """

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    classes: list[str]
    dropped: dict[str, int] = field(default_factory=dict)


class _Row(NamedTuple):
    id: int
    text: str
    label: str
    split: str  # train, dev or test
    where: str  # for messages


def load_corpus(config: DataConfig) -> Corpus:
    """Read labelled texts and split them.

    Rows with an empty text are left out and counted. Splits that no file and no split column gives
    are drawn from the training rows: stratified by label, by a hash of the seed and the row number,
    so that the same file and seed give the same split everywhere. At least one row of each class
    stays in train.

    Args:
        config: files, columns and splits.

    Returns:
        The corpus.

    Raises:
        DataError: a file or a column is missing, a file is empty, a label is missing, all labels
            are the same, dev or test have a label that train has not.

    Example:
        >>> corpus = demo_corpus()
        >>> len(corpus.train), len(corpus.dev), len(corpus.test), corpus.classes
        (2400, 300, 300, ['0', '1'])
    """
    dropped: Counter[str] = Counter()
    rows = list(_drop_empty(_rows(config), dropped))
    source = config.path or config.train or config.reader
    if not any(row.split == "train" for row in rows):
        raise DataError(f"{source}: no rows to train on (rows left out: {dict(dropped) or 'none'})")
    missing = tuple(split for split in ("dev", "test") if not any(r.split == split for r in rows))
    rows = _draw(rows, missing, config)
    classes = _sort_labels({row.label for row in rows if row.split == "train"})
    if len(classes) < 2:
        raise DataError(
            f"{source}: all training rows have the label {classes[0]!r} in column "
            f"{config.label_column!r}; at least two classes are needed"
        )
    splits: dict[str, list[Example]] = {split: [] for split in _SPLITS}
    for row in rows:
        splits[row.split].append(_example(row, classes))
    return Corpus(**splits, classes=classes, dropped=dict(dropped))


def load_examples(
    path: str | Path,
    classes: Sequence[str],
    *,
    text_column: str = "text",
    label_column: str | None = "label",
    reader: str | None = None,
) -> tuple[list[Example], dict[str, int]]:
    """Read one file for a model that is trained already.

    Args:
        path: the file.
        classes: the model's classes.
        text_column: the column of the texts.
        label_column: the column of the labels; None where the data carry none (label -1).
        reader: a registered reader's name; default: by the file's extension.

    Returns:
        The examples, and how many rows were left out, by reason.

    Raises:
        DataError: as `load_corpus`; also a label that is none of the classes.

    Example:
        >>> examples, dropped = load_examples("new.csv", ["neg", "pos"])  # doctest: +SKIP
    """
    dropped: Counter[str] = Counter()
    rows = _read(str(path), reader, text_column, label_column, None, "test", 0)
    examples = [
        _example(row, classes) if label_column else Example(row.id, row.text, NO_LABEL)
        for row in _drop_empty(rows, dropped)
    ]
    if not examples:
        raise DataError(f"{path}: no texts (rows left out: {dict(dropped) or 'none'})")
    return examples, dict(dropped)


def demo_config() -> DataConfig:
    """Give the configuration of the data that ship with the package.

    2,400 / 300 / 300 of the UCI sentiment-labelled sentences (Kotzias et al. 2015; CC BY 4.0).
    """
    return DataConfig(reader="sentiment_sentences", seed=2019)


def demo_corpus() -> Corpus:
    """Load the data that ship with the package: `load_corpus(demo_config())`."""
    return load_corpus(demo_config())


def _rows(config: DataConfig) -> Iterator[_Row]:
    columns = (config.reader, config.text_column, config.label_column)
    if config.train is not None:
        start = 0
        for split, path in zip(_SPLITS, (config.train, config.dev, config.test), strict=True):
            if path is not None:
                for row in _read(path, *columns, None, split, start):
                    start = row.id + 1
                    yield row
        return
    path = config.path
    if path is None:
        if config.reader != "sentiment_sentences":
            raise DataError("path: no file given; one as path, or files as train, dev and test")
        path = str(_DEMO_FOLDER)
    yield from _read(path, *columns, config.split_column, "train", 0)


def _read(
    path: str,
    reader: str | None,
    text_column: str,
    label_column: str | None,
    split_column: str | None,
    split: str,
    start: int,
) -> Iterator[_Row]:
    columns = [column for column in (text_column, label_column, split_column) if column is not None]
    rows = find_reader(Path(path), reader)(Path(path), columns)
    for number, values in enumerate(rows, start=1):
        where = f"{path}, row {number}"
        text = values[text_column]
        if text is None:
            text = ""
        if not isinstance(text, str):
            raise DataError(
                f"{where}: column {text_column!r} holds {text!r} ({type(text).__name__}); text is "
                "needed"
            )
        label = "" if label_column is None else _label(values[label_column], label_column, where)
        if split_column is not None:
            name = str(values[split_column]).strip().lower()
            if name not in _SPLIT_NAMES:
                raise DataError(
                    f"{where}: column {split_column!r} holds {values[split_column]!r}; one of "
                    f"{', '.join(_SPLIT_NAMES)} is needed"
                )
            split = _SPLIT_NAMES[name]
        yield _Row(start + number - 1, text, label, split, where)


def _label(value: object, column: str, where: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a table with gaps elsewhere stores 1 as 1.0
    label = "" if value is None else str(value).strip()
    if not label or (isinstance(value, float) and value != value):
        raise DataError(f"{where}: no label in column {column!r}")
    return label


def _drop_empty(rows: Iterable[_Row], dropped: Counter[str]) -> Iterator[_Row]:
    for row in rows:
        if row.text.strip():
            yield row
        else:
            dropped["empty_text"] += 1


def _example(row: _Row, classes: Sequence[str]) -> Example:
    if row.label not in classes:
        raise DataError(
            f"{row.where}: label {row.label!r} is unknown; the classes of the training rows are "
            f"{', '.join(map(repr, classes))}"
        )
    return Example(row.id, row.text, classes.index(row.label))


def _sort_labels(labels: Iterable[str]) -> list[str]:
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)


def _draw(rows: list[_Row], missing: tuple[str, ...], config: DataConfig) -> list[_Row]:
    """Move training rows to the missing splits, stratified by label."""
    shares = dict(zip(_SPLITS, config.fractions, strict=True))
    total = shares["train"] + sum(shares[split] for split in missing)
    pool: dict[str, list[int]] = {}  # label → indices of its training rows, in drawn order
    for index, row in enumerate(rows):
        if row.split == "train":
            pool.setdefault(row.label, []).append(index)
    for indices in pool.values():
        indices.sort(key=lambda index: _hash(config.seed, rows[index].id))
    sizes = {label: len(indices) for label, indices in pool.items()}
    rows = list(rows)
    for split in missing:
        counts = _allocate(sizes, shares[split] / total)
        for label, count in counts.items():
            for _ in range(min(count, len(pool[label]) - 1)):
                index = pool[label].pop()
                rows[index] = rows[index]._replace(split=split)
    return rows


def _allocate(sizes: dict[str, int], share: float) -> dict[str, int]:
    """Share out a split among the classes, by largest remainder: the total is exact."""
    exact = {label: size * share for label, size in sizes.items()}
    counts = {label: int(value) for label, value in exact.items()}
    left = round(sum(sizes.values()) * share) - sum(counts.values())
    by_remainder = sorted(exact, key=lambda label: (counts[label] - exact[label], label))
    for label in by_remainder[:left]:
        counts[label] += 1
    return counts


def _hash(seed: int, row: int) -> bytes:
    return blake2b(f"{seed}:{row}".encode(), digest_size=16).digest()
