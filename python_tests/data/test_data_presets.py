"""Presets: readers, cleaning, filters, vocabularies; the published counts on the real files."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path

import pytest

from fastattnerase.data import DataError, load_corpus
from fastattnerase.data.cleaning import clean_post, clean_review, clean_sentiment, clean_text
from fastattnerase.data.presets import DATA_PRESETS, read_prepared, write_preset
from fastattnerase.data.readers import READERS

SHARED = Path(os.environ.get("FASTATTNERASE_SHARED", Path(__file__).parents[3] / "shared"))
DATA = SHARED / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no folder {DATA}")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".xz":
        with lzma.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        path.write_text(text, encoding="utf-8")


def tree(label: int, words: str) -> str:
    return f"({label} " + " ".join(f"(2 {word})" for word in words.split()) + ")\n"


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    """Two classes in every split; sentences of 4 to 9 words."""
    good, bad = "a b c d e f", "a b c x y z"
    train = [
        tree(4, f"{good} g"),
        tree(0, f"{bad} q 5"),
        tree(2, "it is so so to me"),
        tree(3, "too short to stay on"),
        tree(1, f"{bad} the longest is out"),
        tree(3, good),
    ]
    write(tmp_path / "root" / "sst" / "train.txt", "".join(train))
    for split in ("dev", "test"):
        lines = [tree(3, f"{good} b"), tree(1, f"{bad} b"), tree(3, f"{bad} b c d")]
        write(tmp_path / "root" / "sst" / f"{split}.txt.xz", "".join(lines))
    return tmp_path / "root"


def test_cleaning() -> None:
    assert clean_text("Don't  pay 5USD!") == ["do", "n't", "pay", "qqq", "!"]
    assert clean_sentiment("-LRB- Isn't it, 2 -RRB- ?") == ["isn", "t", "it", "2"]
    assert clean_post("well-known (in '93).") == [
        "well",
        "-",
        "known",
        "(",
        "in",
        "'",
        "qqq",
        ")",
        ".",
    ]
    assert clean_review("Bad<br /><br />It's a 10!") == ["bad", "it's", "a", "10"]


def test_trees(treebank: Path) -> None:
    columns = ("text", "label", "binary", "split")
    rows = list(READERS["sst_trees"](treebank / "sst", columns))
    assert [row["label"] for row in rows[:6]] == ["4", "0", "2", "3", "1", "3"]
    assert [row["binary"] for row in rows[:3]] == ["positive", "negative", ""]
    assert rows[3]["text"] == "too short to stay on"
    assert [row["split"] for row in rows] == ["train"] * 6 + ["dev"] * 3 + ["test"] * 3
    with open(treebank / "sst" / "train.txt", "a", encoding="utf-8") as file:
        file.write("no tree\n")
    with pytest.raises(DataError, match=r"train\.txt, line 7: given no tree"):
        list(READERS["sst_trees"](treebank / "sst", columns))


def test_filters_and_vocabulary(treebank: Path, tmp_path: Path) -> None:
    about = write_preset("sst", treebank, tmp_path / "out")
    # More than 5 words and fewer than the longest of the split.
    assert about["documents"] == {
        "train": {"negative": 1, "positive": 2},
        "dev": {"negative": 1, "positive": 1},
        "test": {"negative": 1, "positive": 1},
    }
    assert about["filtered"] == {"train": 2, "dev": 1, "test": 1}
    assert about["dropped"] == {"no_label": 1}
    prepared, config = read_prepared(tmp_path / "out")
    # Of the kept training documents alone, in the order of their first occurrence.
    assert prepared.vocabulary.words == [*list("abcdefg"), "x", "y", "z", "q", "5"]
    assert [d.tokens for d in prepared.train] == [
        list("abcdefg"),
        [*"abcxyzq", "5"],
        list("abcdef"),
    ]
    assert [d.label for d in prepared.train] == [1, 0, 1]
    # The commands find the same documents by the configuration alone.
    again = load_corpus(config)
    assert [e.text for e in again.test] == [" ".join(d.tokens) for d in prepared.test]
    assert [e.id for e in again.test] == [d.id for d in prepared.test]


def test_rare_words_by_documents(tmp_path: Path) -> None:
    header = "sentences\tADR\n"
    rows = ["w w w a b c d\t1", "a b c d e f\t0", "v b c d e f\t0"]
    for split in ("train", "dev", "test"):
        write(tmp_path / "psytar" / f"{split}.tsv", header + "\n".join(rows) + "\n")
    write_preset("psytar", tmp_path, tmp_path / "out")
    prepared, _ = read_prepared(tmp_path / "out")
    # "w" occurs thrice, in one document.
    assert prepared.vocabulary.words == ["a", "b", "c", "d", "e", "f"]


def test_size_cuts(treebank: Path, tmp_path: Path) -> None:
    about = write_preset("sst", treebank, tmp_path / "cut", max_tokens=3, max_train=2, max_test=1)
    prepared, _ = read_prepared(tmp_path / "cut")
    sizes = [len(split) for split in (prepared.train, prepared.dev, prepared.test)]
    assert sizes == [2, 1, 1]
    assert {len(d) for split in (prepared.train, prepared.dev) for d in split} == {3}
    assert about == write_preset(
        "sst", tmp_path / "nowhere", tmp_path / "cut", max_tokens=3, max_train=2, max_test=1
    )
    with pytest.raises(DataError, match="choose another directory"):
        write_preset("sst", treebank, tmp_path / "cut")


def test_vectors(treebank: Path, tmp_path: Path) -> None:
    write_preset("sst", treebank, tmp_path / "out")
    write(tmp_path / "vectors.txt", "a 1.0 2.0\nx 3.0 4.0\n")
    prepared, config = read_prepared(tmp_path / "out", vectors=tmp_path / "vectors.txt")
    assert prepared.embeddings is not None
    table = dict(zip(["", *prepared.vocabulary.words], prepared.embeddings.tolist(), strict=False))
    assert (table["a"], table["x"], table["b"]) == ([1.0, 2.0], [3.0, 4.0], [0.0, 0.0])
    assert prepared.embeddings[prepared.vocabulary.unknown].tolist() == [0.0, 0.0]
    assert config.vectors == str(tmp_path / "vectors.txt")


def test_ag_news_takes_the_description(tmp_path: Path) -> None:
    path = tmp_path / "ag_news" / "test.csv.xz"
    lines = []
    for i in range(120):
        label = (1, 2, 3, 4)[i % 4]
        lines.append(f'"{label}","Title {i}","word ""{label}"" and\\more {"x " * (i // 4)}"\n')
    write(path, "".join(lines))
    rows = list(READERS["ag_news"](path, ("text", "label", "title")))
    assert rows[0] == {"text": 'word "1" and more ', "label": "World", "title": "Title 0"}
    about = write_preset("ag_news", tmp_path, tmp_path / "out")
    assert about["classes"] == ["World", "Business"]
    assert about["dropped"] == {"other_label": 60}
    path.unlink()
    write(path, '"1","only a title"\n')
    with pytest.raises(
        DataError,
        match="row 1: given 2 fields, needed a class from 1 to 4",
    ):
        list(READERS["ag_news"](path, ("text",)))


def test_imdb_holds_the_small_file_out(tmp_path: Path) -> None:
    write(tmp_path / "imdb" / "movie_review_5k.csv.xz", "id,label,text\n1_9,1,Good film!\n")
    write(
        tmp_path / "imdb" / "imdb_train25k.csv.xz",
        'label,text\n1,"good <br />film"\n1,Good  film\n0,A bad film\n',
    )
    rows = list(READERS["imdb_held_out"](tmp_path / "imdb", ("text", "split")))
    assert [(row["text"], row["split"]) for row in rows] == [
        ("Good film!", "test"),
        ("good <br />film", "train"),
        ("A bad film", "train"),
    ]


def test_errors(treebank: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data set: given 'sst9', needed one of sst, imdb"):
        write_preset("sst9", treebank, tmp_path / "out")
    with pytest.raises(DataError, match="no such file"):
        write_preset("imdb_5k", treebank, tmp_path / "out")
    with pytest.raises(DataError, match=r"holds no prepared data set: it has no about\.json"):
        read_prepared(tmp_path)
    for split in ("train", "dev", "test"):
        (treebank / "sst" / f"{split}.txt").write_text(tree(4, "a b") + tree(0, "c d"))
    with pytest.raises(DataError, match="SST has no train document of more than 5"):
        write_preset("sst", treebank, tmp_path / "out")
    write_preset_about = tmp_path / "bad" / "about.json"
    write(write_preset_about, json.dumps([1]))
    with pytest.raises(DataError, match="it holds no JSON object; delete"):
        read_prepared(tmp_path / "bad")


@needs_data
def test_the_published_counts_of_sst(tmp_path: Path) -> None:
    about = write_preset("sst", DATA, tmp_path)
    assert [list(about["documents"][split].values()) for split in ("train", "dev", "test")] == [
        [3034, 3321],
        [397, 424],
        [863, 862],
    ]


@needs_data
def test_newsgroups_keep_the_official_test_split(tmp_path: Path) -> None:
    about = write_preset("20news_sports", DATA, tmp_path)
    kept = {split: sum(counts.values()) for split, counts in about["documents"].items()}
    filtered = about["filtered"]
    assert about["dropped"] == {"empty_text": 4}
    assert kept["test"] + filtered["test"] == 794
    assert sum(kept.values()) + sum(filtered.values()) == 1993 - 4
    prepared, _ = read_prepared(tmp_path)
    assert all(6 < len(d) < 500 for d in prepared.train)


def test_every_preset_is_complete() -> None:
    for name, preset in DATA_PRESETS.items():
        assert preset.config(Path("root")).to_dict()["fractions"][0] > 0, name
