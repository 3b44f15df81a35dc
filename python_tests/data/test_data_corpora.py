"""Whole corpora as distributed, and what their users alone have; every text here is invented."""

from __future__ import annotations

import os
import pickle
import zlib
from pathlib import Path

import pytest
from sklearn.datasets import fetch_20newsgroups, load_files
from sklearn.model_selection import train_test_split

from fastattnerase.data import READERS, DataError, load_corpus
from fastattnerase.data.cleaning import clean_note
from fastattnerase.data.presets import DATA_PRESETS, read_prepared, write_preset
from fastattnerase.data.published.draws import draw
from fastattnerase.data.published.record import Draw

SHARED = Path(os.environ.get("FASTATTNERASE_SHARED", Path(__file__).parents[3] / "shared"))
DATA = SHARED / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no folder {DATA}")


def read(reader: str, path: Path, *columns: str) -> list[dict[str, object]]:
    return [dict(row) for row in READERS[reader](path, columns)]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


# --- draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stratified", [False, True])
def test_draws_are_those_of_scikit_learn(stratified: bool) -> None:
    labels = [0, 1, 1] * 20
    how = Draw(16377, 0.15, stratified=stratified)
    _, wanted = train_test_split(
        range(60), test_size=0.15, random_state=16377, stratify=labels if stratified else None
    )
    drawn = draw(labels, how)
    assert drawn == sorted(wanted)
    assert len(drawn) == 9
    if stratified:
        assert sum(labels[i] for i in drawn) == 6


def test_too_few_rows_to_draw() -> None:
    with pytest.raises(DataError, match="rows: given 1, needed enough to draw 15%"):
        draw([0], Draw(1, 0.15))


# --- IMDB ----------------------------------------------------------------------------------------


def review(i: int, words: int) -> str:
    return " ".join(["film", f"w{i}", *["seen"] * (words - 2)])


def imdb(root: Path) -> None:
    """Ten reviews a class and half of 7 words, one of 6 words and one of 400."""
    for split in ("train", "test"):
        for name in ("neg", "pos"):
            folder = root / "imdb" / "aclImdb" / split / name
            for i in range(12):
                words = {10: 6, 11: 400}.get(i, 7)
                write(folder / f"{i}_{10 if name == 'pos' else 1}.txt", review(i, words))
    write(root / "imdb" / "aclImdb" / "train" / "unsup" / "0_0.txt", "not read")


def test_imdb_folder(tmp_path: Path) -> None:
    imdb(tmp_path)
    rows = read("imdb_folder", tmp_path / "imdb" / "aclImdb", "text", "label", "rating", "split")
    assert [row["split"] for row in rows] == ["train"] * 24 + ["test"] * 24
    assert [row["label"] for row in rows] == (["negative"] * 12 + ["positive"] * 12) * 2
    # By number: 2 before 10.
    assert [str(row["text"]).split()[1] for row in rows[:12]] == [f"w{i}" for i in range(12)]
    assert {row["rating"] for row in rows[12:24]} == {"10"}


def test_imdb_as_published(tmp_path: Path) -> None:
    imdb(tmp_path)
    about = write_preset("imdb_official", tmp_path, tmp_path / "out")
    _, dev = train_test_split(range(24), test_size=0.2, random_state=1378)
    kept = [i for i in range(24) if i % 12 < 10]
    _, test = train_test_split(range(20), test_size=0.2, random_state=1378)
    sizes = {split: sum(n.values()) for split, n in about["documents"].items()}
    assert sizes["dev"] == len(set(dev) & set(kept))
    assert sizes["train"] == 20 - sizes["dev"]
    assert sizes["test"] == 4
    assert about["filtered"]["test"] == 4
    prepared, _ = read_prepared(tmp_path / "out")
    assert [d.tokens[1] for d in prepared.test] == [f"w{i % 10}" for i in sorted(test)]
    # A word in ten training documents, those that are too short or too long among them.
    assert prepared.vocabulary.words == ["film", "seen"]


def test_bad_imdb_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train/neg: given no folder with files NUMBER_STARS"):
        read("imdb_folder", tmp_path, "text")
    write(tmp_path / "train" / "neg" / "first.txt", "bad")
    with pytest.raises(DataError, match=r"first\.txt: given this name, needed NUMBER_STARS"):
        read("imdb_folder", tmp_path, "text")


# --- 20 Newsgroups -------------------------------------------------------------------------------

GROUPS = ("rec.sport.baseball", "rec.sport.hockey", "sci.space")


def newsgroups(root: Path, posts: int) -> Path:
    for half in ("train", "test"):
        for group in GROUPS:
            for i in range(posts):
                body = {
                    0: f"caf\xe9 {half} {group} was good\n\n--\nBob",
                    1: "",
                    2: f"Al wrote:\n> Who?\n| me\n{half} {group} that is all there is of it, {i}",
                    3: f"In article <3>\nwhat {group} said {half}\n\n\n",
                }.get(i, f"post {i} of {group} in {half} has some words\n-----\nEve")
                text = f"From: someone\nSubject: x {i}\n\n{body}"
                folder = root / f"20news-bydate-{half}" / group
                write(folder / f"{1000 + 7 * i % 10}{i}", text, "latin-1")
    return root


def fetched(root: Path, tmp_path: Path, groups: tuple[str, ...] | None) -> list[tuple[str, str]]:
    """What scikit-learn itself gives of the same files, from a cache made as it makes it."""
    halves = {
        half: load_files(str(root / f"20news-bydate-{half}"), encoding="latin1")
        for half in ("train", "test")
    }
    home = tmp_path / "scikit"
    home.mkdir(exist_ok=True)
    (home / "20news-bydate_py3.pkz").write_bytes(zlib.compress(pickle.dumps(halves)))
    data = fetch_20newsgroups(
        data_home=home,
        subset="all",
        categories=groups,
        remove=("headers", "footers", "quotes"),
        download_if_missing=False,
    )
    return [(t, data.target_names[i]) for t, i in zip(data.data, data.target, strict=True)]


@pytest.mark.parametrize(
    ("reader", "groups"), [("newsgroups_folder", None), ("newsgroups_sports", GROUPS[:2])]
)
def test_newsgroups_are_those_of_scikit_learn(
    tmp_path: Path, reader: str, groups: tuple[str, ...] | None
) -> None:
    root = newsgroups(tmp_path / "20news", 6)
    rows = read(reader, root, "text", "label", "split")
    assert [(r["text"], r["label"]) for r in rows] == fetched(root, tmp_path, groups)
    assert len(rows) == (36 if groups is None else 24)
    assert {r["split"] for r in rows if "train" in str(r["text"])} == {"train"}
    assert "café train rec.sport.hockey was good" in {str(r["text"]).strip() for r in rows}


def test_newsgroups_as_published(tmp_path: Path) -> None:
    newsgroups(tmp_path / "20news", 12)
    about = write_preset("20news_official", tmp_path, tmp_path / "out")
    assert about["classes"] == list(GROUPS[:2])
    assert about["dropped"] == {"empty_text": 4}
    sizes = {
        split: sum(about["documents"][split].values()) + about["filtered"][split]
        for split in ("train", "dev", "test")
    }
    # A fifth of 44, rounded up, then of the other 35.
    assert sizes == {"train": 28, "dev": 7, "test": 9}


def test_bad_newsgroups(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="20news-bydate-train: no such folder, needed"):
        read("newsgroups_folder", tmp_path, "text")
    (tmp_path / "20news-bydate-train").mkdir()
    with pytest.raises(DataError, match="given no posts, needed files GROUP/NUMBER"):
        read("newsgroups_folder", tmp_path, "text")


# --- AG News, ADR --------------------------------------------------------------------------------


def test_ag_news_as_published(tmp_path: Path) -> None:
    for name in ("train", "test"):
        lines = [
            f'"{i % 4 + 1}","Title","{" ".join(["word"] * (i // 4 + 3))} {i}"\n' for i in range(80)
        ]
        write(tmp_path / "ag_news" / f"{name}.csv", "".join(lines))
    about = write_preset("ag_news_official", tmp_path, tmp_path / "out")
    assert about["classes"] == ["World", "Business"]
    # Strictly between the shortest and the longest of each split.
    assert about["documents"]["test"] == {"World": 18, "Business": 18}
    assert sum(about["documents"]["dev"].values()) + about["filtered"]["dev"] == 6


def test_tweets_as_delivered(tmp_path: Path) -> None:
    for name in ("train", "test"):
        rows = "".join(f"a B c d e f{i % 2} g,{i % 2}\n" for i in range(20))
        write(tmp_path / "adr" / f"{name}.csv", "text,label\n" + rows)
    about = write_preset("adr", tmp_path, tmp_path / "out")
    assert {split: sum(n.values()) for split, n in about["documents"].items()} == {
        "train": 17,
        "dev": 3,
        "test": 20,
    }
    prepared, config = read_prepared(tmp_path / "out")
    assert "B" in prepared.vocabulary
    assert "b" not in prepared.vocabulary
    assert config.lower_case is False


# --- MIMIC-III -----------------------------------------------------------------------------------

NOTES = "ROW_ID,SUBJECT_ID,HADM_ID,CHARTDATE,CATEGORY,DESCRIPTION,TEXT\n"


def mimic(folder: Path, admissions: int) -> Path:
    """Admissions from 100 on: acute and chronic anemia in turn; every fourth with diabetes."""
    notes, codes = [NOTES], ["ROW_ID,HADM_ID,SEQ_NUM,ICD9_CODE\n"]
    for i in range(admissions):
        words = " ".join(["fine"] * (i + 5))
        notes.append(f'{i},1,{100 + i},2101-01-02,Discharge summary,Report,"Stay {i},\n{words}"\n')
        codes.append(f"{i},{100 + i},1,{'2851' if i % 2 else '28521'}\n")
        if i % 4 == 0:
            codes.append(f"{i},{100 + i},2,25000\n")
    write(folder / "NOTEEVENTS.csv", "".join(notes))
    write(folder / "DIAGNOSES_ICD.csv", "".join(codes))
    return folder


def test_summaries_of_anemia(tmp_path: Path) -> None:
    notes = [
        "1,9,12,2101-01-03,Discharge summary,Addendum,later\n",
        "2,9,12,2101-01-02,Discharge summary,Addendum,early\n",
        '3,9,12,2101-01-04,Discharge summary,Report,"the, report"\n',
        "4,9,12,2101-01-01,Nursing,Report,not this\n",
        "5,9,,2101-01-01,Discharge summary,Report,of no admission\n",
        "6,9,7,2101-01-01,Discharge summary,Report,chronic one\n",
        "7,9,13,2101-01-01,Discharge summary,Report,both\n",
    ]
    write(tmp_path / "NOTEEVENTS.csv", NOTES + "".join(notes))
    pairs = [(12, "2851"), (12, "4019"), (7, "28529"), (13, "2851"), (13, "2859")]
    pairs += [(13, "2850"), (14, "2851"), (15, "V2851"), (16, "2851"), (16, "28522")]
    write(
        tmp_path / "DIAGNOSES_ICD.csv",
        "HADM_ID,ICD9_CODE\n" + "".join(f'{a},"{c}"\n' for a, c in pairs),
    )
    assert read("mimic_anemia", tmp_path, "admission", "label", "text") == [
        {"admission": "7", "label": "chronic", "text": "chronic one"},
        {"admission": "12", "label": "acute", "text": "the, report\nearly\nlater"},
        {"admission": "13", "label": "acute", "text": "both"},
        {"admission": "14", "label": "acute", "text": ""},  # counted as empty
    ]


def test_anemia_as_published(tmp_path: Path) -> None:
    mimic(tmp_path / "mimic", 40)
    with (tmp_path / "mimic" / "DIAGNOSES_ICD.csv").open("a") as file:
        file.write("99,999,1,2851\n")
    about = write_preset("anemia", tmp_path, tmp_path / "out")
    assert about["dropped"] == {"empty_text": 1}
    sizes = {
        split: sum(about["documents"][split].values()) + about["filtered"][split]
        for split in ("train", "dev", "test")
    }
    # A fifth of 40, then 15 % of the other 32, rounded up.
    assert sizes == {"train": 27, "dev": 5, "test": 8}
    assert about["filtered"] == {"train": 1, "dev": 1, "test": 1}  # each split's shortest
    assert about["classes"] == ["chronic", "acute"]


def lists(folder: Path) -> None:
    for split, ids in (("train", range(100, 112)), ("dev", (112, 113)), ("test", (117, 116))):
        write(folder / f"{split}_50_hadm_ids.csv", "".join(f"{i}\n" for i in ids))


def test_diabetes_as_published(tmp_path: Path) -> None:
    folder = mimic(tmp_path / "mimic", 20)
    lists(folder)
    rows = read("mimic_diabetes", folder, "admission", "label", "split")
    assert [row["admission"] for row in rows[-2:]] == ["117", "116"]
    assert [row["label"] for row in rows[:5]] == ["diabetes", *["other"] * 3, "diabetes"]
    about = write_preset("diabetes", tmp_path, tmp_path / "out")
    # Seven words or more: "stay", "qqq", "," and five are eight in the first.
    assert about["documents"] == {
        "train": {"other": 9, "diabetes": 3},
        "dev": {"other": 1, "diabetes": 1},
        "test": {"other": 1, "diabetes": 1},
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("NOTEEVENTS.csv", "ROW_ID,HADM_ID\n1,2\n", r"NOTEEVENTS\.csv has no column 'CHARTDATE'"),
        ("DIAGNOSES_ICD.csv", "HADM_ID\n1\n", r"DIAGNOSES_ICD\.csv has no column 'ICD9_CODE'"),
        ("DIAGNOSES_ICD.csv", "HADM_ID,ICD9_CODE\nx,1\n", r"ICD\.csv, row 1: given 'x', needed a"),
        (
            "test_50_hadm_ids.csv",
            "116\n500\n",
            r"ids\.csv, line 2: given admission 500, which has no diagnosis in .*ICD\.csv, needed",
        ),
        ("test_50_hadm_ids.csv", "116\n101\n", "line 2: given admission 101 again, which is in"),
        ("test_50_hadm_ids.csv", "116\nid\n", "line 2: given 'id', needed a number"),
    ],
)
def test_bad_tables(tmp_path: Path, name: str, content: str, message: str) -> None:
    folder = mimic(tmp_path, 20)
    lists(folder)
    write(folder / name, content)
    with pytest.raises(DataError, match=message):
        read("mimic_diabetes", folder, "text")


def test_an_admission_without_a_note(tmp_path: Path) -> None:
    folder = mimic(tmp_path, 20)
    lists(folder)
    write(folder / "test_50_hadm_ids.csv", "116\n500\n")
    with (folder / "DIAGNOSES_ICD.csv").open("a") as file:
        file.write("99,500,1,4019\n")
    message = r"line 2: given admission 500, which has no discharge summary in .*NOTEEVENTS\.csv"
    with pytest.raises(DataError, match=message):
        read("mimic_diabetes", folder, "text")
    (folder / "NOTEEVENTS.csv").unlink()
    with pytest.raises(DataError, match=r"NOTEEVENTS\.csv: no such file"):
        read("mimic_diabetes", folder, "text")


def test_cleaning_of_notes() -> None:
    text = "Admitted [**2151-8-4**] by Dr. [**Last Name (un) 12**].\n====\nBP 120/80!! - - - A__B"
    words = "admitted <de> by dr. <de> . = bp qqq ! - a_b"
    assert clean_note(text) == words.split()


# --- all presets ---------------------------------------------------------------------------------


def test_missing_files_are_named(tmp_path: Path) -> None:
    """Whatever a preset lacks, its first line says what."""
    for name in DATA_PRESETS:
        with pytest.raises(DataError, match=str(tmp_path)):
            write_preset(name, tmp_path, tmp_path / "out" / name)


@needs_data
@pytest.mark.long
def test_the_published_counts_of_ag_news(tmp_path: Path) -> None:
    """The official test file in both places: its longest and its shortest row go."""
    for name in ("train", "test"):
        path = tmp_path / "ag_news" / f"{name}.csv.xz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((DATA / "ag_news" / "test.csv.xz").read_bytes())
    about = write_preset("ag_news_official", tmp_path, tmp_path / "out")
    assert about["documents"]["test"] == {"World": 1900, "Business": 1898}


@needs_data
def test_the_published_vocabulary_of_sst() -> None:
    """13,826 and 16,175 as published, but the four that stand for no word."""
    preset = DATA_PRESETS["sst"]
    corpus = load_corpus(preset.config(DATA))
    words = [
        {word for example in split for word in preset.clean(example.text)}
        for split in (corpus.train, corpus.dev, corpus.test)
    ]
    assert len(words[0]) == 13_822
    assert len(words[0] | words[1] | words[2]) == 16_171
