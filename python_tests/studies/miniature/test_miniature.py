"""The miniature study, whole: its numbers, restart, other options, page and command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest
import typer
from studies.miniature.options import Options
from studies.miniature.units import Miniature
from typer.testing import CliRunner

from fastattnerase.cli.reproduce import command_of
from fastattnerase.runs import schedule
from fastattnerase.runs.rundir import RunError
from fastattnerase.runs.workspace import Record, Workspace
from fastattnerase.studies import STUDIES, Study

# The decision is 1 where the mean of the margins, by attention, is positive.
INSTANCES = """\
instance,attention,margin
flips at once,0.5,2
flips at once,0.3,-1
flips at once,0.2,-0.5
flips with nothing left,0.5,1
flips with nothing left,0.5,1
never flips,0.6,-1
never flips,0.4,-2
"""
LISTED = Study("miniature", "studies.miniature", "Miniature")


class Watcher:
    """Remembers what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def plan(self, costs: dict[str, float], done: int) -> None:
        self.before = done

    def at(self, key: str, share: float) -> None:
        assert 0 <= share <= 1

    def finished(self, key: str, record: Record) -> None:
        self.done.append(key)


def run(workspace: Miniature, jobs: int = 1) -> Watcher:
    watcher = Watcher()
    schedule.run(workspace, jobs, watcher)
    return watcher


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "instances.csv").write_text(INSTANCES)
    return tmp_path


@pytest.mark.parametrize("jobs", [1, 2])
def test_numbers(root: Path, jobs: int) -> None:
    workspace = Miniature(Options(), root, root / "out")
    done = run(workspace, jobs).done
    assert done[0] == "instances"
    assert sorted(done[1:3]) == ["erase/attention", "erase/random"]
    assert done[3] == "report"
    flips = pd.read_csv(root / "out" / "erase" / "attention" / "flips.csv")
    assert flips["first_flip"].tolist() == [1, 2, -1]
    table = pd.read_csv(root / "out" / "report" / "flips.csv").set_index("ranking")
    assert table.loc["attention"].tolist() == [2, (1 / 3 + 2 / 2) / 2]
    manifest = json.loads((root / "out" / "manifest.json").read_text())
    assert all(unit["done"] for unit in manifest["units"])
    page = (root / "out" / "report" / "report.html").read_text()
    assert "<td>2</td><td>0.667</td>" in page
    assert "http" not in page.replace("http://www.w3.org", "")  # names of SVG, loaded by nobody


def test_a_study_that_was_killed_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(Exception):
        pass

    erase = Miniature.erase

    def killed(self: Miniature, ranking: str, *arguments: object) -> dict[str, object]:
        if ranking == "random":
            raise Killed
        return erase(self, ranking, *arguments)  # type: ignore[arg-type]

    workspace = Miniature(Options(), root, root / "out")
    monkeypatch.setattr(Miniature, "erase", killed)
    with pytest.raises(Killed):
        run(workspace)
    monkeypatch.undo()
    watcher = run(workspace)
    assert (watcher.before, watcher.done) == (2, ["erase/random", "report"])
    assert run(workspace).done == []


def test_other_options_and_data(root: Path) -> None:
    out = root / "out"
    run(Miniature(Options(), root, out))
    with pytest.raises(RunError, match=r"random was made .*: seed is 0 there and 1 here; choose"):
        run(Miniature(Options(seed=1), root, out))
    more = Miniature(Options(rankings=("attention", "random", "gradient")), root, out)
    assert run(more).done == ["erase/gradient", "report"]
    os.utime(root / "instances.csv", ns=(0, 0))
    with pytest.raises(RunError, match=r"instances was made .*: instances\.csv has changed"):
        run(more)


def test_the_command_is_made_of_the_options(root: Path) -> None:
    app = typer.Typer()
    command_of(LISTED).add_to(app)
    app.callback()(lambda: None)
    help = " ".join(CliRunner().invoke(app, ["miniature", "--help"]).output.split())
    assert "Erase items by several rankings until each decision changes." in help
    assert "Seed of the random ranking." in help
    arguments = ["miniature", "--data-root", str(root), "--out", str(root / "out")]
    finished = CliRunner().invoke(app, [*arguments, "--rankings", "gradient"])
    assert finished.exit_code == 0, finished.output
    assert finished.stdout.strip() == str(root / "out" / "report" / "report.html")
    assert "erase/gradient: 0 s, 2 flip" in finished.stderr
    refused = CliRunner().invoke(app, [*arguments, "--rankings", "best"])
    assert refused.exit_code == 2
    assert "--rankings: given 'best', needed one of" in " ".join(refused.stderr.split())


def test_every_folder_of_a_study_is_in_the_list() -> None:
    import fastattnerase.studies

    folders = [path for path in Path(fastattnerase.studies.__path__[0]).iterdir() if path.is_dir()]
    found = {f"fastattnerase.studies.{path.name}" for path in folders if path.name != "__pycache__"}
    # `compare` is asked of any model and reproduces no paper, so that it has a command of its own.
    assert found - {"fastattnerase.studies.compare"} == {study.package for study in STUDIES}
    assert len({study.name for study in STUDIES}) == len(STUDIES)
    for study in STUDIES:
        assert issubclass(study.load("units", study.workspace), Workspace)
