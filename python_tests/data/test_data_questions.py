"""Readers and presets of two texts: SNLI, bAbI, CNN; every sentence here is invented."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path

import pytest

from fastattnerase.data import READERS, DataConfig, DataError, load_corpus
from fastattnerase.data.presets import read_prepared, write_preset
from fastattnerase.data.readers.babi import answer_words
from fastattnerase.data.readers.cnn_cloze import entities

SHARED = Path(os.environ.get("FASTATTNERASE_SHARED", Path(__file__).parents[3] / "shared"))
DATA = SHARED / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no folder {DATA}")


def read(reader: str, path: Path, *columns: str) -> list[dict[str, object]]:
    return [dict(row) for row in READERS[reader](path, columns)]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- bAbI ----------------------------------------------------------------------------------------

STORIES = """\
1 Ann ran to the barn.
2 Bob slept in the attic.
3 Where is Ann? \tbarn\t1
4 Ann ran to the pond.
5 Where was Ann before the pond? \tbarn\t4 1
1 Bob ran to the pond.
2 Where is Bob?\tpond\t1
"""


def test_questions_have_their_story_so_far(tmp_path: Path) -> None:
    path = write(tmp_path / "qa1_places_train.txt", STORIES)
    rows = read("babi", path, "text", "query", "label", "spans")
    begin = "Ann ran to the barn . Bob slept in the attic"
    assert rows == [
        {"text": begin, "query": "Where is Ann", "label": "barn", "spans": [(0, 5)]},
        {
            "text": f"{begin} . Ann ran to the pond",
            "query": "Where was Ann before the pond",
            "label": "barn",
            "spans": [(12, 17), (0, 5)],
        },
        {
            "text": "Bob ran to the pond",
            "query": "Where is Bob",
            "label": "pond",
            "spans": [(0, 5)],
        },
    ]
    words = str(rows[1]["text"]).split()
    assert " ".join(words[12:17]) == "Ann ran to the pond"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1 A b.\n2 C d.\n1 A b.\n2 Who? \tA\t1\n", "line 1: given a story without a question"),
        ("1 A b.\n2 Who? \tA\t1\n1 A b.\n", "line 3: given a story without a question"),
        ("1 Who? \tA\t1\n", "line 1: given a question without a sentence of the story before it"),
        ("1 A b.\n2 Who? \t\t1\n", "line 2: given a question without an answer"),
        ("1 A b.\n2 Who?\n", "line 2: given a question alone, needed question, answer and numbers"),
        ("1 A b.\n2 Who? \tA\t3\n", "line 2: given the supporting sentence 3, needed numbers of"),
        ("1 A b.\n2 Who? \tA\t2\n", "line 2: given the supporting sentence 2, needed numbers of"),
        ("A b.\n", "line 1: given 'A b.', needed a number and a sentence"),
    ],
)
def test_bad_stories(tmp_path: Path, lines: str, message: str) -> None:
    path = write(tmp_path / "qa9.txt", lines)
    with pytest.raises(DataError, match=rf"qa9\.txt, {message}"):
        read("babi", path, "text", "label")


def test_every_word_may_be_the_answer(tmp_path: Path) -> None:
    story = STORIES * 7  # 21 questions
    write(tmp_path / "babi" / "qa1_places_train.txt", story)
    write(tmp_path / "babi" / "qa1_places_test.txt", STORIES + "3 Where is Cy? \tshed\t1\n")
    write(tmp_path / "babi" / "qa2_more_train.txt", "1 Zed sat.\n2 Where? \tsofa\t1\n")
    about = write_preset("babi_1", tmp_path, tmp_path / "out")
    words = ". Ann Bob Where Zed attic barn before in is pond ran sat slept sofa the to was"
    assert about["classes"] == words.split()
    assert about["classes"] == list(answer_words(sorted((tmp_path / "babi").glob("*train.txt"))))
    assert {split: sum(n.values()) for split, n in about["documents"].items()} == {
        "train": 17,  # but 15 % of 21, rounded up
        "dev": 4,
        "test": 3,
    }
    # An answer that no training text has is left out, counted and told.
    assert about["dropped"] == {"other_label": 1}
    assert about["first_dropped"] == {
        "other_label": f"{tmp_path}/babi/qa1_places_test.txt, row 4: given label 'shed', needed "
        "one of 18 classes"
    }
    prepared, config = read_prepared(tmp_path / "out")
    assert prepared.vocabulary.lower_case is False
    assert "Ann" in prepared.vocabulary
    assert "ann" not in prepared.vocabulary
    document = prepared.test[1]
    assert document.query_tokens == ["Where", "was", "Ann", "before", "the", "pond"]
    assert document.spans is not None
    assert document.spans.tolist() == [[12, 17], [0, 5]]
    assert document.answers is None
    assert prepared.classes[document.label] == "barn"
    assert load_corpus(config).test[1].query == "Where was Ann before the pond"


def test_spans_are_cut_with_their_story(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / "babi" / f"qa1_places_{split}.txt", STORIES * 7)
    write_preset("babi_1", tmp_path, tmp_path / "out", max_tokens=14)
    prepared, _ = read_prepared(tmp_path / "out")
    spans = prepared.test[1].spans
    assert spans is not None
    assert spans.tolist() == [[12, 14], [0, 5]]
    assert len(prepared.test[1]) == 14


# --- SNLI ----------------------------------------------------------------------------------------

PAIRS = [
    ("A dog runs on 2 hills.", "An animal moves.", "entailment"),
    ("A man cooks.", "A man sleeps.", "contradiction"),
    ("A girl reads.", "A girl reads a novel.", "neutral"),
    ("A boy waves.", "He greets.", "-"),
]


def snli_lines(times: int = 1) -> str:
    rows = [
        {"gold_label": label, "sentence1": first, "sentence2": second, "pairID": "1"}
        for first, second, label in PAIRS
    ]
    return "".join(json.dumps(row) + "\n" for row in rows * times)


def esnli(*, numbered: bool) -> str:
    numbers = {"neutral": 0, "entailment": 1, "contradiction": 2}
    if numbered:
        header = "unique_key,label,premise,hypothesis,explanation1\n"
        return header + "".join(
            f'k,{numbers[label]},"{a}","{b}",none\n' for a, b, label in PAIRS if label != "-"
        )
    header = "pairID,gold_label,Sentence1,Sentence2,Explanation_1\n"
    return header + "".join(
        f'k,{label},"{a}","{b}",none\n' for a, b, label in PAIRS if label != "-"
    )


def test_forms_of_snli_give_the_same_rows(tmp_path: Path) -> None:
    original = write(tmp_path / "a" / "snli_1.0_train.jsonl", snli_lines())
    columns = ("text", "query", "label")
    wanted = [dict(zip(columns, pair, strict=True)) for pair in PAIRS]
    wanted[3]["label"] = ""
    assert read("snli", original, *columns) == wanted
    for numbered in (True, False):
        path = write(tmp_path / f"{numbered}" / "esnli_dev.csv", esnli(numbered=numbered))
        assert read("snli", path, *columns) == wanted[:3]


def test_a_sentence_that_is_null_is_empty(tmp_path: Path) -> None:
    line = '{"gold_label": "neutral", "sentence1": "A", "sentence2": null}\n'
    path = write(tmp_path / "snli_1.0_dev.jsonl", line)
    assert read("snli", path, "text", "query") == [{"text": "A", "query": ""}]


def test_splits_of_snli(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        write(tmp_path / f"snli_1.0_{split}.jsonl", snli_lines())
    assert [row["split"] for row in read("snli", tmp_path, "split")] == [
        *["train"] * 4,
        *["dev"] * 4,
        *["test"] * 4,
    ]
    for split in ("dev", "test"):
        write(tmp_path / "e" / f"esnli_{split}.csv", esnli(numbered=True))
    splits = [row["split"] for row in read("snli", tmp_path / "e", "split")]
    assert splits == [*["train"] * 3, *["test"] * 3]
    for part in (1, 2):
        write(tmp_path / "e" / f"esnli_train_{part}.csv", esnli(numbered=False))
    splits = [row["split"] for row in read("snli", tmp_path / "e", "split")]
    assert splits == [*["train"] * 6, *["dev"] * 3, *["test"] * 3]


def test_snli_as_published(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        write(tmp_path / "snli" / f"snli_1.0_{split}.jsonl", snli_lines(4))
    about = write_preset("snli", tmp_path, tmp_path / "out")
    assert about["classes"] == ["contradiction", "entailment", "neutral"]
    assert about["documents"]["train"] == dict.fromkeys(about["classes"], 4)
    assert about["dropped"] == {"no_label": 12}
    assert about["first_dropped"]["no_label"] == (
        f"{tmp_path}/snli/snli_1.0_train.jsonl, row 4: given no label, needed one of 3 classes"
    )
    prepared, _ = read_prepared(tmp_path / "out")
    assert prepared.train[0].tokens == ["a", "dog", "runs", "on", "qqq", "hills", "."]
    assert prepared.train[0].query_tokens == ["an", "animal", "moves", "."]


def test_a_text_is_one_document_of_the_vocabulary(tmp_path: Path) -> None:
    """A word has to be in three texts, and a premise and its hypothesis are two."""
    rows = [
        ("red red red house", "blue door", "entailment"),
        ("blue house", "blue house", "neutral"),
        ("green house", "door", "contradiction"),
    ]
    lines = "".join(
        json.dumps({"sentence1": a, "sentence2": b, "gold_label": c}) + "\n" for a, b, c in rows
    )
    for split in ("train", "dev", "test"):
        write(tmp_path / "snli" / f"snli_1.0_{split}.jsonl", lines)
    write_preset("snli", tmp_path, tmp_path / "out")
    prepared, _ = read_prepared(tmp_path / "out")
    assert prepared.vocabulary.words == ["house", "blue"]


def test_bad_snli(tmp_path: Path) -> None:
    path = write(tmp_path / "snli_1.0_dev.jsonl", snli_lines().replace("neutral", "perhaps"))
    with pytest.raises(DataError, match=r"dev\.jsonl, row 3: given label 'perhaps', needed one of"):
        read("snli", path, "label")
    with pytest.raises(DataError, match=r"given none of SNLI's files, needed snli_1\.0_train"):
        read("snli", write(tmp_path / "x" / "y", "").parent, "label")
    path = write(tmp_path / "esnli_dev.csv", "a,b\n1,2\n")
    with pytest.raises(DataError, match=r"esnli_dev\.csv has no column 'Sentence1'"):
        read("snli", path, "label")


def test_an_empty_question_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "snli_1.0_train.jsonl"
    write(path, snli_lines(2) + '{"gold_label": "neutral", "sentence1": "A", "sentence2": ""}\n')
    corpus = load_corpus(
        DataConfig(
            path=str(path),
            reader="snli",
            query_column="query",
            classes=("contradiction", "entailment", "neutral"),
        )
    )
    assert corpus.dropped == {"no_label": 2, "empty_query": 1}
    assert corpus.first_dropped["empty_query"] == (
        f"{path}, row 9: given a query without words, needed some"
    )


# --- CNN -----------------------------------------------------------------------------------------


def record(question: str, answer: str, article: str) -> str:
    return f"{question}\n{answer}\n{article}\n@entity1:Some Name\n\n"


ARTICLE = "@entity10 met @entity2 in @entity0 , said @entity2"


def test_cloze_records(tmp_path: Path) -> None:
    path = write(
        tmp_path / "train.txt",
        record("@placeholder met a friend", "@entity10", ARTICLE)
        + record("who is @placeholder", "@entity3", "it was @entity3"),
    )
    columns = ("text", "query", "label", "answers")
    wanted = [
        {
            "text": ARTICLE,
            "query": "@placeholder met a friend",
            "label": "@entity10",
            "answers": ["@entity0", "@entity2", "@entity10"],
        },
        {
            "text": "it was @entity3",
            "query": "who is @placeholder",
            "label": "@entity3",
            "answers": ["@entity3"],
        },
    ]
    assert read("cnn_cloze", path, *columns) == wanted
    assert entities(path) == ("@entity0", "@entity2", "@entity3", "@entity10")
    for number, row in enumerate(wanted):
        parts = ("http://example.org", row["text"], row["query"], row["label"], "@entity0:A\n@e1:B")
        write(tmp_path / "folder" / f"{number}.question", "\n\n".join(map(str, parts)))
    assert read("cnn_cloze", tmp_path / "folder", *columns) == wanted


def test_cloze_questions_as_published(tmp_path: Path) -> None:
    common = "the man left " * 2
    train = [
        record("@placeholder left", f"@entity{i % 2}", f"@entity0 saw @entity1 {common}")
        for i in range(8)
    ]
    train += [record("@placeholder left", "@entity7", common)]  # the mask excludes the answer
    train += [record("@placeholder left", "@entity0", "rare @entity0 @entity5")]
    test = [
        record("@placeholder left", "@entity1", "the @entity1 and @entity0 and @entity8"),
        record("@placeholder left", "@entity8", "the @entity8"),  # in no training article
    ]
    for name, records in (("train", train), ("dev", train[:2]), ("test", test)):
        write(tmp_path / "cnn" / f"{name}.txt", "".join(records))
    about = write_preset("cnn", tmp_path, tmp_path / "out")
    assert about["classes"] == ["@entity0", "@entity1", "@entity5"]
    assert about["dropped"] == {"other_label": 2}
    assert about["first_dropped"]["other_label"] == (
        f"{tmp_path}/cnn/train.txt, row 9: given label '@entity7', needed one of 3 classes"
    )
    prepared, _ = read_prepared(tmp_path / "out")
    # Words of eight texts, and every entity.
    words = "@entity0 saw @entity1 the man left @placeholder @entity5"
    assert prepared.vocabulary.words == words.split()
    [document] = prepared.test
    assert document.answers is not None
    assert document.answers.tolist() == [0, 1]


def test_an_answer_that_its_article_lacks(tmp_path: Path) -> None:
    path = write(
        tmp_path / "train.txt",
        record("@placeholder", "@entity1", "@entity1 @entity2") * 9
        + record("@placeholder", "@entity2", "@entity1 @entity2") * 9
        + record("@placeholder", "@entity2", "@entity1"),
    )
    corpus = load_corpus(
        DataConfig(
            train=str(path),
            reader="cnn_cloze",
            query_column="query",
            answers_column="answers",
            sentences="spaces",
        )
    )
    assert corpus.dropped == {"answer_not_allowed": 1}
    assert "train.txt, row 19: given label '@entity2'" in corpus.first_dropped["answer_not_allowed"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a question\n@entity1\n\n", "line 1: given a record of 2 lines, needed question, answer"),
        (
            record("q", "@entity1", "@entity1") + record("q", "Paris", "Paris"),
            "line 6: given the answer 'Paris', needed an entity",
        ),
    ],
)
def test_bad_records(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "train.txt", content)
    with pytest.raises(DataError, match=rf"train\.txt, {message}"):
        read("cnn_cloze", path, "text")


def test_bad_questions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="given a folder without questions, needed files"):
        read("cnn_cloze", tmp_path, "text")
    write(tmp_path / "a.question", "http://example.org\n\nan article\n")
    with pytest.raises(DataError, match=r"a\.question: given 2 parts, needed address, article"):
        read("cnn_cloze", tmp_path, "text")


# --- the data at hand ----------------------------------------------------------------------------


@needs_data
def test_babi_at_hand(tmp_path: Path) -> None:
    """Words of the published vocabularies, 24, 38 and 39, but the four that stand for no word."""
    longest = (65, 551, 1347)
    for task, words, most in zip((1, 2, 3), (20, 34, 35), longest, strict=True):
        about = write_preset(f"babi_{task}", DATA, tmp_path / f"{task}")
        assert len(about["classes"]) == 36
        assert {split: sum(n.values()) for split, n in about["documents"].items()} == {
            "train": 850,
            "dev": 150,
            "test": 1000,
        }
        assert about["words"] == words
        prepared, _ = read_prepared(tmp_path / f"{task}")
        lengths = [len(d) for s in (prepared.train, prepared.dev, prepared.test) for d in s]
        assert max(lengths) == most
        spans = [d.spans for d in prepared.test]
        assert {0 if own is None else len(own) for own in spans} == {task}
        if task == 1:  # its fact ends with the place that is asked for
            for document in prepared.test:
                assert document.spans is not None
                end = document.spans[0, 1]
                assert document.tokens[end - 1] == prepared.classes[document.label]


@needs_data
def test_esnli_at_hand() -> None:
    counts = {"contradiction": 3278, "entailment": 3329, "neutral": 3235}
    rows = read("snli", DATA / "snli" / "esnli_dev.csv.xz", "text", "label")
    assert {name: sum(row["label"] == name for row in rows) for name in counts} == counts
    with lzma.open(DATA / "snli" / "esnli_dev.csv.xz", "rt", encoding="utf-8", newline="") as file:
        assert sum(1 for _ in file) >= len(rows) + 1
