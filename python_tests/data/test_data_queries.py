"""A second text beside the first: read, cut, encoded, stored; nothing changes without one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastattnerase.data import (
    DataConfig,
    DataError,
    PreparedCorpus,
    StoredDocuments,
    collate,
    demo_config,
    demo_corpus,
    load_corpus,
    load_examples,
    prepare,
    prepare_stored,
)

ROWS: list[dict[str, object]] = [
    {
        "story": "Mary went to the garden . John went home .",
        "question": "Where is Mary",
        "answer": "garden",
        "split": "train",
        "allowed": ["garden", "office"],
        "facts": [[0, 5]],
    },
    {
        "story": "John took the milk . John went to the office .",
        "question": "Where is the milk",
        "answer": "office",
        "split": "train",
        "allowed": "office; kitchen",
        "facts": "0:4;5:10",
    },
    {
        "story": "Mary went home .",
        "question": "Who is home",
        "answer": "garden",
        "split": "dev",
        "allowed": ["garden"],
        "facts": None,
    },
    {
        "story": "Mary went to the office .",
        "question": "Where is Mary",
        "answer": "office",
        "split": "test",
        "allowed": ["office"],
        "facts": "",
    },
]


def write(path: Path, rows: list[dict[str, object]]) -> DataConfig:
    path.write_text("\n".join(map(json.dumps, rows)))
    return DataConfig(
        path=str(path),
        text_column="story",
        query_column="question",
        label_column="answer",
        split_column="split",
        answers_column="allowed",
        spans_column="facts",
        sentences="spaces",
        min_count=1,
    )


def test_a_row_with_all_of_it(tmp_path: Path) -> None:
    config = replace(write(tmp_path / "a.jsonl", ROWS), max_tokens=7)
    corpus = load_corpus(config)
    assert corpus.classes == ["garden", "office"]
    first, second = corpus.train
    assert first.query == "Where is Mary"
    assert first.answers == (0, 1)
    assert second.answers == (1,)  # a kitchen is no class
    assert second.spans == ((0, 4), (5, 10))
    prepared = prepare(corpus, config)
    # Words in the order of texts and queries: where is after the first story.
    assert prepared.vocabulary.words[:11] == [
        *("mary", "went", "to", "the", "garden", ".", "john", "home", "where", "is", "took"),
    ]
    one, two = prepared.train
    assert one.query_tokens == ["Where", "is", "Mary"]
    assert one.query_ids is not None
    assert one.query_ids.tolist() == [9, 10, 1]
    assert one.answers is not None
    assert one.answers.tolist() == [0, 1]
    assert two.spans is not None
    assert two.spans.tolist() == [[0, 4], [5, 7]]
    assert len(two) == 7
    assert prepared.dev[0].spans is None
    assert (prepared.train.truncated, prepared.train.spans_cut) == (2, 1)
    batch = collate(list(prepared.train))
    assert batch.query_ids is not None
    assert batch.query_lengths is not None
    assert batch.query_ids.tolist()[:3] == [9, 10, 1]
    assert batch.query_lengths.tolist() == [3, 4]
    assert batch.answers is not None
    assert batch.answer_counts is not None
    assert (batch.answers.tolist(), batch.answer_counts.tolist()) == ([0, 1, 1], [2, 1])


@pytest.mark.parametrize("shard_documents", [1, 100])
def test_disk_and_memory_agree(tmp_path: Path, shard_documents: int) -> None:
    rows = [*ROWS, {**ROWS[3], "answer": "hall", "allowed": "hall"}]
    config = replace(write(tmp_path / "a.jsonl", rows), max_tokens=7)
    memory = prepare(load_corpus(config), config)
    disk = prepare_stored(config, tmp_path / "out", shard_documents=shard_documents)
    again = prepare_stored(config, tmp_path / "out")
    for stored in (disk, again):
        require_same(stored, memory)
    assert memory.dropped == {"unseen_answer": 1}


def require_same(disk: PreparedCorpus, memory: PreparedCorpus) -> None:
    assert disk.vocabulary.words == memory.vocabulary.words
    assert disk.dropped == memory.dropped
    for split in ("train", "dev", "test"):
        found, wanted = getattr(disk, split), getattr(memory, split)
        assert isinstance(found.documents, StoredDocuments)
        assert found.has_queries
        assert found.digest() == wanted.digest()
        assert found.spans_cut == wanted.spans_cut
        for a, b in zip(found, wanted, strict=True):
            assert a.query_tokens == b.query_tokens
            for name in ("query_ids", "answers", "spans"):
                left, right = getattr(a, name), getattr(b, name)
                assert (left is None) == (right is None)
                assert left is None or left.tolist() == right.tolist()
                assert left is None or left.dtype == right.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "reason", "line"),
    [
        ({"question": " "}, "empty_query", "given a query without words, needed some"),
        ({"question": None}, "empty_query", "given a query without words, needed some"),
        (
            {"allowed": "garden;hall"},
            "answer_not_allowed",
            "given label 'office', needed one of the 2 answers that the row allows",
        ),
        (
            {"answer": "hall", "allowed": "hall"},
            "unseen_answer",
            "given label 'hall', needed one that a training row has",
        ),
    ],
)
def test_rows_that_are_left_out_and_counted(
    tmp_path: Path, changes: dict[str, object], reason: str, line: str
) -> None:
    path = tmp_path / "a.jsonl"
    config = write(path, [*ROWS, {**ROWS[3], **changes}])
    corpus = load_corpus(config)
    assert corpus.dropped == {reason: 1}
    assert corpus.first_dropped == {reason: f"{path}, row 5: {line}"}
    assert len(corpus.test) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": 3}, r"row 5: given 3 \(int\) in column 'question', needed text"),
        ({"facts": "5:2"}, r"row 5: given '5:2' in column 'facts', needed spans of the 6 words"),
        ({"facts": "0:7"}, r"row 5: given '0:7' in column 'facts', needed spans of the 6 words"),
        ({"facts": 3}, r"row 5: given 3 in column 'facts', needed spans of the 6 words"),
        ({"allowed": 3}, r"row 5: given 3 in column 'allowed', needed labels: a list of texts"),
    ],
)
def test_bad_cells(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_corpus(write(tmp_path / "a.jsonl", [*ROWS, {**ROWS[3], **changes}]))


def test_a_row_without_the_column_is_named(tmp_path: Path) -> None:
    row = {name: value for name, value in ROWS[3].items() if name != "question"}
    with pytest.raises(DataError, match="line 5 has no column 'question'"):
        load_corpus(write(tmp_path / "a.jsonl", [*ROWS, row]))


def test_configurations_that_do_not_fit() -> None:
    with pytest.raises(DataError, match="answers_column: given 'a' without query_column"):
        DataConfig(answers_column="a")
    with pytest.raises(DataError, match="spans_column: given 's' with sentences 'rules', needed"):
        DataConfig(query_column="q", spans_column="s")


def test_examples_for_a_trained_model(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [ROWS[0], {**ROWS[0], "answer": "hall"}, {**ROWS[0], "allowed": "hall"}]
    write(path, rows)
    columns = {"text_column": "story", "query_column": "question", "answers_column": "allowed"}
    found, dropped = load_examples(
        path, ["office", "garden"], label_column="answer", sentences="spaces", **columns
    )
    assert [(e.label, e.answers) for e in found] == [(1, (0, 1))]
    assert dropped == {"answer_not_allowed": 2}
    found, dropped = load_examples(
        path, ["office", "garden"], label_column=None, sentences="spaces", **columns
    )
    assert [(e.label, e.answers) for e in found] == [(-1, (0, 1)), (-1, (0, 1))]
    assert dropped == {"unseen_answer": 1}


def test_classes_that_no_training_row_has_stay_possible_answers(tmp_path: Path) -> None:
    config = replace(write(tmp_path / "a.jsonl", ROWS), classes=("office", "garden", "kitchen"))
    corpus = load_corpus(config)
    assert corpus.classes == ["office", "garden", "kitchen"]
    assert corpus.train[1].answers == (0, 2)


def test_batches_of_documents_with_and_without_a_query(tmp_path: Path) -> None:
    config = write(tmp_path / "a.jsonl", ROWS)
    one, two = prepare(load_corpus(config), config).train
    bare = replace(two, query_ids=None, query_tokens=None)
    with pytest.raises(DataError, match="document 1: given no query, needed one"):
        collate([one, bare])


def test_data_of_one_text_is_what_it_was() -> None:
    # Digests of before there were queries.
    config = demo_config()
    assert not {"query_column", "answers_column", "spans_column"} & set(config.to_dict())
    prepared = prepare(demo_corpus(), config)
    assert prepared.train.digest() == "aac62fe387b4a96a7eb7aa84a30fc104"
    assert prepared.test.digest() == "34cfa010ac222286f4b6713dbc34336c"
    assert collate(list(prepared.test[:2]))[6:] == (None, None, None, None)


def test_files_of_one_text_are_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    texts = (f"A good film number {i}. Bad <br /> end!,{'ab'[i % 2]}\n" for i in range(40))
    path.write_text("text,label\n" + "".join(texts))
    stored = prepare_stored(DataConfig(path=str(path), max_tokens=6), tmp_path / "out")
    digest = hashlib.sha256()
    for file in sorted((tmp_path / "out").rglob("*.npy")):
        digest.update(file.name.encode() + file.read_bytes())
    assert digest.hexdigest() == "e9b9114ff9fd255e95baa6c137903aeb0f63f4422ca4dea1263e48086fd08e78"
    description = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert description["counts"] == {"train": [32, 0], "dev": [4, 0], "test": [4, 0]}
    assert not stored.train.has_queries
