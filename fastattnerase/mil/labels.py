"""Labels and splits of slides, from CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastattnerase.mil.errors import BagError
from fastattnerase.plurals import counted

SLIDE = "slide_id"
_SPLITS = ("train", "val", "test")  # the columns of CLAM's files of splits


@dataclass(frozen=True)
class SlideLabels:
    """Which slides there are, and of which class.

    Attributes:
        labels: From each slide to the number of its class, in the order of the file.
        classes: Names of the classes as the file has them, by number.
        numbered: Whether the file has numbers of classes and no names: then `classes` are those up
            to the largest, and a model may have more.
        source: The file, for errors.
    """

    labels: Mapping[str, int]
    classes: tuple[str, ...]
    numbered: bool
    source: str

    def check_classes(self, count: int, model: str) -> None:
        """Refuse labels of another number of classes than a model has, in one line.

        Args:
            count: classes of the model.
            model: what to call it.

        Raises:
            BagError: naming the file of labels.
        """
        given = len(self.classes)
        if given == count or (self.numbered and given < count):
            return
        names = ", ".join(self.classes[:8]) + (", …" if given > 8 else "")
        raise BagError(
            f"{self.source}: given {counted(given, 'class')} ({names}), needed {count} as {model} "
            "has"
        )


def read_labels(
    path: Path | str,
    *,
    label_column: str = "label",
    split: str | None = None,
    splits: Path | str | None = None,
    classes: Sequence[str] = (),
) -> SlideLabels:
    """Read which slides there are and their labels, from a CSV with a column `slide_id`.

    Args:
        path: the file; other columns, such as CLAM's `case_id`, are left.
        label_column: the column of labels.
        split: the slides of which split are taken, such as "test"; None: all.
        splits: a file of splits: CLAM's, with the columns `train`, `val` and `test` that list
            slides, or one with the columns `slide_id` and `split`; None: the column `split` of
            `path`.
        classes: names of the classes as the labels have them, in the order of the model's outputs;
            by default labels that are all numbers 0, 1, … stand for themselves, others are sorted.

    Returns:
        A `SlideLabels`.

    Raises:
        BagError: naming the file, what was given and what is needed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fastattnerase import mil
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "labels.csv"
        ...     _ = path.write_text("slide_id,label\\na,tumour\\nb,normal\\n")
        ...     found = mil.read_labels(path)
        >>> dict(found.labels), found.classes
        ({'a': 1, 'b': 0}, ('normal', 'tumour'))
    """
    path = Path(path)
    needed = [SLIDE, label_column] + ([] if split is None or splits is not None else ["split"])
    wanted = None if split is None or splits is None else _members(Path(splits), split)
    texts: dict[str, str] = {}
    for line, row in _rows(path, needed):
        slide, label = row[SLIDE].strip(), row[label_column].strip()
        if not slide or not label:
            what = "slide_id" if not slide else "label"
            raise BagError(f"{path}: given no {what} in line {line}, needed one")
        if split is not None and not (
            row["split"].strip() == split if wanted is None else slide in wanted
        ):
            continue
        if texts.setdefault(slide, label) != label:
            raise BagError(
                f"{path}: given {slide} with {texts[slide]} and, in line {line}, with {label}, "
                "needed one label a slide"
            )
    if not texts:
        where = "" if split is None else f" of the split {split}"
        raise BagError(f"{path}: given no slide{where}, needed one or more")
    found = set(texts.values())
    numbered = not classes and all(text.isdecimal() for text in found)
    if classes:
        names = tuple(classes)
        if unknown := sorted(found - set(names)):
            raise BagError(
                f"{path}: given the label {unknown[0]}, needed one of {', '.join(names)}"
            )
    elif numbered:
        names = tuple(map(str, range(max(map(int, found)) + 1)))
        texts = {slide: str(int(label)) for slide, label in texts.items()}
    else:
        names = tuple(sorted(found))
    number = {name: c for c, name in enumerate(names)}
    labels = {slide: number[label] for slide, label in texts.items()}
    return SlideLabels(labels, names, numbered, str(path))


def _members(path: Path, split: str) -> set[str]:
    """Read the slides of a split from a file of splits."""
    rows = [row for _, row in _rows(path, [])]
    columns = set(rows[0]) if rows else set()
    if {SLIDE, "split"} <= columns:
        return {row[SLIDE].strip() for row in rows if row["split"].strip() == split}
    if split not in columns:
        raise BagError(
            f"{path}: given columns {', '.join(sorted(filter(None, columns)))}, needed {split} "
            f"(of {', '.join(_SPLITS)}), or {SLIDE} and split"
        )
    return {row[split].strip() for row in rows} - {""}


def _rows(path: Path, needed: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Read the rows of a CSV with their lines."""
    if not path.is_file():
        raise BagError(f"{path}: given no file, needed a CSV with {SLIDE}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restval="")
            if missing := [name for name in needed if name not in (reader.fieldnames or [])]:
                given = ", ".join(reader.fieldnames or []) or "nothing"
                raise BagError(f"{path}: given columns {given}, needed {' and '.join(missing)}")
            for row in reader:
                yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error):
        raise BagError(f"{path}: given a file that is no CSV in UTF-8, needed one") from None
