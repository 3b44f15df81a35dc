"""What the command line says of a model: premises first, chance beside accuracy, names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from studies.serrano_smith.hand_made import batch_of
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.cli.inputs import find_run
from fastattnerase.mi.config import KIND as MEASURED
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.config import KIND as ERASED
from fastattnerase.studies.serrano_smith.result import load


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def write(path: Path, rows: int) -> Path:
    """The same text over and over; two of three labels are `b`."""
    lines = [f"some words here,{'abb'[number % 3]}" for number in range(rows)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="module")
def trained(folder: Path) -> str:
    """What training prints."""
    return invoke(
        "train", "--data", write(folder / "notes.csv", 60), "--out", folder / "model", "--encoder",
        "noenc", "--epochs", 1, "--embedding-size", 4, "--hidden-size", 2, "--min-count", 1,
    )  # fmt: skip


def test_training_says_what_chance_is(folder: Path, trained: str) -> None:
    accuracy = r"accuracy 0\.(333|667)"  # one decision for all
    assert re.search(rf"FLANnoenc on notes: dev ({accuracy}) \(most freq.* 0\.667\) in ep", trained)
    assert re.search(rf", test ({accuracy}) \(most frequent class 0\.667\); saved", trained)
    assert "Note: this is hardly better than deciding the most frequent class always" in trained
    numbers = json.loads((folder / "model" / "model.json").read_text())["metadata"]
    assert numbers["dev_majority"] == numbers["test_majority"] == pytest.approx(2 / 3)


def test_a_long_name_of_a_class_leaves_a_line_readable(tmp_path: Path) -> None:
    labels = ["calm", "ch" + 500 * "e" + "rful"]
    rows = [f"some words here,{labels[number % 2]}" for number in range(40)]
    data = tmp_path / "long.csv"
    data.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    printed = invoke(
        "train", "--data", data, "--out", tmp_path / "model", "--encoder", "noenc", "--epochs", 1,
        "--embedding-size", 4, "--hidden-size", 2,
    )  # fmt: skip
    assert f"train: calm (16), ch{37 * 'e'}… (16)" in printed


def test_a_file_that_is_called_after_a_split_goes_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bookings").mkdir()
    monkeypatch.chdir(tmp_path / "bookings")
    for name in ("train", "dev", "test"):
        write(Path(f"{name}.csv"), 30)
    files = [f"--{name}={name}.csv" for name in ("train", "dev", "test")]
    tiny = ("--encoder", "noenc", "--epochs", 1, "--embedding-size", 4, "--hidden-size", 2)
    printed = invoke("train", *files, *tiny)
    assert "FLANnoenc on bookings: dev" in printed
    model = Path("runs/bookings-flannoenc")
    assert "FLANnoenc on bookings" in invoke("erase", "--model", model, "--resamples", 5)
    # The folder of a run stays that of the file: an interrupted one is found again.
    invoke("erase", "--model", model, "--data", "dev.csv", "--resamples", 5)
    assert load(model / "erase-dev").run.name == "FLANnoenc on bookings applied to bookings/dev"


@pytest.mark.usefixtures("trained")
def test_a_model_on_other_data_is_named_after_both(folder: Path) -> None:
    printed = invoke(
        "erase", "--model", folder / "model", "--data", write(folder / "other.csv", 9), "--out",
        folder / "run", "--resamples", 5,
    )  # fmt: skip
    assert "FLANnoenc on notes applied to other" in printed
    run = load(folder / "run")
    assert run.run.name == "FLANnoenc on notes applied to other"
    assert run.counts.majority == pytest.approx(2 / 3)
    # The flag stands before the numbers.
    assert 0 <= printed.index("Note: The model decides “") < printed.index("ranking")


@pytest.mark.parametrize(("agree", "start"), [(True, "FLAN-like ranking"), (False, "No verdict: ")])
def test_tensors_that_are_not_the_models_get_no_verdict(
    agree: bool, start: str, tmp_path: Path
) -> None:
    batch = batch_of([0, 1, 2, 3, 4])
    decisions = torch.tensor([1, 0, 1, 1, 0])
    logits = torch.nn.functional.one_hot(decisions if agree else 1 - decisions, 2).float()
    tensors = {name: getattr(batch, name) for name in ("values", "weights", "offsets")}
    heads = {"head_weight": batch.head_weight, "head_bias": batch.head_bias}
    save_file(tensors | heads | {"logits": logits}, tmp_path / "layer.safetensors")
    printed = invoke(
        "erase", "--tensors", tmp_path / "layer.safetensors", "--out", tmp_path / "run",
        "--resamples", 5, "--name", "FLAN-like",
    )  # fmt: skip
    assert printed.startswith(start)
    assert ("before anything is erased, 5 of 5 decisions" in printed) is not agree
    assert ("a random order" in printed) is agree


def test_a_models_run_is_found_whatever_its_folder_is_called(tmp_path: Path) -> None:
    for name, kind in (("erase-notes", MEASURED), ("mine", ERASED), ("erase", "other")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"kind": kind}))
    assert find_run(tmp_path) == tmp_path / "mine"
    # One that an error ended is none beside a finished one.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text(json.dumps({"kind": ERASED}))
    with pytest.raises(RunError, match="holds several runs"):
        find_run(tmp_path)
    (tmp_path / "mine" / "result.json").write_text("{}")
    assert find_run(tmp_path) == tmp_path / "mine"
    (tmp_path / "other" / "run.json").unlink()
    (tmp_path / "mine" / "run.json").unlink()
    with pytest.raises(RunError, match=r"erase-notes holds a measurement, which lacks"):
        find_run(tmp_path)
