"""A study with two seeds: folders, records, tables and findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies.serrano_smith.small_study import write_small_study
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.study import Study, read_study
from fastattnerase.studies.serrano_smith.units import SerranoSmith


def _write(folder: Path, seeds: str = "seeds = [3, 5]") -> Path:
    path = write_small_study(folder)
    text = path.read_text().replace('name = "small"', f'name = "small"\n{seeds}')
    # One corpus is enough.
    path.write_text(text.partition('[[corpora]]\nname = "Stars"')[0])
    return path


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> SerranoSmith:
    folder = tmp_path_factory.mktemp("seeds")
    made = SerranoSmith(read_study(_write(folder)), folder, folder / "out", until="erase")
    for unit in made.units():
        made.run(unit, lambda share: None)
    return made


@pytest.fixture(scope="module")
def results(workspace: SerranoSmith) -> list[Result]:
    return workspace.results()


def test_each_seed_has_units_and_folders_of_its_own(workspace: SerranoSmith) -> None:
    keys = [unit.key for unit in workspace.units()]
    assert keys[:2] == ["prepare/films-2", "embed/films-2"]
    assert keys[2:6] == [
        "train/films-2/FLANnoenc-3", "erase/films-2/FLANnoenc-3",
        "train/films-2/FLANnoenc-5", "erase/films-2/FLANnoenc-5",
    ]  # fmt: skip
    assert (workspace.out / "erase" / "films-2" / "hanconv-5" / "result.json").is_file()
    about = {unit.key: unit.about for unit in workspace.units()}
    assert about["train/films-2/HANconv-5"]["seed"] == 5
    assert "seed" not in about["prepare/films-2"]


def test_models_are_trained_with_the_seed(workspace: SerranoSmith, results: list[Result]) -> None:
    for result in results:
        source = result.run.source
        assert source["seed"] == source["model_config"]["seed"] == source["train_config"]["seed"]
        assert result.run.name == f"{source['architecture']} on Films (2), seed {source['seed']}"
    first, second = (
        workspace.out / "train" / "films-2" / f"flannoenc-{seed}" / "model.safetensors"
        for seed in (3, 5)
    )
    assert first.read_bytes() != second.read_bytes()


def test_a_study_without_seeds_is_as_before(tmp_path: Path) -> None:
    study = read_study(_write(tmp_path, seeds=""))
    assert "seeds" not in study.to_dict()
    plain = SerranoSmith(study, tmp_path, tmp_path / "out")
    train = plain.units()[2]
    assert train.key == "train/films-2/FLANnoenc"
    assert "seed" not in train.about
    assert "seed" not in train.state()["model"]


def test_seeds_are_read_and_written(tmp_path: Path) -> None:
    study = read_study(_write(tmp_path))
    assert study.seeds == (3, 5)
    path = tmp_path / "study.json"
    path.write_text(json.dumps(study.to_dict()))
    assert read_study(path) == study


@pytest.mark.parametrize("wrong", ["[1, 1]", "[-1]", "[9223372036854775808]"])
def test_seeds_are_distinct_numbers(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"seeds: given .*, needed distinct numbers from 0"):
        read_study(_write(tmp_path, f"seeds = {wrong}"))


def test_a_seed_goes_over_all_other_options(tmp_path: Path) -> None:
    study = read_study(_write(tmp_path))
    study = Study(study.name, study.corpora, training={"seed": 9}, seeds=(3,))
    assert study.options(study.corpora[0], "FLANnoenc")[1] == {"seed": 9}
    assert study.options(study.corpora[0], "FLANnoenc", 3)[1] == {"seed": 3}


def test_the_command_takes_seeds(tmp_path: Path) -> None:
    path = _write(tmp_path)
    command = ["reproduce", "serrano-smith", "--data-root", str(tmp_path), "--study", str(path)]
    command += ["--until", "prepare", "--out", str(tmp_path / "out"), "--seeds"]
    assert CliRunner().invoke(app, [*command, "7"]).exit_code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["study"]["seeds"] == [7]
    for wrong in ("1,1", "a", "-2", ""):
        refused = CliRunner().invoke(app, [*command, wrong])
        assert refused.exit_code != 0
        assert "--seeds: given" in refused.output
