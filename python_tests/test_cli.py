"""The command line: whole runs on tiny data, one clear line for each mistake, help and info."""

from __future__ import annotations

import csv
import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
import typer
from command_line import invoke, one_line
from safetensors.torch import save_file
from studies.serrano_smith.small_study import write_small_study

import fastattnerase
import fastattnerase.data
from fastattnerase import _C
from fastattnerase.cli.console import counted, one_line_errors, out
from fastattnerase.data import DataConfig
from fastattnerase.data.kept import KEPT
from fastattnerase.data.word2vec import Word2VecConfig
from fastattnerase.models import ModelConfig, TrainConfig
from fastattnerase.runs.rundir import PartialTables
from fastattnerase.studies import STUDIES
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import KIND, Config
from fastattnerase.studies.serrano_smith.instance_tables import SCHEMAS
from fastattnerase.studies.serrano_smith.result import load
from fastattnerase.studies.serrano_smith.study import MODELS, CorpusSpec, Study, read_study

GOOD = ("good", "fine", "great", "lovely")
BAD = ("bad", "poor", "awful", "dreary")
TINY = (
    "--embedding-size=8",
    "--hidden-size=4",
    "--epochs=2",
    "--learning-rate=0.02",
    "--batch-size=16",
    "--dropout-embedding=0",
    "--dropout-output=0",
)


def write(
    path: Path, rows: list[tuple[str, str]], header: tuple[str, str] = ("words", "mood")
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def reviews(count: int = 60) -> list[tuple[str, str]]:
    rows = []
    for i in range(count):
        mood, words = ("happy", GOOD) if i % 2 else ("sad", BAD)
        rows.append((f"The film was {words[i % 4]} . I say so {i % 7} times .", mood))
    return rows


COLUMNS = ("--text-column", "words", "--label-column", "mood")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    data = write(folder / "reviews.csv", reviews())
    for kind in ("flan", "han"):
        result = invoke(
            "train", "--data", data, *COLUMNS, *TINY, "--model", kind, "--encoder", "conv",
            "--out", folder / kind,
        )  # fmt: skip
        assert "48 train, 6 dev, 6 test; 2 classes" in result.stdout
        assert f"fastattnerase erase --model {folder / kind}" in result.stdout.replace("\n", "")
    return folder


def test_train_saves_what_it_was_made_of(trained: Path) -> None:
    about = json.loads((trained / "flan" / "model.json").read_text())
    assert about["classes"] == ["happy", "sad"]
    assert about["model"]["encoder"] == "conv"
    assert about["metadata"]["name"] == "FLANconv on reviews"
    assert about["metadata"]["documents"] == {"train": 48, "dev": 6, "test": 6}
    assert about["metadata"]["versions"]["torch"] == torch.__version__


def test_training_again_loads_what_is_there(trained: Path) -> None:
    before = (trained / "flan" / "model.safetensors").read_bytes()
    result = invoke(
        "train", "--data", trained / "reviews.csv", *COLUMNS, *TINY, "--model", "flan",
        "--encoder", "conv", "--out", trained / "flan",
    )  # fmt: skip
    assert "went on after 2 finished epochs" in result.stdout
    assert (trained / "flan" / "model.safetensors").read_bytes() == before


@pytest.mark.usefixtures("undrawn_figures")
def test_erase_and_report_side_by_side(trained: Path, tmp_path: Path) -> None:
    for kind in ("flan", "han"):
        result = invoke(
            "erase", "--model", trained / kind, "--out", tmp_path / kind, "--resamples", 20,
            "--random-orders", 2,
        )  # fmt: skip
        assert "Smallest set" in result.stdout
    run = load(tmp_path / "han")
    assert run.run.source["split"] == "test"
    assert run.run.source["item"] == "sentences"
    assert run.run.name == "HANconv on reviews"
    assert run.counts.instances == 6
    assert run.counts.label_differs_from_model == 0
    assert set(run.table("instances")["n"]) == {2}
    assert run.multi["random"].orders == 2
    words = load(tmp_path / "flan")
    assert set(words.table("instances")["n"]) == {11}
    assert words.exhibits[0].items[:3] == ("The", "film", "was")

    result = invoke("report", tmp_path / "flan", tmp_path / "han", "--out", tmp_path / "report")
    page = tmp_path / "report" / "report.html"
    assert result.stdout.strip() == str(page)
    assert "HANconv on reviews" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn_figures")
def test_erase_on_a_file_with_and_without_labels(trained: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "new.csv", reviews(5), header=("text", "mood"))
    invoke(
        "erase", "--model", trained / "flan", "--data", data, "--text-column", "text", "--out",
        tmp_path / "a", "--resamples", 5,
    )  # fmt: skip
    labelled = load(tmp_path / "a").table("instances")
    assert labelled["gold"].tolist() == [1, 0, 1, 0, 1]
    write(data, [(text, "") for text, _ in reviews(5)], header=("text", "nothing"))
    invoke(
        "erase", "--model", trained / "flan", "--data", data, "--text-column", "text",
        "--unlabelled", "--out", tmp_path / "b", "--resamples", 5,
    )  # fmt: skip
    result = load(tmp_path / "b")
    assert result.table("instances")["gold"].isna().all()
    assert result.counts.accuracy is None
    assert result.table("instances")["label"].tolist() == labelled["label"].tolist()
    invoke("report", tmp_path / "b")
    assert (tmp_path / "b" / "report" / "report.html").exists()


@pytest.mark.usefixtures("undrawn_figures")
def test_names_and_folders_are_printed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Square brackets and colons are no markup; what is to be pasted is quoted."""
    monkeypatch.setattr(out, "_width", 200)
    rows = [*reviews(), ("<br /><br />", "sad"), (" ", "happy")]
    data = write(tmp_path / "r[x].csv", rows)
    folder = tmp_path / "n3[x] [" / "o[b]x"
    result = invoke(
        "train", "--data", data, *COLUMNS, *TINY, "--epochs", 1, "--encoder", "noenc",
        "--max-tokens", 3, "--name", "[/b] :bug: [red]x", "--out", folder,
    )  # fmt: skip
    assert "[/b] :bug: [red]x: dev accuracy" in result.stdout
    assert f"saved in {folder}" in result.stdout
    assert f"Next: fastattnerase erase --model '{folder}'" in result.stdout
    assert "2 rows left out: empty text" in result.stdout
    assert "60 documents cut after 3 words" in result.stdout
    result = invoke("erase", "--model", folder, "--resamples", 5)
    assert "[/b] :bug: [red]x" in result.stdout
    assert "6 documents cut after 3 words" in result.stdout
    assert f"Next: fastattnerase report '{folder / 'erase'}'" in result.stdout
    result = invoke("erase", "--model", folder, "--resamples", 5, "--name", "other [/]")
    assert "other [/]" in result.stdout
    assert ":bug:" not in result.stdout
    # A model's folder stands for the one run in it.
    result = invoke("report", folder)
    assert str(folder / "erase" / "report" / "report.html") in result.stdout
    assert "other [/]" in (folder / "erase" / "report" / "report.html").read_text()
    invoke("export", folder)
    assert (folder / "erase" / "original").is_dir()
    assert "no such file" in one_line("erase", "--model", folder, "--data", tmp_path / "[/b].csv")


@pytest.mark.usefixtures("undrawn_figures")
def test_erase_tensors_end_to_end(tmp_path: Path) -> None:
    """One instance by hand: [2, -1, -0.5] with weights .5, .3, .2; without the first it flips."""
    save_file(
        {
            "values": torch.tensor([[2.0], [-1.0], [-0.5]]),
            "offsets": torch.tensor([0, 3]),
            "weights": torch.tensor([0.5, 0.3, 0.2]),
            "head_weight": torch.tensor([[0.0], [1.0]]),
            "head_bias": torch.zeros(2),
            "labels": torch.tensor([0]),
        },
        tmp_path / "layer.safetensors",
    )
    result = invoke(
        "erase", "--tensors", tmp_path / "layer.safetensors", "--out", tmp_path / "run",
        "--resamples", 5, "--name", "mine",
    )  # fmt: skip
    assert "mine" in result.stdout
    run = load(tmp_path / "run")
    multi = run.table("multi").set_index("ranking")
    assert multi["first_flip"][["attention", "gradient", "product", "minimal"]].tolist() == [1] * 4
    assert run.counts.accuracy == 0
    assert run.exhibits == ()
    invoke("report", tmp_path / "run", "--out", tmp_path / "report")
    table = pd.read_csv(tmp_path / "report" / "tables" / "multi_weight.csv")
    assert table["fraction_median"].round(6).tolist()[1:] == [0.333333] * 4


def test_weights_that_do_not_sum_to_one_are_noticed(tmp_path: Path) -> None:
    layer = {
        "values": torch.tensor([[2.0], [-1.0], [-0.5], [1.0], [-3.0]]),
        "offsets": torch.tensor([0, 3, 5]),
        "weights": torch.tensor([0.5, 0.3, 0.2, 3.0, 1.0]),
        "head_weight": torch.tensor([[0.0], [1.0]]),
        "head_bias": torch.zeros(2),
    }
    save_file(layer, tmp_path / "layer.safetensors")
    erase = ("erase", "--tensors", tmp_path / "layer.safetensors", "--resamples", 5, "--out")
    note = "weights of 1 of 2 instances do not sum to 1; they are divided by their sum"
    assert note in invoke(*erase, tmp_path / "run").stdout
    layer["weights"] = torch.tensor([0.5, 0.3, 0.2, 0.75, 0.25])
    save_file(layer, tmp_path / "layer.safetensors")
    assert "do not sum to 1" not in invoke(*erase, tmp_path / "run2").stdout


@pytest.mark.long
@pytest.mark.long
def test_demo_shows_three_encoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On sixty sentences of our own instead of the three thousand that ship."""
    data = write(tmp_path / "reviews.csv", reviews(), header=("text", "label"))
    config = fastattnerase.data.DataConfig(path=str(data))
    monkeypatch.setattr(fastattnerase.data, "demo_config", lambda: config)
    threads = torch.get_num_threads()
    result = invoke("demo", "--out", tmp_path / "demo")
    assert torch.get_num_threads() == threads
    page = tmp_path / "demo" / "report" / "report.html"
    assert result.stdout.splitlines()[-1] == str(page)
    text = page.read_text(encoding="utf-8")
    for name in ("FLANrnn", "FLANconv", "FLANnoenc"):
        assert f"<h3>{name}</h3>" in text
        assert (tmp_path / "demo" / name.lower() / "erase" / "result.json").exists()


class TestMistakes:
    def train(self, data: Path, *arguments: object) -> str:
        return one_line("train", "--data", data, *COLUMNS, *arguments, "--out", data.parent / "m")

    def test_missing_file(self, tmp_path: Path) -> None:
        assert "no such file" in self.train(tmp_path / "absent.csv")

    def test_missing_vectors_are_noticed_before_the_data_are_read(self, tmp_path: Path) -> None:
        data = tmp_path / "absent.csv"
        line = self.train(data, "--vectors", tmp_path / "v")
        assert f"--vectors: given {tmp_path / 'v'}, which is no file, needed a file" in line

    def test_a_vocabulary_without_words(self, tmp_path: Path) -> None:
        data = write(tmp_path / "x.csv", reviews())
        arguments = ("--data", data, *COLUMNS, *TINY, "--min-count", 9999, "--out", tmp_path / "m")
        printed = invoke("train", *arguments).stdout
        assert "Note: no word occurs 9999 times (--min-count), so all are unknown" in printed

    def test_no_data_at_all(self) -> None:
        assert "all rows as --data, or training rows as --train" in one_line("train")
        assert "as --train (and --dev" in one_line("train", "--test", "x.csv")

    def test_files_that_do_not_go_together(self) -> None:
        line = one_line("train", "--data", "x.csv", "--train", "y.csv", "--test", "z.csv")
        assert "--data: given with train and test, needed alone: it has all rows" in line
        line = one_line("train", "--train", "y.csv", "--split-column", "part")
        assert "--split-column: given with separate files, needed with one file" in line

    @pytest.mark.parametrize("seed", [-1, 2**63])
    @pytest.mark.parametrize(
        "command", [("train", "--split-seed"), ("erase", "--tensors", "x", "--seed")]
    )
    def test_a_seed_out_of_range(self, command: tuple[str, ...], seed: int) -> None:
        line = one_line(*command, seed)
        assert f"{command[-1]}: given {seed}, needed 0 to 2**63 - 1" in line
        result = invoke("train", "--seed", seed, code=2)
        assert "Invalid value for '--seed'" in result.stderr

    def test_the_data_changed_since_training(self, trained: Path, tmp_path: Path) -> None:
        data = tmp_path / "r.csv"
        write(data, reviews())
        train = (*COLUMNS, *TINY, "--encoder", "noenc", "--epochs", 1, "--out", tmp_path / "m")
        invoke("train", "--data", data, *train)
        erase = ("erase", "--model", tmp_path / "m", "--resamples", 5)
        write(data, [(text, mood.replace("happy", "zappy")) for text, mood in reviews()])
        line = one_line(*erase)
        assert "not the one the model was trained on" in line
        assert "labels were happy, sad and are now sad, zappy" in line
        for rows in (
            reviews()[:40],
            [(text.replace("film", "film film"), m) for text, m in reviews()],
        ):
            write(data, rows)
            assert "not the one the model was trained on" in one_line(*erase)
        write(data, reviews())
        invoke(*erase)

    def test_wrong_columns(self, tmp_path: Path) -> None:
        data = write(tmp_path / "x.csv", reviews(), header=("text", "mood"))
        line = self.train(data)
        assert "'words'" in line
        assert "text" in line

    def test_a_file_with_a_header_only(self, tmp_path: Path) -> None:
        data = write(tmp_path / "header.csv", [])
        assert "no rows to train on (the file has none, at most a header)" in self.train(data)
        line = one_line("train", "--train", data, *COLUMNS, "--out", tmp_path / "m")
        assert f"{data}: no rows to train on (the file has none, at most a header)" in line

    def test_an_output_folder_that_cannot_be_made_is_noticed_before_reading(
        self, tmp_path: Path
    ) -> None:
        data = write(tmp_path / "x.csv", reviews())
        line = one_line("train", "--data", data, *COLUMNS, "--out", data / "model")
        assert line == f"error: {data}: Not a directory"
        assert not (tmp_path / "model").exists()

    def test_an_output_folder_that_is_not_writable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the system says to a person, who unlike root may not write everywhere."""
        data = write(tmp_path / "x.csv", reviews())
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)

        def refused(*, dir: Path) -> None:
            assert dir == closed
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(dir))

        if os.geteuid() == 0:
            monkeypatch.setattr(tempfile, "mkdtemp", refused)
        line = one_line("train", "--data", data, *COLUMNS, "--out", closed / "model")
        assert line == f"error: {closed}: cannot be written to (Permission denied)"

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="no such file system")
    def test_an_output_folder_where_even_root_can_make_none(self, tmp_path: Path) -> None:
        data = write(tmp_path / "x.csv", reviews())
        line = one_line("train", "--data", data, *COLUMNS, "--out", "/proc/nope")
        assert line == "error: /proc: cannot be written to (No such file or directory)"

    def test_a_model_whose_files_are_no_such_files(self, trained: Path, tmp_path: Path) -> None:
        model = tmp_path / "m"
        shutil.copytree(trained / "flan", model)
        (model / "model.safetensors").unlink()
        (model / "model.safetensors").mkdir()
        assert f"{model / 'model.safetensors'} is damaged" in one_line("erase", "--model", model)
        about = json.loads((model / "model.json").read_text())
        (model / "model.json").write_text(json.dumps(about | {"metadata": []}))
        assert "'metadata' is no object" in one_line("erase", "--model", model)

    @pytest.mark.usefixtures("undrawn_figures")
    def test_a_result_edited_by_hand(self, trained: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        erase = ("erase", "--model", trained / "flan", "--out", run, "--resamples", 5)
        invoke(*erase)
        whole = json.loads((run / "result.json").read_text())
        bare = [{k: v for k, v in record.items() if k != "fraction"} for record in whole["multi"]]
        for edited, key in (
            ({k: v for k, v in whole.items() if k != "multi"}, "multi"),
            (whole | {"multi": bare}, "fraction"),
        ):
            (run / "result.json").write_text(json.dumps(edited))
            for command in (erase, ("report", run)):
                line = one_line(*command)
                assert f"{run / 'result.json'} is damaged: it lacks {key!r}; delete it" in line
        for edited, place in (
            (whole | {"counts": 5}, "counts is 5"),
            (whole | {"multi": [3]}, "multi[0] is 3"),
            (whole | {"multi": [whole["multi"][0] | {"gap": "x"}]}, "multi[0].gap is 'x'"),
            (whole | {"counts": whole["counts"] | {"analysed": None}}, "counts.analysed is None"),
        ):
            (run / "result.json").write_text(json.dumps(edited))
            for command in (erase, ("report", run), ("export", run)):
                line = one_line(*command)
                assert f"{run / 'result.json'} is damaged: {place}; delete it and run" in line

    def test_a_part_of_an_interrupted_run_that_is_damaged(
        self, trained: Path, tmp_path: Path
    ) -> None:
        run = tmp_path / "run"
        erase = ("erase", "--model", trained / "flan", "--out", run, "--resamples", 5)
        invoke(*erase)
        (run / "result.json").unlink()
        # As a run that was killed while it aggregated: its parts are there.
        parts = run / "parts"
        record = json.loads((run / "run.json").read_text())
        state = {key: record[key] for key in ("kind", "format", "config", "source")}
        state["columns"] = {name: schema.names for name, schema in SCHEMAS.items()}
        tables = PartialTables(run, list(SCHEMAS), state)
        tables.append({name: pq.read_table(run / f"{name}.parquet") for name in tables.names})
        for name in ("instances", "single"):
            file = parts / f"{name}-000000.parquet"
            before = file.read_bytes()
            file.write_bytes(b"PAR1 of old")
            line = one_line(*erase)
            assert f"{file} is missing or damaged" in line
            assert f"delete {parts} and run again" in line
            file.write_bytes(before)
        invoke(*erase)

    def test_a_byte_that_is_not_utf8(self, tmp_path: Path) -> None:
        data = write(tmp_path / "x.csv", reviews())
        data.write_bytes(data.read_bytes().replace(b"film", b"f\xe9lm", 1))
        line = self.train(data)
        assert "UTF-8" in line
        assert "0xe9" in line

    def test_one_class(self, tmp_path: Path) -> None:
        data = write(tmp_path / "x.csv", [(text, "happy") for text, _ in reviews()])
        assert "at least two classes" in self.train(data)

    def test_an_unknown_label_in_the_test_split(self, tmp_path: Path) -> None:
        train = write(tmp_path / "train.csv", reviews())
        test = write(tmp_path / "test.csv", [("The film .", "cross")])
        line = one_line(
            "train", "--train", train, "--test", test, *COLUMNS, "--out", tmp_path / "m"
        )
        assert "given label 'cross'" in line

    def test_unknown_parts(self, tmp_path: Path) -> None:
        data = write(tmp_path / "x.csv", reviews())
        assert "'tree'" in self.train(data, "--model", "tree")
        assert "'lstm'" in self.train(data, "--encoder", "lstm")

    def test_another_training_in_the_folder(self, trained: Path) -> None:
        line = one_line(
            "train", "--data", trained / "reviews.csv", *COLUMNS, *TINY, "--encoder", "conv",
            "--seed", 1, "--out", trained / "flan",
        )  # fmt: skip
        assert "another configuration" in line

    def test_no_model(self, tmp_path: Path) -> None:
        assert "holds no saved model" in one_line("erase", "--model", tmp_path)

    def test_neither_model_nor_tensors(self) -> None:
        assert "--model, --tensors: given neither, needed one of them" in one_line("erase")

    def test_options_that_do_not_go_together(self, trained: Path, tmp_path: Path) -> None:
        flan = trained / "flan"
        assert "--unlabelled: given without --data, needed with it" in one_line(
            "erase", "--model", flan, "--unlabelled"
        )
        line = one_line("erase", "--tensors", tmp_path / "x", "--data", tmp_path / "y")
        assert "--data: given with --tensors, needed with --model" in line

    def test_values_that_are_not_options(self, tmp_path: Path) -> None:
        tensors = ("erase", "--tensors", tmp_path / "x")
        assert "different, uniform or legacy" in one_line(*tensors, "--random-item", "any")
        assert "--backend: given 'gpu', needed auto, cuda" in one_line(*tensors, "--backend", "gpu")
        assert "--device: given 'abacus', needed auto, cpu" in one_line(
            *tensors, "--device", "abacus"
        )

    @pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
    def test_no_gpu(self, tmp_path: Path) -> None:
        line = one_line("erase", "--tensors", tmp_path / "x", "--device", "cuda")
        assert "no GPU" in line

    def test_a_file_that_is_no_tensors(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("hello")
        assert "given no safetensors file" in one_line("erase", "--tensors", tmp_path / "x")

    def test_no_run(self, tmp_path: Path) -> None:
        assert "not a run directory" in one_line("report", tmp_path)
        assert "not a run directory" in one_line("export", tmp_path)

    def test_several_runs_in_a_model_folder(self, tmp_path: Path) -> None:
        for name in ("erase", "erase-new"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "run.json").write_text(json.dumps({"kind": KIND}))
        line = one_line("report", tmp_path)
        assert f"name one of {tmp_path / 'erase'}, {tmp_path / 'erase-new'}" in line

    def test_a_folder_that_cannot_be_made(self, trained: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        line = one_line("erase", "--model", trained / "flan", "--out", tmp_path / "file" / "run")
        assert "file" in line

    def test_what_is_no_mistake_of_the_user_keeps_its_traceback(
        self, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise ValueError("a bug")

        monkeypatch.setattr(experiment, "run", broken)
        with pytest.raises(ValueError, match="a bug"):
            invoke("erase", "--model", trained / "flan", "--out", tmp_path / "run")


def test_ctrl_c_ends_with_one_line(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "run", interrupted)
    result = invoke("erase", "--model", trained / "flan", "--out", tmp_path / "run", code=130)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("stopped: interrupted; what is finished is kept")


@pytest.mark.parametrize("own", [True, False])
def test_going_on_reads_no_texts(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    data = write(tmp_path / "more.csv", [*reviews(), ("", "happy")])
    erase = ("erase", "--model", trained / "flan", "--resamples", 5)
    erase = erase if own else (*erase, "--data", data)
    invoke(*erase, "--out", tmp_path / "whole")
    run = tmp_path / "run"
    with monkeypatch.context() as stopped:
        stopped.setattr(experiment, "measure", interrupted)
        invoke(*erase, "--out", run, code=130)
    assert (run / KEPT).is_file()
    with monkeypatch.context() as unread:
        unread.setattr(fastattnerase.data, "tokenise", interrupted)
        gone_on = invoke(*erase, "--out", run)
    assert ("1 row left out: empty text" in gone_on.stdout) is not own
    assert not (run / KEPT).exists()
    for name in ("run.json", "result.json"):
        ours, whole = (json.loads((tmp_path / x / name).read_text()) for x in ("run", "whole"))
        assert ours == whole
    # A finished run is shown again, and nothing is kept of its texts.
    invoke(*erase, "--out", run)
    assert not (run / KEPT).exists()


@pytest.mark.usefixtures("undrawn_figures")
def test_reproduce_a_small_study_and_export_a_run_of_it(tmp_path: Path) -> None:
    study = write_small_study(tmp_path)
    out = tmp_path / "out"
    arguments = (
        "reproduce", "serrano-smith", "--data-root", tmp_path, "--study", study, "--out", out,
        "--only", "stars",
    )  # fmt: skip
    result = invoke(*arguments, "--until", "erase")
    assert str(out / "manifest.json") in result.stdout
    assert "[4/4] erase/stars/FLANnoenc" in result.stderr
    assert not (out / "report").exists()
    result = invoke(*arguments)
    assert "4 of 5 steps were finished before" in result.stderr
    assert str(out / "report" / "report.html") in result.stdout
    run = out / "erase" / "stars" / "flannoenc"
    for command in ("report", "export"):
        line = one_line(command, out)
        assert f"its report is {out / 'report' / 'report.html'}, its runs are {run}" in line
    result = invoke("export", run)
    assert len(result.stdout.splitlines()) == 10
    assert (run / "original" / "dec_flip_stats.csv").exists()


def test_mistakes_in_reproducing(tmp_path: Path) -> None:
    command = ("reproduce", "serrano-smith", "--data-root", tmp_path)
    assert "--until: given 'dinner', needed prepare, embed" in one_line(
        *command, "--until", "dinner"
    )
    assert "which is no folder" in one_line(*command[:3], tmp_path / "absent")
    assert "no corpus yahoo" in one_line(*command)  # none of the four is there
    assert "--preset: given 'both'" in one_line(*command, "--preset", "both")
    study = write_small_study(tmp_path)
    line = one_line(*command, "--study", study, "--preset", "nope")
    assert "--preset: given with --study, needed without it" in line
    line = one_line(*command, "--study", study, "--only", "yelp", "--out", tmp_path / "out")
    assert "--only: given 'yelp', needed what names some of" in line


def test_the_example_study_is_one_and_shows_all_keys(tmp_path: Path) -> None:
    text = invoke("reproduce", "serrano-smith", "--example-study").stdout
    (tmp_path / "study.toml").write_text(text)
    study = read_study(tmp_path / "study.toml")
    assert set(study.corpora[0].models) == set(MODELS)
    for kind in (Study, CorpusSpec, DataConfig, Word2VecConfig, ModelConfig, TrainConfig, Config):
        for field in dataclasses.fields(kind):
            assert re.search(rf"\b{field.name}\b", text), field.name


COMMANDS = ["demo", "train", "erase", "measure", "dump", "sweep", "report", "export", "info"]
COMMANDS += [f"reproduce {study.name}" for study in STUDIES]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    text = " ".join(invoke(*command.split(), "--help").stdout.split())
    assert f"Example: fastattnerase {command}" in text


def test_info_names_versions_and_every_backend() -> None:
    text = invoke("info").stdout
    assert torch.__version__ in text
    assert f"in use: {_C.cpu_variant()}" in " ".join(text.split())
    for backend in fastattnerase.backends():
        assert f"backend {backend}" in text


def test_the_module_prints_the_same_as_info() -> None:
    environment = os.environ | {"COLUMNS": "200"}
    result = subprocess.run(
        [sys.executable, "-m", "fastattnerase"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert "backend reference" in result.stdout
    assert result.stderr == ""


def test_an_ascii_terminal_gets_escapes(trained: Path, tmp_path: Path) -> None:
    name = "film \u2603"
    result = subprocess.run(
        [
            *(sys.executable, "-m", "fastattnerase", "erase", "--model", str(trained / "flan")),
            *("--out", str(tmp_path / "run"), "--resamples", "5", "--name", name),
        ],
        capture_output=True,
        env=os.environ | {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    text = result.stdout.decode("ascii")
    assert "film \\u2603" in text
    assert "\\xd7" in text  # the multiple of the smallest set


def test_two_quick_interrupts_end_with_one_line() -> None:
    """The second comes while the first is being told of."""
    code = """
import os, signal, sys
import typer
from fastattnerase.cli import console, interrupts

def press():
    os.kill(os.getpid(), signal.SIGINT)

def print_(*arguments, **options):
    press()
    real(*arguments, **options)

interrupts.handle()
real, console.err.print = console.err.print, print_
try:
    with console.one_line_errors():
        press()
except typer.Exit as end:
    sys.exit(end.exit_code)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    # Telling takes two calls: the third press ends the process between them.
    assert result.returncode == 130
    assert result.stderr.startswith("stopped:")
    assert "Traceback" not in result.stderr


def test_one_of_a_thing_is_no_plural() -> None:
    assert [counted(n, "document") for n in (0, 1, 2000)] == [
        "0 documents",
        "1 document",
        "2,000 documents",
    ]


def test_a_full_disk_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), one_line_errors():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert capsys.readouterr().err.startswith("error: No space left on device; what is finished")
    with pytest.raises(OSError, match="odd"), one_line_errors():
        raise OSError(errno.EPIPE, "odd")
