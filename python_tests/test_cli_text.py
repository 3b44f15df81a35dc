"""The command line on texts as people have them: odd labels, separators and columns."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import invoke, one_line

import fastattnerase as fae
from fastattnerase.runs.lock import alone

TINY = (
    *("--encoder", "noenc", "--embedding-size", "4", "--hidden-size", "4", "--epochs", "1"),
    *("--device", "cpu"),
)


def write(path: Path, labels: list[str], header: str = "text,label") -> Path:
    """Write a row for each label, with words that tell even rows from odd ones."""
    separator = header[4]
    rows = [
        f"a {'good' if i % 2 else 'bad'} film{separator}{label}" for i, label in enumerate(labels)
    ]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    data = write(folder / "x.csv", ["0", "1"] * 30, "text;label")
    invoke("train", "--data", data, *TINY, "--out", folder / "model")
    return folder / "model"


def test_odd_labels_are_told_and_recorded(tmp_path: Path) -> None:
    data = write(tmp_path / "x.csv", ["0.0", "1.0", "0.0", "nan"] * 20)
    out = tmp_path / "model"
    told = invoke("train", "--data", data, *TINY, "--out", out).stdout
    notices = json.loads((out / "model.json").read_text())["metadata"]["notices"]
    assert [notice.partition(" in column")[0] for notice in notices] == [
        "the label 'nan'",
        "the labels 0.0, 1.0",
    ]
    assert all(f"Note: {notice}\n" in told for notice in notices)
    # As the first advises:
    told = invoke(
        *("train", "--data", data, "--classes", "0.0,1.0", *TINY, "--out", tmp_path / "other")
    ).stdout
    assert "48 train, 6 dev, 6 test; 2 classes" in told
    assert "20 rows left out: other label" in told


def test_too_few_rows_for_a_dev_split(tmp_path: Path) -> None:
    data = write(tmp_path / "x.csv", ["0", "1", "1"])
    line = one_line("train", "--data", data, *TINY, "--out", tmp_path / "m")
    assert line.startswith("error: --fractions: given 0.8, 0.1, 0.1, which leaves no dev rows besi")
    invoke("train", "--data", data, *TINY, "--out", tmp_path / "m", "--fractions", 0.4, 0.6, 0)


def test_another_process_in_the_folder_is_told_before_texts_are_read(
    trained: Path, tmp_path: Path
) -> None:
    """The data file is not there, which nothing has noticed when the error is told."""
    own = ("train", "--data", tmp_path / "gone.csv", *TINY, "--out")
    with alone(trained):
        line = subprocess.run(
            [
                sys.executable,
                "-c",
                "from fastattnerase.cli import main; main()",
                *map(str, own),
                str(trained),
            ],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    assert f"process {os.getpid()} has been writing" in line


def test_a_training_that_is_not_finished(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "checkpoint", tmp_path / "m" / "checkpoint")
    line = one_line("erase", "--model", tmp_path / "m")
    assert "a training there is not finished: the same `fastattnerase train` goes on" in line


def test_a_report_on_what_is_no_run(trained: Path, tmp_path: Path) -> None:
    assert "fastattnerase erase --model" in one_line("report", trained)
    assert "a folder that is not there" in one_line("report", tmp_path / "gone")


def test_an_error_leaves_no_bar_of_what_did_not_end(tmp_path: Path) -> None:
    told = invoke("erase", "--tensors", tmp_path / "gone.safetensors", code=2).stderr
    assert "0/1" not in told


def test_a_hierarchical_model_of_single_sentences_is_told(tmp_path: Path) -> None:
    data = write(tmp_path / "x.csv", ["0", "1"] * 30)
    train = ("train", "--data", data, *TINY, "--out")
    note = "Note: every training text is one sentence"
    assert note in invoke(*train, tmp_path / "han", "--model", "han").stdout
    assert note not in invoke(*train, tmp_path / "flan").stdout


def test_reading_is_counted_to_its_end(tmp_path: Path) -> None:
    data = write(tmp_path / "x.csv", ["0", "1"] * 30)
    told = invoke("train", "--data", data, *TINY, "--out", tmp_path / "m").stderr
    assert re.search(r"reading .* 60/60 ", told)


def test_usual_labels_are_recorded_without_a_notice(trained: Path) -> None:
    assert json.loads((trained / "model.json").read_text())["metadata"]["notices"] == []


def test_missing_columns_and_labels_say_which_options_mend_them(
    trained: Path, tmp_path: Path
) -> None:
    gaps = write(tmp_path / "gaps.csv", ["0", "1", ""] * 20)
    line = one_line("train", "--data", gaps, "--out", tmp_path / "m")
    assert line.endswith(
        "gaps.csv, row 3: no label in column 'label'; with --classes, rows that have none of the "
        "labels it names are left out"
    )
    none = write(tmp_path / "none.csv", ["0"], "text,mood")
    columns = "name the columns as --text-column and --label-column"
    line = one_line("train", "--data", none, "--out", tmp_path / "m")
    assert line.endswith(f"has no column 'label'; its columns are 'text', 'mood'; {columns}")
    line = one_line("erase", "--model", trained, "--data", none)
    assert line.endswith(f"{columns}; rows without labels are read with --unlabelled")
    for file in (gaps, write(tmp_path / "other.csv", ["0", "7"])):
        line = one_line("erase", "--model", trained, "--data", file)
        assert line.endswith("; rows without labels are read with --unlabelled")


def test_a_model_finds_its_data_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    data = write(Path("x.csv"), ["0", "1"] * 30)
    invoke("train", "--data", data, *TINY, "--out", "model")
    saved = json.loads(Path("model/model.json").read_text())
    assert saved["data"]["path"] == "x.csv"
    assert saved["metadata"]["data_files"] == {"path": str(here / "x.csv")}
    erase = ("erase", "--resamples", "10", "--device", "cpu", "--model")
    invoke(*erase, "model")
    run = json.loads(Path("model/erase/run.json").read_text())
    monkeypatch.chdir(there)
    invoke(*erase, here / "model", "--out", "run")
    assert json.loads(Path("run/run.json").read_text())["source"] == run["source"]
    # Copied with its data, and the original gone.
    shutil.copytree(here / "model", "model")
    (here / "x.csv").rename("x.csv")
    invoke(*erase, "model", "--out", "again")
    Path("x.csv").unlink()
    assert one_line(*erase, "model") == (
        f"error: {here / 'x.csv'}: no such file; it is the training data of the model in model, "
        "whose test split is read; restore it, or give a file as --data"
    )


def test_more_epochs_go_on(tmp_path: Path) -> None:
    data = write(tmp_path / "x.csv", ["0", "1"] * 30)
    train = ("train", "--data", data, *TINY, "--out", tmp_path / "model", "--epochs")
    invoke(*train, 2)
    assert "went on after 2 finished epochs" in invoke(*train, 3).stdout
    saved = json.loads((tmp_path / "model" / "model.json").read_text())
    assert (saved["train"]["epochs"], saved["metadata"]["epochs"]) == (3, 3)
    erase = ("erase", "--model", tmp_path / "model", "--resamples", 10, "--device", "cpu")
    invoke(*erase)
    invoke(*train, 4)
    assert one_line(*erase).endswith(
        "holds a run with another source (the model, as by more training, or its data have changed "
        "since); choose another directory (--out) or delete it"
    )
    data.unlink()  # what does not go on is refused before data are read
    checkpoint = tmp_path / "model" / "checkpoint"
    for options, difference in (
        (("--epochs", 2), "train.epochs is 4 there and 2 here"),
        (("--hidden-size", 8), "model.hidden_size is 4 there and 8 here"),
    ):
        assert one_line(*train, 4, *options) == (
            f"error: {checkpoint} holds a training with another configuration: {difference}. "
            f"Choose another directory, or delete {checkpoint} to train anew"
        )


def test_what_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    data = write(tmp_path / "x.csv", ["0", "1"] * 30)
    out = tmp_path / "runs" / "m"
    one_line("train", "--data", data, *TINY, "--label-column", "none", "--out", out)
    assert not out.exists()


def test_a_ranking_that_is_none_is_told_those_of_the_command_line(tmp_path: Path) -> None:
    line = one_line("erase", "--model", tmp_path, "--rankings", "gready")
    assert line.startswith("error: --rankings: given 'gready', needed one of ")
    assert line.endswith(", 'module:name' of a function")


def test_texts_that_english_rules_do_not_cut_are_told(tmp_path: Path) -> None:
    data = tmp_path / "zh.csv"
    rows = [f"我喜欢这部电影。第{number}次,{number % 2}" for number in range(40)]
    data.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    train = ("train", "--data", data, *TINY, "--out", tmp_path / "m")
    assert "are of scripts that set no spaces between words" in invoke(*train).stdout


def test_a_file_that_cannot_be_parsed_is_told_in_our_words(tmp_path: Path) -> None:
    data = tmp_path / "open.csv"
    data.write_text('text,label\na,yes\n"b\nc",no\n"good film,yes\nbad,no\n')
    line = one_line("train", "--data", data, *TINY, "--out", tmp_path / "m")
    assert line.endswith(
        'open.csv, row 3: given a quotation mark (") that is not closed, needed another where the '
        'text ends; within a text it is written twice ("")'
    )
    data.write_text("text,label\n" + "a,yes\n" * 9 + "b,c,no\n")
    line = one_line("train", "--data", data, *TINY, "--out", tmp_path / "m")
    assert "open.csv, row 10: given 3 fields, needed 2, as the header line has" in line


def test_options_of_several_numbers_and_classes_say_what_is_needed(tmp_path: Path) -> None:
    assert re.search(r"--fractions +N N N +Shares of train", invoke("train", "--help").stdout)
    data = write(tmp_path / "x.csv", ["0", "1"] * 30)
    train = ("train", "--data", data, *TINY, "--out", tmp_path / "m")
    line = one_line(*train, "--fractions", 0.9, 0.2, 0.1)
    assert line.endswith("which add to 1.2, needed shares that add to 1")
    assert "train: 0 (24), 1 (24)\n" in invoke(*train).stdout
    line = one_line(*train, "--training", "jain-wallace", "--batch-size", 7)
    assert line.startswith("error: --batch-size: given with --training jain-wallace, which has its")
    line = one_line(*train, "--classes", "no,yes")
    assert line.endswith("no rows to train on (rows left out: 60 other label)")
    line = one_line(*train, "--classes", "0,maybe")
    assert line.endswith("in column 'label', needed some of each of the classes 0, maybe")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--language", "fr"), ["L'", "ami", "n'", "est", "pas", "là", "."]),
        (("--sentences", "spaces"), ["L'ami", "n'est", "pas", "là."]),
    ],
)
def test_words_of_another_language_wherever_the_model_is_applied(
    options: tuple[str, str], words: list[str], tmp_path: Path
) -> None:
    data = tmp_path / "x.csv"
    rows = [f"\"L'ami n'est {'pas' if i % 2 else 'plus'} là.\",{i % 2}" for i in range(60)]
    data.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    model = tmp_path / "model"
    invoke("train", "--data", data, *options, *TINY, "--out", model)
    own = json.loads((model / "model.json").read_text())["data"]
    assert (own.get("language", "en"), own["sentences"]) == (
        ("fr", "rules") if "fr" in options else ("en", "spaces")
    )
    erase = ("erase", "--model", model, "--resamples", "10", "--device", "cpu")
    for arguments, folder in (((), "erase"), (("--data", data), "erase-x")):
        invoke(*erase, *arguments)
        lengths = pq.read_table(model / folder / "instances.parquet")["n"].to_pylist()
        assert set(lengths) == {len(words)}
    [found] = fae.explain(model, ["L'ami n'est pas là."])
    assert list(found.items) == words


def test_a_language_that_is_not_there_is_refused_before_the_data_are_read(tmp_path: Path) -> None:
    line = one_line("train", "--data", tmp_path / "absent.csv", "--language", "qq")
    assert "error: --language: given 'qq', needed a code of a language that spaCy has here" in line
