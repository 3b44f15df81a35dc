"""Labelled texts in three splits."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastattnerase.data.config import DataConfig
from fastattnerase.data.errors import DataError, LabelError
from fastattnerase.data.examples import NO_LABEL, Example
from fastattnerase.data.queries import Columns, LeftOut, known_answers, read_answers
from fastattnerase.data.readers import find_reader
from fastattnerase.data.readers.sentiment_sentences import FOLDER as _DEMO_FOLDER
from fastattnerase.data.spans import Span, SpansUnit, read_spans
from fastattnerase.data.splits import SPLITS, draw_splits
from fastattnerase.data.tokens import has_words, tokenise
from fastattnerase.fields import one_of
from fastattnerase.plurals import counted

# JSON escapes can name halves of surrogate pairs, which no encoding of text can write.
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}


@dataclass(frozen=True)
class Corpus:
    """Labelled texts in three splits.

    Attributes:
        train: the training examples.
        dev: the development examples.
        test: the test examples.
        classes: the labels' names; `label` is an index into them. Sorted, by value where all are
            numbers.
        dropped: how many rows were left out, by reason; `empty_text` counts those whose text has
            no word, `other_label` and `no_label` those outside `DataConfig.classes`,
            `beyond_quota` those that a quota draw had no room for; of data with a query
            `empty_query` those whose query has no word, `answer_not_allowed` those whose label is
            not among the answers that their row allows, `unseen_answer` those whose label no
            training row has.
        first_dropped: of data with a query the first row of each of these reasons but
            `empty_text`, in a line that names it and what is needed.
    """

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    classes: list[str]
    dropped: dict[str, int] = field(default_factory=dict)
    first_dropped: dict[str, str] = field(default_factory=dict)


class Row(NamedTuple):
    """One row of a file, in the split that the file says."""

    id: int
    text: str
    label: str
    split: str  # train, dev or test
    where: str  # for messages
    query: str | None = None
    answers: tuple[str, ...] | None = None  # labels that are allowed
    spans: tuple[Span, ...] = ()


def load_corpus(config: DataConfig) -> Corpus:
    """Read labelled texts and split them.

    Rows whose text has no word are left out and counted. Splits that no file and no split column
    gives are drawn from the training rows, as `DataConfig.draw` says, by a hash of the seed and the
    row number, so that the same file and seed give the same split everywhere. At least one row of
    each class stays in train in a stratified draw.

    Args:
        config: files, columns and splits.

    Returns:
        The corpus.

    Raises:
        DataError: a file or a column is missing, a file has no rows with words, a label is
            missing, all labels are the same, dev or test have a label that train has not (without a
            query), a text that UTF-8 cannot write, spans that are none.

    Example:
        >>> corpus = demo_corpus()
        >>> len(corpus.train), len(corpus.dev), len(corpus.test), corpus.classes
        (2400, 300, 300, ['negative', 'positive'])
    """
    dropped = LeftOut()
    rows = list(read_rows(config, dropped))
    if not rows:
        raise no_rows(config, dropped)

    def fits(indices: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        texts = (Example(rows[i].id, rows[i].text, NO_LABEL) for i in indices.tolist())
        tokenised = tokenise(texts, **config.tokenisation)
        return np.array([config.fits([len(s) for s in text.sentences]) for text in tokenised])

    drawn = draw_splits(
        np.array([row.id for row in rows], dtype=np.int64),
        [row.label for row in rows],
        np.array([SPLITS.index(row.split) for row in rows], dtype=np.int64),
        config,
        fits,
    )
    classes = find_classes(
        (r.label for r, split in zip(rows, drawn, strict=True) if split == 0), config
    )
    numbers = {name: number for number, name in enumerate(classes)}
    splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for row, split in zip(rows, drawn.tolist(), strict=True):
        if split < 0:
            dropped["beyond_quota"] += 1
        elif is_seen(row, numbers, dropped):
            splits[SPLITS[split]].append(_example(row, numbers))
    if not splits["train"]:
        raise no_rows(config, dropped)
    return Corpus(**splits, classes=classes, dropped=dict(dropped), first_dropped=dropped.first)


def is_seen(
    row: Row, numbers: Mapping[str, int], dropped: LeftOut, *, labelled: bool = True
) -> bool:
    """Say whether a row with a query has an answer that a model could give; count it if not.

    Without a query a label that is no class is an error, which `_example` raises.
    """
    if row.query is None:
        return True
    if labelled and row.label not in numbers:
        known = f"given label {row.label!r}, needed one that a training row has"
    elif row.answers is not None and not any(name in numbers for name in row.answers):
        known = f"given {counted(len(row.answers), 'allowed answer')}, needed one that is a class"
    else:
        return True
    dropped.add("unseen_answer", f"{row.where}: {known}")
    return False


def no_rows(config: DataConfig, dropped: Counter[str]) -> DataError:
    """Make the error for data without rows to train on."""
    return DataError(f"{_source(config)}: no rows to train on ({_why_none(dropped)})")


def _why_none(dropped: Mapping[str, int]) -> str:
    if dropped:
        reasons = (f"{count:,} {reason.replace('_', ' ')}" for reason, count in dropped.items())
        return f"rows left out: {', '.join(reasons)}"
    return "the file has none, at most a header"


def find_classes(train_labels: Iterable[str], config: DataConfig) -> list[str]:
    """Give the classes: those of the configuration, or the sorted labels of the training rows.

    Raises:
        DataError: all training rows have the same label, or none has one of the configuration's
            (without a query: answers to questions are words of the texts, which no training row
            need have).
    """
    found = set(train_labels)
    if config.classes is not None:
        absent = [name for name in config.classes if name not in found]
        if absent and config.query_column is None:
            raise DataError(
                f"{_source(config)}: given no training row with the label {one_of(absent)} in "
                f"column {config.label_column!r}, needed some of each of the classes "
                f"{', '.join(config.classes)}"
            )
        return list(config.classes)
    classes = _sort_labels(found)
    if len(classes) == 1:
        raise DataError(
            f"{_source(config)}: given only rows with the label {classes[0]!r} in column "
            f"{config.label_column!r}, needed at least two classes"
        )
    return classes


def _source(config: DataConfig) -> str | None:
    return config.path or config.train or config.reader


def load_examples(
    path: str | Path,
    classes: Sequence[str],
    *,
    text_column: str = "text",
    label_column: str | None = "label",
    reader: str | None = None,
    line_breaks: bool = True,
    sentences: str = "rules",
    query_column: str | None = None,
    answers_column: str | None = None,
    spans_column: str | None = None,
    spans_unit: SpansUnit = "words",
) -> tuple[list[Example], LeftOut]:
    """Read one file for a model that is trained already.

    Rows whose text has no word are left out and counted; of data with a query those that
    `Corpus.dropped` names, too.

    Args:
        path: the file.
        classes: the model's classes.
        text_column: the column of the texts.
        label_column: the column of the labels; None where the data carry none (label -1).
        reader: a registered reader's name; default: by the file's extension.
        line_breaks: as in `DataConfig`; decides with `sentences` which texts have words.
        sentences: as in `DataConfig`.
        query_column: the column of the second text; None for models of one.
        answers_column: as in `DataConfig`.
        spans_column: as in `DataConfig`.
        spans_unit: as in `DataConfig`.

    Returns:
        The examples, and how many rows were left out, by reason; its `first` says of reasons that
        concern the query which row is the first.

    Raises:
        DataError: as `load_corpus`; also a label that is none of the classes (without a query).

    Example:
        >>> examples, dropped = load_examples("new.csv", ["neg", "pos"])  # doctest: +SKIP
    """
    dropped = LeftOut()
    columns = Columns(
        text_column, label_column, None, query_column, answers_column, spans_column, spans_unit
    )
    rows = _read(str(path), reader, columns, "test", 0, None)
    numbers = {name: number for number, name in enumerate(classes)}
    labelled = label_column is not None
    examples = [
        _example(row, numbers, labelled=labelled)
        for row in _drop(rows, dropped, None, line_breaks, sentences)
        if is_seen(row, numbers, dropped, labelled=labelled)
    ]
    if not examples:
        raise DataError(f"{path}: no texts ({_why_none(dropped)})")
    return examples, dropped


def demo_config() -> DataConfig:
    """Give the configuration of the data that ship with the package.

    2,400 / 300 / 300 of the UCI sentiment-labelled sentences (Kotzias et al. 2015; CC BY 4.0).
    """
    return DataConfig(reader="sentiment_sentences", seed=2019)


def demo_corpus() -> Corpus:
    """Load the data that ship with the package: `load_corpus(demo_config())`."""
    return load_corpus(demo_config())


def read_rows(config: DataConfig, dropped: LeftOut) -> Iterator[Row]:
    """Stream the rows of a configuration's files that are kept; count the others in `dropped`.

    Raises:
        DataError: as `load_corpus`; a file of dev or test rows with none to keep is noticed at the
            end.
    """
    seen = set()
    for row in _drop(_rows(config), dropped, config.classes, config.line_breaks, config.sentences):
        seen.add(row.split)
        yield row
    for split, path in (("dev", config.dev), ("test", config.test)):
        # A split without rows is drawn from train only where no file was named for it.
        if path is not None and split not in seen:
            raise DataError(
                f"{path}: no rows for {split} (the file has none, at most a header, or all were "
                f"left out; {_why_none(dropped)})"
            )


def _rows(config: DataConfig) -> Iterator[Row]:
    if config.train is not None:
        columns = Columns.of(config, split=None)
        start = 0
        for split, path in zip(SPLITS, (config.train, config.dev, config.test), strict=True):
            if path is not None:
                for row in _read(path, config.reader, columns, split, start, config.classes):
                    start = row.id + 1
                    yield row
        return
    path = config.path
    if path is None:
        if config.reader != "sentiment_sentences":
            raise DataError(
                "path: given no file, needed one as path, or files as train, dev and test"
            )
        path = str(_DEMO_FOLDER)
    columns = Columns.of(config, split=config.split_column)
    yield from _read(path, config.reader, columns, "train", 0, config.classes)


def _read(
    path: str,
    reader: str | None,
    columns: Columns,
    split: str,
    start: int,
    classes: Sequence[str] | None,
) -> Iterator[Row]:
    rows = find_reader(Path(path), reader)(Path(path), columns.names)
    for number, values in enumerate(rows, start=1):
        where = f"{path}, row {number}"
        text = _text(values, columns.text, where)
        label = ""
        if columns.label is not None:
            label = _label(values[columns.label])
            _require_characters(label, columns.label, where)
            if not label and classes is None and text.strip():
                raise LabelError(f"{where}: no label in column {columns.label!r}")
        if columns.split is not None:
            name = str(values[columns.split]).strip().lower()
            if name not in _SPLIT_NAMES:
                raise DataError(
                    f"{where}: given {values[columns.split]!r} in column {columns.split!r}, needed "
                    f"one of {', '.join(_SPLIT_NAMES)}"
                )
            split = _SPLIT_NAMES[name]
        row = Row(start + number - 1, text, label, split, where)
        if columns.spans is not None:
            length = len(text if columns.spans_unit == "characters" else text.split())
            given = values[columns.spans]
            spans = read_spans(given, length, where, columns.spans, columns.spans_unit)
            row = row._replace(spans=spans)
        yield row if columns.query is None else _with_query(row, values, columns)


def _with_query(row: Row, values: Mapping[str, object], columns: Columns) -> Row:
    """Add to a row its second text, and what belongs to it."""
    assert columns.query is not None
    query, answers = _text(values, columns.query, row.where), None
    if columns.answers is not None:
        answers = read_answers(values[columns.answers], row.where, columns.answers)
        for name in answers:
            _require_characters(name, columns.answers, row.where)
    return row._replace(query=query, answers=answers)


def _text(values: Mapping[str, object], column: str, where: str) -> str:
    text = values[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise DataError(
            f"{where}: given {text!r} ({type(text).__name__}) in column {column!r}, needed text"
        )
    _require_characters(text, column, where)
    return text


def _require_characters(text: str, column: str, where: str) -> None:
    if found := _SURROGATE.search(text):
        raise DataError(
            f"{where}: given {found[0]!r} in column {column!r}, half of a surrogate pair, "
            f"at character {found.start() + 1}, which is no character, needed text"
        )


def _label(value: object) -> str:
    """Write a label as text; an empty one where there is none."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a table with gaps elsewhere stores 1 as 1.0
    return str(value).strip()


def _drop(
    rows: Iterable[Row],
    dropped: LeftOut,
    classes: Sequence[str] | None,
    line_breaks: bool,
    sentences: str,
) -> Iterator[Row]:
    for row in rows:
        if not has_words(row.text, line_breaks=line_breaks, sentences=sentences):
            dropped["empty_text"] += 1
        elif classes is not None and row.label not in classes:
            reason = "other_label" if row.label else "no_label"
            if row.query is None:
                dropped[reason] += 1
            else:
                given = f"label {row.label!r}" if row.label else "no label"
                dropped.add(
                    reason,
                    f"{row.where}: given {given}, needed one of {counted(len(classes), 'class')}",
                )
        elif row.query is not None and not has_words(
            row.query, line_breaks=line_breaks, sentences=sentences
        ):
            dropped.add("empty_query", f"{row.where}: given a query without words, needed some")
        elif row.answers is not None and row.label and row.label not in row.answers:
            dropped.add(
                "answer_not_allowed",
                f"{row.where}: given label {row.label!r}, needed one of the "
                f"{counted(len(row.answers), 'answer')} that the row allows",
            )
        else:
            yield row


def _example(row: Row, numbers: Mapping[str, int], *, labelled: bool = True) -> Example:
    known = known_answers(row.answers, numbers)
    if not labelled:
        return Example(row.id, row.text, NO_LABEL, row.query, known, row.spans)
    if row.label not in numbers:
        raise LabelError(
            f"{row.where}: given label {row.label!r}, needed one of the training rows' classes, "
            f"{', '.join(map(repr, numbers))}"
        )
    return Example(row.id, row.text, numbers[row.label], row.query, known, row.spans)


def _sort_labels(labels: Iterable[str]) -> list[str]:
    """Sort by value where all labels are numbers, else as text."""
    labels = sorted(labels)
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return labels
    if any(map(math.isnan, values)):  # has no place among numbers
        return labels
    return [label for _, label in sorted(zip(values, labels, strict=True))]
