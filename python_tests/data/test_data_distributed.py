"""The corpora of the paper as they are distributed: a made-up file of each format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fastattnerase.data import READERS, DataConfig, DataError, load_corpus
from fastattnerase.data.files import stream_json
from fastattnerase.extras import MissingPackageError

YAHOO = (
    '"5","why doesn\'t an optical mouse work?","or even \\n on ""some"" surfaces?","Because."\n'
    '"10","title only","",""\n'
    '"2","what is trans fat","I heard, it is bad","Fat\\nthat is \\""bad\\""."\n'
)
AMAZON = '"3","more like funk","Gave this to my dad."\n"5","Inspiring","I hope, a lot."\n'
YELP = '"5","dr. goldberg offers ""everything""\\n\\nyes."\n"1","never again"\n'


def read(reader: str, path: Path, *columns: str) -> list[dict[str, object]]:
    return [dict(row) for row in READERS[reader](path, columns or ("text", "label"))]


def test_yahoo_csv_joins_title_question_and_answer(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(YAHOO)
    assert read("zhang_csv", path) == [
        {
            "text": 'why doesn\'t an optical mouse work? or even   on "some" surfaces? Because.',
            "label": "5",
        },
        {"text": "title only", "label": "10"},
        {"text": 'what is trans fat I heard, it is bad Fat that is "bad".', "label": "2"},
    ]


def test_amazon_and_yelp_csv(tmp_path: Path) -> None:
    amazon, yelp = tmp_path / "a.csv.gz", tmp_path / "y.csv"
    amazon.write_bytes(gzip.compress(AMAZON.encode()))
    yelp.write_text(YELP)
    assert read("zhang_csv", amazon) == [
        {"text": "more like funk Gave this to my dad.", "label": "3"},
        {"text": "Inspiring I hope, a lot.", "label": "5"},
    ]
    assert read("zhang_csv", yelp, "text") == [
        {"text": 'dr. goldberg offers "everything"  yes.'},
        {"text": "never again"},
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "given an empty file"),
        ('"1"\n"2"\n', "row 1: given no text"),
        ('"1","a"\n"2","b","c","d"\n', "cannot be parsed"),
        ('"1","a\n', "cannot be parsed"),
    ],
)
def test_bad_csv(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "train.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read("zhang_csv", path)


def question(number: int, category: str | None = "Sports", answer: str | None = "yes") -> str:
    parts = [f"<uri>{number}</uri><subject>s{number}?</subject>"]
    if number % 2:
        parts.append(f"<content>c{number} &lt;br /&gt; &amp;\x0b more</content>")
    if answer is not None:
        parts.append(f"<bestanswer>{answer}</bestanswer>")
    parts.append("<nbestanswers><answer_item>other</answer_item></nbestanswers>")
    if category is not None:
        parts.append(f"<maincat>{category.replace('&', '&amp;')}</maincat>")
    return f'<vespaadd><document type="wisdom">{"".join(parts)}</document></vespaadd>\n'


HEAD, TAIL = '<?xml version="1.0" encoding="UTF-8"?>\n<ystfeed>\n', "</ystfeed>\n"


def test_yahoo_xml_takes_subject_content_and_best_answer(tmp_path: Path) -> None:
    path = tmp_path / "small.xml"
    questions = [question(1), question(2, "Society & Culture"), question(4, None, None)]
    path.write_text(HEAD + "".join(questions) + TAIL)
    assert read("yahoo_l6", path) == [
        {"text": "s1? c1 <br /> &  more yes", "label": "Sports"},
        {"text": "s2? yes", "label": "Society & Culture"},
        {"text": "s4?", "label": None},
    ]


@pytest.mark.parametrize("own_documents", [False, True])
@pytest.mark.parametrize("given", ["", "FullOct2007.xml.part1.gz"])
def test_each_part_of_yahoo_xml_is_read_once(
    tmp_path: Path, own_documents: bool, given: str
) -> None:
    # The published builder read part 1 twice and never part 2.
    texts = [question(n) for n in range(40)]
    if own_documents:
        parts = [HEAD + "".join(texts[:20]) + TAIL, HEAD + "".join(texts[20:]) + TAIL]
    else:
        whole = HEAD + "".join(texts) + TAIL
        parts = [whole[: len(whole) // 2 + 7], whole[len(whole) // 2 + 7 :]]  # within a question
    for number, part in enumerate(parts, start=1):
        path = tmp_path / f"FullOct2007.xml.part{number}.gz"
        path.write_bytes(gzip.compress(part.encode()))
    (tmp_path / "README.txt").write_text("terms of use")
    subjects = [str(row["text"]).split("?")[0] for row in read("yahoo_l6", tmp_path / given)]
    assert subjects == [f"s{n}" for n in range(40)]


def test_yahoo_xml_categories_outside_the_ten_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "small.xml"
    categories = ["Sports", "Health", "Asia Pacific", None, "Health", "Sports"]
    questions = [question(n, category) for n, category in enumerate(categories)]
    path.write_text(HEAD + "".join(questions) + TAIL)
    config = DataConfig(
        path=str(path), reader="yahoo_l6", classes=("Health", "Sports"), fractions=(1, 0, 0)
    )
    corpus = load_corpus(config)
    assert [(e.id, e.label) for e in corpus.train] == [(0, 1), (1, 0), (4, 0), (5, 1)]
    assert corpus.dropped == {"other_label": 1, "no_label": 1}


@pytest.mark.parametrize(
    ("files", "given", "message"),
    [
        ({}, "", "given none, needed XML files of one name"),
        ({"a.xml": "", "b.xml": ""}, "", "given a.xml, b.xml"),
        ({"a.xml.part1": "", "a.xml.part3": ""}, "", "needed parts 1, 2, ... of one file"),
        ({"a.xml.part1": "", "a.xml.part1.gz": ""}, "a.xml.part1", "each once"),
        ({"a.xml": "<ystfeed><document>"}, "missing.xml", "no such file"),
        ({"a.xml": "<ystfeed><document></ystfeed>"}, "a.xml", "is not the XML of Yahoo L6"),
    ],
)
def test_bad_yahoo_xml(tmp_path: Path, files: dict[str, str], given: str, message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read("yahoo_l6", tmp_path / given)


REVIEWS = [
    {"rating": "10", "title": "Great [x]", "movie": "tt1", "review": "I, [loved] {it}.", "user": 1},
    {"rating": None, "title": "", "movie": "tt1", "review": "No stars.", "user": 2},
    {"rating": 3, "title": "Meh", "movie": "tt2", "review": 'So \u2603 "so".', "user": 3},
]


@pytest.mark.parametrize("form", ["array", "indented", "lines"])
def test_imdb_json(tmp_path: Path, form: str) -> None:
    path = tmp_path / "data.json"
    if form == "lines":
        path.write_text("\n".join(json.dumps(review) for review in REVIEWS) + "\n")
    else:
        path.write_text(json.dumps(REVIEWS, indent=2 if form == "indented" else None))
    assert read("jmars", path, "label", "text", "movie") == [
        {"label": "10", "text": "I, [loved] {it}.", "movie": "tt1"},
        {"label": None, "text": "No stars.", "movie": "tt1"},
        {"label": 3, "text": 'So ☃ "so".', "movie": "tt2"},
    ]
    config = DataConfig(
        path=str(path), reader="jmars", classes=("3", "10"), draw="independent", fractions=(1, 0, 0)
    )
    corpus = load_corpus(config)
    assert [(e.id, e.label) for e in corpus.train] == [(0, 1), (2, 0)]
    assert corpus.dropped == {"no_label": 1}


def test_json_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    values = [{"n": n, "text": "x" * 700_000} for n in range(4)]
    path.write_text(json.dumps(values))
    assert list(stream_json(path)) == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"review": "a", "rating": 1}, {"review": ', "after 1 object: given what is not JSON"),
        ('[{"review": "a", "rating": 1}, 5]', "after 1 object: given a JSON int"),
        ('{"review": "a", "rating": 1} {"a":' + "[" * 100_000, "after 1 object, is JSON that"),
        (
            '[{"review": "a", "rating": 1' + "0" * 5000 + "}]",
            "after 0 objects, is JSON that",
        ),
        ('[{"review": "a"}]', "review 1 has no column 'rating'"),
    ],
)
def test_bad_json(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read("jmars", path)


def test_yelp_json_skips_what_is_no_review(tmp_path: Path) -> None:
    path = tmp_path / "yelp_academic_dataset_review.json"
    values = [
        {"type": "user", "name": "A"},
        {"type": "review", "text": "fine\n\nyes", "stars": 4},
        {"review_id": "x", "text": "bad", "stars": 1.0},
    ]
    path.write_text("\n".join(json.dumps(value) for value in values))
    assert read("yelp_json", path) == [
        {"text": "fine\n\nyes", "label": 4},
        {"text": "bad", "label": 1.0},
    ]
    config = DataConfig(path=str(path), reader="yelp_json", fractions=(1, 0, 0))
    assert load_corpus(config).classes == ["1", "4"]


class TestHub:
    """The Hugging Face reader, on a folder: nothing is fetched."""

    def test_splits_and_names_of_classes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Labels:
            names = ("neg", "pos")

        class Rows(list):  # type: ignore[type-arg]
            features = {"label": Labels(), "text": None}  # noqa: RUF012

        class Library:
            @staticmethod
            def load_dataset(name: str, configuration: str | None, streaming: bool) -> object:
                assert (name, configuration, streaming) == ("owner/name", "small", True)
                return {
                    "train": Rows([{"text": "a", "label": 1}, {"text": "b", "label": 0}]),
                    "unsupervised": Rows([{"text": "u", "label": -1}]),
                    "validation": Rows([{"text": "c", "label": 1}]),
                    "test": Rows([{"text": "d", "label": 0}]),
                }

        monkeypatch.setitem(__import__("sys").modules, "datasets", Library)
        config = DataConfig(path="owner/name:small", reader="hub", split_column="split")
        corpus = load_corpus(config)
        assert corpus.classes == ["neg", "pos"]
        texts = [[(e.text, e.label) for e in s] for s in (corpus.train, corpus.dev, corpus.test)]
        assert texts == [[("a", 1), ("b", 0)], [("c", 1)], [("d", 0)]]

    def test_without_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "datasets", None)
        with pytest.raises(MissingPackageError, match=r"pip install 'fastattnerase\[hub\]'"):
            read("hub", Path("owner/name"))
