"""Corpora: splits, classes, dropped rows, and the messages for bad ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastattnerase.data import (
    DataConfig,
    DataError,
    Example,
    demo_corpus,
    load_corpus,
    prepare_stored,
)
from fastattnerase.data.corpus import find_classes, load_examples


def write_csv(path: Path, rows: list[tuple[str, ...]], header: str = "text,label") -> str:
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    return str(path)


def many(*counts: int) -> list[tuple[str, str]]:
    """Rows `counts[c]` times of each class `c`, interleaved."""
    rows = [(f"w{c} n{i}", f"{c}") for c, count in enumerate(counts) for i in range(count)]
    return sorted(rows, key=lambda row: (row[0].split()[1], row[1]))


def test_drawn_splits_are_stratified_exact_and_repeatable(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", many(30, 57, 13))
    corpus = load_corpus(DataConfig(path=path, fractions=(0.7, 0.2, 0.1), seed=3))
    assert [len(s) for s in (corpus.train, corpus.dev, corpus.test)] == [70, 20, 10]
    # 20 % of 30, 57, 13 is 6, 11.4, 2.6; the one left over goes to the largest remainder.
    assert Counter(e.label for e in corpus.dev) == {0: 6, 1: 11, 2: 3}
    # 10 % is 3, 5.7, 1.3.
    assert Counter(e.label for e in corpus.test) == {0: 3, 1: 6, 2: 1}
    ids = [e.id for e in corpus.train + corpus.dev + corpus.test]
    assert sorted(ids) == list(range(100))
    assert load_corpus(DataConfig(path=path, fractions=(0.7, 0.2, 0.1), seed=3)) == corpus
    other = load_corpus(DataConfig(path=path, fractions=(0.7, 0.2, 0.1), seed=4))
    assert {e.id for e in other.test} != {e.id for e in corpus.test}


def test_the_draw_is_the_same_everywhere(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [(f"t{i}", f"{i % 2}") for i in range(20)])
    corpus = load_corpus(DataConfig(path=path, seed=7))
    assert [e.id for e in corpus.dev] == [3, 4]
    assert [e.id for e in corpus.test] == [5, 14]


def test_ids_count_rows_and_texts_keep_their_labels(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [("zero", "n"), ("", "n"), ("two", "y"), ("3", "n")])
    corpus = load_corpus(DataConfig(path=path, fractions=(1.0, 0.0, 0.0)))
    assert corpus.train == [Example(0, "zero", 0), Example(2, "two", 1), Example(3, "3", 0)]
    assert corpus.dev == corpus.test == []
    assert corpus.classes == ["n", "y"]


def test_every_class_stays_in_train(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", many(8, 1, 1))
    corpus = load_corpus(DataConfig(path=path, fractions=(0.4, 0.3, 0.3)))
    assert {e.label for e in corpus.train} == {0, 1, 2}


def test_empty_texts_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    texts = ["good", "", "   ", "\t\n ", None, "<br /> <BR>", "-", "bad"]
    rows = [json.dumps({"text": t, "label": i % 2}) for i, t in enumerate(texts)]
    path.write_text("\n".join(rows))
    corpus = load_corpus(DataConfig(path=str(path), fractions=(1, 0, 0)))
    assert corpus.dropped == {"empty_text": 5}
    assert [e.text for e in corpus.train] == ["good", "-", "bad"]
    kept = load_corpus(DataConfig(path=str(path), fractions=(1, 0, 0), line_breaks=False))
    assert kept.dropped == {"empty_text": 4}
    words = load_corpus(DataConfig(path=str(path), fractions=(1, 0, 0), sentences="spaces"))
    assert words.dropped == {"empty_text": 4}  # whose words are what white space separates
    examples, dropped = load_examples(path, ["0", "1"])
    assert [e.text for e in examples] == ["good", "-", "bad"]
    assert dropped == {"empty_text": 5}


def test_split_column_with_dev_drawn_from_train(tmp_path: Path) -> None:
    rows = [(f"t{i}", "ab"[i % 2], "Train" if i < 80 else "test") for i in range(100)]
    path = write_csv(tmp_path / "a.csv", rows, "body,stars,part")
    config = DataConfig(
        path=path,
        text_column="body",
        label_column="stars",
        split_column="part",
        fractions=(0.75, 0.25, 0.0),
    )
    corpus = load_corpus(config)
    assert [len(s) for s in (corpus.train, corpus.dev, corpus.test)] == [60, 20, 20]
    assert [e.id for e in corpus.test] == list(range(80, 100))
    assert Counter(e.label for e in corpus.dev) == {0: 10, 1: 10}


def test_separate_files_have_distinct_ids(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", [("a", "1"), ("b", "2"), ("c", "10")])
    dev = write_csv(tmp_path / "dev.csv", [("d", "10")])
    test = write_csv(tmp_path / "test.csv", [("", "1"), ("e", "2")])
    corpus = load_corpus(DataConfig(train=train, dev=dev, test=test))
    assert corpus.classes == ["1", "2", "10"]  # by value
    assert corpus.dev == [Example(3, "d", 2)]
    assert corpus.test == [Example(5, "e", 1)]
    assert corpus.dropped == {"empty_text": 1}


def test_labels_of_numbers_are_written_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.0, 2.0]}), path)
    corpus = load_corpus(DataConfig(path=str(path), fractions=(1, 0, 0)))
    assert corpus.classes == ["1", "2"]


def test_classes_that_no_row_has(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [("a", "no"), ("b", "yes"), ("c", "no"), ("d", "yes")])
    message = (
        r"a\.csv: given no training row with the label maybe in column 'label', needed some of "
        r"each of the classes yes, maybe$"
    )
    with pytest.raises(DataError, match=message):
        load_corpus(DataConfig(path=path, classes=("yes", "maybe")))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "1"), ("b", "1")], r"given only rows with the label '1' in column 'label'"),
        ([], "no rows to train on"),
        ([("<br />", "1")], r"no rows to train on \(rows left out: 1 empty text\)"),
        ([("a", "1"), ("b", "")], r"a\.csv, row 2: no label in column 'label'"),
    ],
)
def test_unusable_data(tmp_path: Path, rows: list[tuple[str, ...]], message: str) -> None:
    path = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(DataError, match=message):
        load_corpus(DataConfig(path=path, fractions=(1, 0, 0)))


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("rows", [[], [("", "0"), ("<br>", "1")]])
def test_a_named_file_without_rows_is_not_drawn_from_train(
    tmp_path: Path, split: str, rows: list[tuple[str, ...]]
) -> None:
    train = write_csv(tmp_path / "train.csv", many(5, 5))
    other = write_csv(tmp_path / f"{split}.csv", rows)
    config = DataConfig(train=train, **{split: other})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=rf"{split}\.csv: no rows for {split}"):
        load_corpus(config)
    with pytest.raises(DataError, match=rf"{split}\.csv: no rows for {split}"):
        prepare_stored(config, tmp_path / "stored")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["nan", "1", "10", "2"], ["1", "10", "2", "nan"]),  # NaN has no place among numbers
        (["-inf", "10", "9", "1e1"], ["-inf", "9", "10", "1e1"]),
        (["b", "10", "9"], ["10", "9", "b"]),
    ],
)
def test_classes_are_in_the_same_order_everywhere(labels: list[str], classes: list[str]) -> None:
    assert find_classes(labels, DataConfig()) == classes


@pytest.mark.parametrize("split", ["dev", "test"])
def test_unknown_label(tmp_path: Path, split: str) -> None:
    train = write_csv(tmp_path / "train.csv", many(5, 5))
    other = write_csv(tmp_path / f"{split}.csv", [("a", "0"), ("b", "7")])
    with pytest.raises(
        DataError, match=rf"{split}\.csv, row 2: given label '7', needed .* classes, '0', '1'"
    ):
        load_corpus(DataConfig(train=train, **{split: other}))  # type: ignore[arg-type]


def test_bad_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "label": 1}\n{"text": "b \\ud800", "label": 1}\n')
    with pytest.raises(DataError, match=r"row 2: given .* in column 'text', .* at character 3"):
        load_corpus(DataConfig(path=str(path)))
    path.write_text('{"text": "a", "label": "\\udfff"}\n')
    with pytest.raises(DataError, match=r"row 1: given .* in column 'label', .* at character 1"):
        load_corpus(DataConfig(path=str(path)))
    with pytest.raises(DataError, match=r"row 1: given .* in column 'label'"):
        load_examples(path, ["1"])
    path.write_text('{"text": 5, "label": 1, "split": "train"}\n')
    with pytest.raises(DataError, match=r"row 1: given 5 \(int\) in column 'text', needed text"):
        load_corpus(DataConfig(path=str(path)))
    path.write_text('{"text": "a", "label": 1, "split": "later"}\n')
    with pytest.raises(
        DataError, match=r"row 1: given 'later' in column 'split', needed one of train"
    ):
        load_corpus(DataConfig(path=str(path), split_column="split"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fractions": (0.5, 0.6, 0.1)}, "fractions: .* add to 1.2"),
        ({"fractions": (0.0, 0.5, 0.5)}, "that of train positive"),
        ({"fractions": (0.5, 0.5)}, "three shares"),
        ({"fractions": (float("nan"), 0.5, 0.5)}, "fractions: given .*three shares"),
        ({"seed": 2**63}, "seed: given 9223372036854775808, needed 0 to"),
        ({"seed": -1}, "seed: given -1"),
        ({"min_count": 0}, "min_count: given 0"),
        ({"max_tokens": 0}, "max_tokens: given 0"),
        ({"path": "a.csv", "test": "b.csv"}, "path: given with test, needed alone"),
        (
            {"train": "a.csv", "split_column": "x"},
            "split_column: given with separate files, needed with one file",
        ),
        ({"language": "de", "sentences": "spaces"}, "language: given 'de' with sentences 'spaces'"),
    ],
)
def test_bad_configurations(values: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataConfig(**values)  # type: ignore[arg-type]


def test_no_file_at_all() -> None:
    with pytest.raises(DataError, match="path: given no file"):
        load_corpus(DataConfig())


def test_configuration_survives_json() -> None:
    config = DataConfig(path="a.csv", fractions=(0.5, 0.25, 0.25), max_tokens=9, vectors="v.txt")
    assert DataConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(DataError, match="unknown 'colour'"):
        DataConfig.from_dict({"colour": 1})
    # Of another language alone it is told, so that data of older versions go on.
    assert "language" not in config.to_dict()
    assert DataConfig.from_dict(DataConfig(language="de").to_dict()).language == "de"


def test_examples_for_a_trained_model(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [("x", "b"), ("", "a"), ("y", "a")], "t,l")
    examples, dropped = load_examples(path, ["a", "b"], text_column="t", label_column="l")
    assert examples == [Example(0, "x", 1), Example(2, "y", 0)]
    assert dropped == {"empty_text": 1}
    unlabelled, _ = load_examples(path, ["a", "b"], text_column="t", label_column=None)
    assert unlabelled == [Example(0, "x", -1), Example(2, "y", -1)]
    with pytest.raises(DataError, match="row 1: given label 'b'"):
        load_examples(path, ["a"], text_column="t", label_column="l")
    empty = write_csv(tmp_path / "b.csv", [("", "b")])
    with pytest.raises(DataError, match=r"no texts \(rows left out: 1 empty text\)"):
        load_examples(empty, ["a", "b"])


def test_demo_corpus() -> None:
    corpus = demo_corpus()
    assert corpus.classes == ["negative", "positive"]
    assert corpus.dropped == {}
    for split, size in ((corpus.train, 2400), (corpus.dev, 300), (corpus.test, 300)):
        assert len(split) == size
        assert sum(e.label for e in split) == size // 2
