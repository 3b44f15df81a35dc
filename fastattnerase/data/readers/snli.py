"""SNLI as distributed, JSON lines or the CSV of e-SNLI: a premise, a hypothesis and their class."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text, split_suffix
from fastattnerase.data.readers.delimited import read_csv
from fastattnerase.data.readers.jsonl import read_jsonl
from fastattnerase.data.readers.registry import register_reader, require_columns

CLASSES = ("contradiction", "entailment", "neutral")

_COLUMNS = ("text", "query", "label", "split")
_ORIGINAL = ("sentence1", "sentence2", "gold_label")
_ESNLI = ("Sentence1", "Sentence2", "gold_label")
_NUMBERED = ("premise", "hypothesis", "label")  # e-SNLI with a number for each class
_NUMBERS = {"0": "neutral", "1": "entailment", "2": "contradiction"}
_FILES = {
    "train": ("snli_1.0_train.jsonl", "esnli_train_[0-9].csv", "esnli_train.csv"),
    "dev": ("snli_1.0_dev.jsonl", "esnli_dev.csv"),
    "test": ("snli_1.0_test.jsonl", "esnli_test.csv"),
}


@register_reader("snli")
def read_snli(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream pairs of sentences, their classes by name.

    Columns: `text`, the premise; `query`, the hypothesis; `label`, `contradiction`, `entailment` or
    `neutral`, empty for the gold label `-`, on which annotators did not agree (with
    `DataConfig.classes` such rows are left out and counted); `split`.

    Args:
        path: a file or a folder, files plain or `.xz`, `.gz`, `.zst`. The original's
            `snli_1.0_train.jsonl` and the like; or the CSV of e-SNLI, `esnli_dev.csv` and the like,
            with names of classes in `gold_label`, or their numbers (0 neutral, 1 entailment,
            2 contradiction) in `label` beside `unique_key`. Of a folder without a training file dev
            is the training split; a file is one, too.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: no such file, a folder with none, a file of another form, a label that is no
            class.

    Source: Bowman et al., EMNLP 2015; Camburu et al., NeurIPS 2018.
    """
    require_columns(path, columns, _COLUMNS)
    for split, file in _files(path):
        for number, row in enumerate(_pairs(file), start=1):
            label = row["label"]
            if label and label not in CLASSES:
                raise DataError(
                    f"{file}, row {number}: given label {label!r}, needed one of "
                    f"{', '.join(CLASSES)}, or - for none"
                )
            values = {**row, "split": split}
            yield {column: values[column] for column in columns}


def _files(path: Path) -> list[tuple[str, Path]]:
    """Find the files of each split: those of the original release, or else of e-SNLI."""
    if not path.is_dir():
        return [("train", path)]
    found: list[tuple[str, Path]] = []
    for split, names in _FILES.items():
        some = (sorted(path.glob(f"{name}{end}")) for name in names for end in ("", ".*"))
        found += [(split, file) for file in next(filter(None, some), [])]
    if not found:
        raise DataError(f"{path}: given none of SNLI's files, needed {_FILES['train'][0]} or such")
    if found[0][0] == "dev":
        found = [("train" if split == "dev" else split, file) for split, file in found]
    return found


def _pairs(file: Path) -> Iterator[dict[str, str]]:
    """Stream text, query and label of a file, whatever the columns are called in it."""
    if split_suffix(file)[0] == ".csv":
        with open_text(file) as opened:
            header = next(csv.reader(opened), [])
        names = _NUMBERED if "unique_key" in header else _ESNLI
        rows = read_csv(file, names)
    else:
        names, rows = _ORIGINAL, read_jsonl(file, _ORIGINAL)
    for row in rows:
        text, query, label = ("" if row[name] is None else str(row[name]) for name in names)
        if names is _NUMBERED:
            label = _NUMBERS.get(label, label)
        yield {"text": text, "query": query, "label": "" if label == "-" else label}
