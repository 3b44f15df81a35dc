"""What is odd about the labels of a corpus: told, and left as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import Corpus
from fastattnerase.plurals import plural

_NOTHING = {"", "nan", "none", "null", "na", "n/a", "<na>", "nat", "#n/a"}
_WHOLE = re.compile(r"[+-]?\d+\.0+")
_MOST = 20  # with more labels than this, texts are not searched for them
_MANY = 10  # more classes than this are odd where they are few rows each
_FEW_ROWS = 3


def odd_labels(corpus: Corpus, config: DataConfig) -> list[str]:
    """Say which labels may not be what was meant, and how to change them.

    Args:
        corpus: what was read.
        config: how.

    Returns:
        A sentence for each oddity: a word for a missing value, such as `nan`, that is a class;
        whole numbers written as `0.0` and `1.0`; labels that differ in their writing alone; nearly
        as many classes as rows; texts in which other rows seem to be.

    Example:
        >>> from fastattnerase.data.examples import Example
        >>> rows = [Example(0, "good", 0), Example(1, "bad", 1)]
        >>> odd_labels(Corpus(rows, [], [], ["nan", "yes"]), DataConfig())[0][:44]
        "the label 'nan' in column 'label' is a class"
    """
    column, classes, rows = repr(config.label_column), corpus.classes, len(corpus.train)
    counts = Counter(example.label for example in corpus.train)
    kept = [name for name in classes if name.casefold() not in _NOTHING]
    told = [
        f"the label {name!r} in column {column} is a class of its own, with {counts[number]:,} of "
        f"{rows:,} {plural(rows, 'training row')}; if these have no label, leave them out by "
        f"naming the others: --classes {','.join(kept)}"
        for number, name in enumerate(classes)
        if name not in kept
    ]
    if kept and all(map(_WHOLE.fullmatch, kept)):
        told.append(
            f"the labels {', '.join(kept)} in column {column} are whole numbers with a decimal "
            "point, as pandas writes a column that has gaps; the classes are called so; for 0 and "
            f"1, write the file after table[{column}] = table[{column}].astype('Int64')"
        )
    alike: dict[str | float, list[str]] = {}
    for name in kept:
        alike.setdefault(_meaning(name), []).append(name)
    told += [
        f"the labels {', '.join(map(repr, names))} in column {column} are classes of their own and "
        "differ in their writing alone; if they mean the same, write them alike in the file"
        for names in alike.values()
        if len(names) > 1
    ]
    if len(classes) > _MANY and rows < _FEW_ROWS * len(classes):
        told.append(
            f"column {column} has {len(classes):,} different labels in {rows:,} training rows; if "
            "another column has the labels, name it as --label-column"
        )
    swallowed = [example for example in corpus.train if _has_rows(example.text, classes)]
    if swallowed:
        told.append(
            f"{len(swallowed):,} of {rows:,} training texts have lines that end with a separator "
            f"and a label, the first in row {swallowed[0].id + 1}: if these are rows of their own, "
            'a quotation mark (") before them is not closed'
        )
    return told


def _meaning(label: str) -> str | float:
    """What two labels that mean the same may have in common: a number, or the words."""
    try:
        return float(label)
    except ValueError:
        return label.casefold()


def _has_rows(text: str, classes: Sequence[str]) -> bool:
    """Whether a line of a text but the last ends as a row of a delimited file does."""
    if len(classes) > _MOST:
        return False
    ends = tuple(f"{mark}{name}" for mark in ",;\t|" for name in classes)
    return any(line.endswith(ends) for line in text.splitlines()[:-1])
