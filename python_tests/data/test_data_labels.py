"""Labels that may not be what was meant are told, with how to change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastattnerase.data import Corpus, DataConfig, Example, load_corpus, odd_labels

CONFIG = DataConfig(label_column="mood")


def corpus(classes: list[str], labels: list[int]) -> Corpus:
    return Corpus([Example(i, "a film", label) for i, label in enumerate(labels)], [], [], classes)


@pytest.mark.parametrize("name", ["nan", "NaN", "None", "NULL", "N/A", "<NA>"])
def test_a_word_for_a_missing_value(name: str) -> None:
    assert odd_labels(corpus(["good", name, "bad"], [0, 1, 1, 2]), CONFIG) == [
        f"the label {name!r} in column 'mood' is a class of its own, with 2 of 4 training rows; if "
        "these have no label, leave them out by naming the others: --classes good,bad"
    ]


def test_whole_numbers_with_a_decimal_point() -> None:
    [told] = odd_labels(corpus(["0.0", "1.0"], [0, 1]), CONFIG)
    assert told.startswith("the labels 0.0, 1.0 in column 'mood' are whole numbers with a decimal")
    assert told.endswith("table['mood'] = table['mood'].astype('Int64')")
    missing, numbers = odd_labels(corpus(["0.0", "1.0", "nan"], [0, 1, 2]), CONFIG)
    assert missing.endswith("--classes 0.0,1.0")
    assert numbers == told


def test_labels_that_differ_in_their_writing_alone() -> None:
    told = odd_labels(corpus(["1", "1.0", "2", "No", "YES", "yes"], [0, 1]), CONFIG)
    assert [notice.partition(" in column")[0] for notice in told] == [
        "the labels '1', '1.0'",
        "the labels 'YES', 'yes'",
    ]
    assert told[0].endswith(
        "are classes of their own and differ in their writing alone; if they mean the same, write "
        "them alike in the file"
    )


def test_nearly_as_many_classes_as_rows() -> None:
    classes = [f"user {i}" for i in range(20)]
    [told] = odd_labels(corpus(classes, [i // 2 for i in range(40)]), CONFIG)
    assert told == (
        "column 'mood' has 20 different labels in 40 training rows; if another column has the "
        "labels, name it as --label-column"
    )
    assert odd_labels(corpus(classes, [i // 3 for i in range(60)]), CONFIG) == []


@pytest.mark.parametrize(
    "classes", [["0", "1"], ["0.5", "1.0"], ["no", "yes"], ["nano", "nones"], ["1.", "2."]]
)
def test_usual_labels_are_not_told_of(classes: list[str]) -> None:
    assert odd_labels(corpus(classes, [0, 1]), CONFIG) == []


def test_a_quotation_mark_that_is_not_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,mood\n" + '"an unclosed film,yes\na bad film,no\n' * 10)
    config = DataConfig(path=str(path), label_column="mood", classes=("no", "yes"))
    [told] = odd_labels(load_corpus(config), config)
    assert told == (
        "5 of 8 training texts have lines that end with a separator and a label, the first in row "
        '1: if these are rows of their own, a quotation mark (") before them is not closed'
    )
    texts = ["no\nand yes\nno", "a,yes"]
    rows = [Example(i, text, i) for i, text in enumerate(texts)]
    assert odd_labels(Corpus(rows, [], [], ["no", "yes"]), config) == []
