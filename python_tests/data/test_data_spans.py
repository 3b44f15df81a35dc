"""Marked words: read, aligned, cut, stored, with a query and without; every text is invented."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastattnerase.data import (
    DataConfig,
    DataError,
    Dataset,
    load_corpus,
    load_examples,
    prepare,
    prepare_stored,
    tokenise,
)
from fastattnerase.data.examples import Example
from fastattnerase.data.presets import read_prepared, write_preset
from fastattnerase.data.spans import align

ROWS: list[dict[str, object]] = [
    {"text": "A fine film <br /> indeed .", "label": "1", "split": "train", "why": [[1, 3]]},
    {"text": "A dull one .", "label": "0", "split": "train", "why": "1:2;3:4"},
    {"text": "It is fine", "label": "1", "split": "dev", "why": None},
    {"text": "It is dull", "label": "0", "split": "test", "why": ""},
]
# The same marks as characters of the texts.
CHARACTERS = [[[2, 11]], [[2, 6], [11, 12]], None, []]


def write(path: Path, rows: list[dict[str, object]]) -> DataConfig:
    path.write_text("\n".join(map(json.dumps, rows)))
    return DataConfig(
        path=str(path), split_column="split", spans_column="why", sentences="spaces", min_count=1
    )


def spans_of(dataset: Dataset) -> list[list[list[int]] | None]:
    return [None if document.spans is None else document.spans.tolist() for document in dataset]


def test_words_without_a_query(tmp_path: Path) -> None:
    config = replace(write(tmp_path / "a.jsonl", ROWS), max_tokens=3)
    memory = prepare(load_corpus(config), config)
    assert spans_of(memory.train) == [[[1, 3]], [[1, 2]]]
    assert spans_of(memory.dev) == [None]
    assert (memory.train.truncated, memory.train.spans_cut, memory.train.spans_unfit) == (2, 1, 0)
    disk = prepare_stored(config, tmp_path / "out")
    assert not disk.train.has_queries
    assert spans_of(disk.train) == spans_of(memory.train)
    assert (disk.train.truncated, disk.train.spans_cut) == (2, 1)
    # A model's documents are the same, marked or not.
    plain = replace(config, spans_column=None)
    assert prepare(load_corpus(plain), plain).train.digest() == memory.train.digest()
    assert disk.train.digest() == memory.train.digest()
    assert "spans_unit" not in config.to_dict()


def test_characters_become_words_of_any_tokeniser(tmp_path: Path) -> None:
    rows = [row | {"why": why} for row, why in zip(ROWS, CHARACTERS, strict=True)]
    rows[0]["text"] = "A fine film<br />indeed."
    config = replace(
        write(tmp_path / "a.jsonl", rows), sentences="rules", spans_unit="characters", max_tokens=3
    )
    memory = prepare(load_corpus(config), config)
    assert memory.train[0].tokens == ["A", "fine", "film"]
    assert spans_of(memory.train) == [[[1, 3]], [[1, 2]]]
    disk = prepare_stored(config, tmp_path / "out")
    assert spans_of(disk.train) == spans_of(memory.train)


def test_what_does_not_fit_the_words_is_counted_and_named(tmp_path: Path) -> None:
    rows = [row | {"why": [[0, 2], [3, 6]]} for row in ROWS]
    config = replace(write(tmp_path / "a.jsonl", rows), spans_unit="characters")
    for prepared in (
        prepare(load_corpus(config), config),
        prepare_stored(config, tmp_path / "out", shard_documents=1),
    ):
        assert spans_of(prepared.train) == [[[0, 1], [1, 2]], [[0, 1], [1, 2]]]
        assert prepared.train.spans_unfit == 2
        assert prepared.train.first_unfit == "document 0: characters 3:6, 'ine': inside of words"
    assert align("a b", ["a", "b"], [(1, 2), (0, 1)]) == (
        ((0, 1),),
        ("characters 1:2, ' ': no word",),
    )
    assert align("ab", ["ab"], [(1, 1)]) == ((), ("characters 1:1, '': no word",))
    with pytest.raises(DataError, match="given 'b', needed the word 'c'"):
        align("b", ["c"], [(0, 1)])


def test_spans_without_a_word_are_counted(tmp_path: Path) -> None:
    config = write(tmp_path / "a.jsonl", [ROWS[0] | {"why": [[2, 2], [1, 3]]}, *ROWS[1:]])
    for prepared in (prepare(load_corpus(config), config), prepare_stored(config, tmp_path / "o")):
        assert spans_of(prepared.train) == [[[1, 3]], [[1, 2], [3, 4]]]
        assert prepared.train.spans_unfit == 1
        assert prepared.train.first_unfit == "document 0: words 2:2: no word"


def test_breaks_keep_the_places_of_characters() -> None:
    [text] = tokenise(
        [Example(0, "br<br/>br is it", 1, spans=((0, 2), (7, 9)))], spans_unit="characters"
    )
    assert text.sentences == [["br", "br", "is", "it"]]
    assert text.spans == ((0, 1), (1, 2))


@pytest.mark.parametrize(
    ("why", "unit", "needed"),
    [
        ([[1, 8]], "words", "needed spans of the 7 words of the text"),
        ([[1, 28]], "characters", "needed spans of the 27 characters of the text"),
        ([[2, 1]], "words", "needed spans"),
        ("all", "words", "needed spans"),
    ],
)
def test_spans_outside_of_the_text(tmp_path: Path, why: object, unit: str, needed: str) -> None:
    rows = [ROWS[0] | {"why": why}, *ROWS[1:]]
    config = replace(write(tmp_path / "a.jsonl", rows), spans_unit=unit)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"row 1: given .* in column 'why', {needed}"):
        load_corpus(config)


def test_new_texts_for_a_trained_model(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ROWS)
    examples, _ = load_examples(
        tmp_path / "a.jsonl", ["0", "1"], sentences="spaces", spans_column="why"
    )
    assert [example.spans for example in examples] == [((1, 3),), ((1, 2), (3, 4)), (), ()]


def test_words_need_spaces() -> None:
    with pytest.raises(DataError, match=r"needed 'spaces'.* or spans_unit 'characters'"):
        DataConfig(path="a.csv", spans_column="why")


# --- ERASER's folder -----------------------------------------------------------------------------


def annotation(name: str, label: str, *evidences: tuple[str, int, int, str]) -> dict[str, object]:
    keys = ("docid", "start_token", "end_token", "text")
    return {
        "annotation_id": name,
        "classification": label,
        "docids": None,
        "query": "Is it good?",
        "query_type": None,
        "evidences": [[dict(zip(keys, one, strict=True))] for one in evidences],
    }


def eraser(root: Path) -> Path:
    """Write a folder of three documents of our own."""
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "one.txt").write_text("what a film .\nfine acting throughout .\n")
    (root / "docs" / "two.txt").write_text("a bore from start to end .\n")
    (root / "docs" / "three.txt").write_text("not one fine scene in it .\n")
    one = annotation("one.txt", "POS", ("one.txt", 4, 6, "fine acting"), ("one.txt", 0, 1, "what"))
    two = annotation("two.txt", "NEG", ("two.txt", 0, 2, "a bore"))
    three = annotation("three.txt", "NEG", ("three.txt", 0, 4, "not one fine scene"))
    lines = {"train": [one, two], "val": [three], "test": [one | {"evidences": []}]}
    for split, found in lines.items():
        (root / f"{split}.jsonl").write_text("\n".join(map(json.dumps, found)))
    return root


def test_erasers_folder(tmp_path: Path) -> None:
    config = DataConfig(
        path=str(eraser(tmp_path / "movies")),
        reader="eraser",
        split_column="split",
        spans_column="spans",
        sentences="spaces",
    )
    corpus = load_corpus(config)
    assert corpus.classes == ["NEG", "POS"]
    assert [example.spans for example in corpus.train] == [((0, 1), (4, 6)), ((0, 2),)]
    assert corpus.dev[0].text.split() == ["not", "one", "fine", "scene", "in", "it", "."]
    assert corpus.test[0].spans == ()
    asked = load_corpus(replace(config, query_column="query"))
    assert asked.train[0].query == "Is it good?"


def test_erasers_documents_one_after_another(tmp_path: Path) -> None:
    root = eraser(tmp_path)
    both = annotation("pair", "NEG", ("two.txt", 1, 2, "bore")) | {"docids": ["one.txt", "two.txt"]}
    (root / "test.jsonl").write_text(json.dumps(both))
    config = DataConfig(
        path=str(root),
        reader="eraser",
        split_column="split",
        spans_column="spans",
        sentences="spaces",
    )
    assert load_corpus(config).test[0].spans == ((9, 10),)  # eight words come before


@pytest.mark.parametrize(
    ("evidence", "needed"),
    [
        (("two.txt", 6, 8, "end ."), "given evidence at the words 6:8 of two.txt, needed some of"),
        (
            ("two.txt", 0, 2, "a hit"),
            "given the evidence 'a hit' at .*, needed its words",
        ),
        (("four.txt", 0, 1, "a"), "four.txt: no such file"),
    ],
)
def test_bad_evidence(tmp_path: Path, evidence: tuple[str, int, int, str], needed: str) -> None:
    root = eraser(tmp_path)
    (root / "test.jsonl").write_text(json.dumps(annotation("two.txt", "NEG", evidence)))
    config = DataConfig(path=str(root), reader="eraser", split_column="split")
    with pytest.raises(DataError, match=needed):
        load_corpus(config)


def test_bad_folders(tmp_path: Path) -> None:
    config = DataConfig(path=str(tmp_path), reader="eraser", split_column="split")
    with pytest.raises(DataError, match="given a folder without docs or annotations"):
        load_corpus(config)
    root = eraser(tmp_path)
    (root / "test.jsonl").write_text('{"annotation_id": "one.txt", "classification": "POS"}')
    with pytest.raises(DataError, match="annotation 1: given an annotation without 'evidences'"):
        load_corpus(config)


@pytest.mark.parametrize("layout", ["movies", "movie_rationales"])
def test_the_preset_of_movie_reviews(tmp_path: Path, layout: str) -> None:
    root = tmp_path / "data"
    if layout == "movies":
        eraser(root / "movies")
    else:
        (root / layout).mkdir(parents=True)
        rows = [
            {"text": "what a film .\nfine acting", "label": "POS", "split": "train",
             "rationales": [[0, 1], [4, 6]]},
            {"text": "a bore", "label": "NEG", "split": "train", "rationales": [[0, 2]]},
            {"text": "not one", "label": "NEG", "split": "val", "rationales": [[0, 1]]},
            {"text": "what a film", "label": "POS", "split": "test", "rationales": []},
        ]  # fmt: skip
        lines = "\n".join(map(json.dumps, rows))
        (root / layout / "movies.jsonl").write_text(lines)
    about = write_preset("movies", root, tmp_path / "out", max_tokens=5)
    assert about["documents"]["train"] == {"NEG": 1, "POS": 1}
    prepared, config = read_prepared(tmp_path / "out")
    assert config.spans_column == "spans"
    assert spans_of(prepared.train) == [[[0, 1], [4, 5]], [[0, 2]]]
    assert spans_of(prepared.test) == [None]
