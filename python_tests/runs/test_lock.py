"""Two commands on one folder: the second says that another is writing there."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import fastattnerase as fae
from fastattnerase import mi
from fastattnerase.cli.app import app
from fastattnerase.runs import lock, schedule
from fastattnerase.runs.lock import LOCK, alone
from fastattnerase.runs.rundir import RunError
from fastattnerase.runs.workspace import Report, Unit, Workspace
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config

_ALONE = """
import sys
from fastattnerase.runs.lock import alone
with alone(Path(sys.argv[1])):
    pass
"""
_HOLD = """
import sys
from pathlib import Path
from fastattnerase.runs.lock import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Lock a folder in another process, until its input is closed or it is killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    try:
        yield child
    finally:
        for stream in (child.stdin, child.stdout):
            assert stream is not None
            stream.close()
        child.wait()


class Two:
    """One instance of two items, as a source."""

    classes = ["no", "yes"]  # noqa: RUF012

    def __len__(self) -> int:
        return 1

    def chunks(self, start: int) -> Iterator[Chunk]:
        if start == 0:
            values, head = torch.tensor([[2.0], [-1.0]]), torch.tensor([[0.0], [1.0]])
            weights = torch.tensor([0.5, 0.5])
            yield Chunk(
                fae.AttentionBatch(values, torch.tensor([0, 2]), weights=weights, head_weight=head)
            )

    def select(self, rows: list[int]) -> Iterator[Chunk]:
        return self.chunks(0)

    def describe(self) -> dict[str, str]:
        return {"what": "two items"}


class One(Workspace):
    """A study of one unit, which erases."""

    def units(self) -> list[Unit]:
        return [Unit("erase", self._erase, dict)]

    def _erase(self, folder: Path, report: Report) -> dict[str, int]:
        result = experiment.run(Two(), Config(resamples=5), folder, name="two")
        return {"instances": result.counts.instances}


class Quiet:
    def plan(self, costs: dict[str, float], done: int) -> None: ...
    def at(self, key: str, share: float) -> None: ...
    def finished(self, key: str, record: object) -> None: ...


def test_the_second_is_told_who_is_first(tmp_path: Path) -> None:
    with held(tmp_path) as child:
        told = (
            re.escape(f"{tmp_path}: given a folder in which process {child.pid} has been writing ")
            + r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, needed another folder \(--out\), or that"
        )
        with pytest.raises(RunError, match=told), alone(tmp_path):
            pass
        for run in (
            lambda: experiment.run(Two(), Config(), tmp_path, name="two"),
            lambda: mi.run(Two(), mi.Config(), tmp_path, name="two"),
            lambda: schedule.run(One(tmp_path), 1, Quiet()),
        ):
            with pytest.raises(RunError, match=told):
                run()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    with alone(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"{os.getpid()} ")


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    with held(tmp_path) as child:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        with alone(tmp_path):
            pass


def test_who_waits_comes_after(tmp_path: Path) -> None:
    done: list[str] = []

    def wait() -> None:
        with alone(tmp_path, wait=True):
            done.append("second")

    second = threading.Thread(target=wait)
    with held(tmp_path) as child:
        second.start()
        done.append("first")
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
        second.join()
    assert done == ["first", "second"]


def test_the_holder_may_ask_again_and_another_thread_may_not(tmp_path: Path) -> None:
    refused: list[bool] = []

    def ask() -> None:
        try:
            with alone(tmp_path):
                refused.append(False)
        except RunError:
            refused.append(True)

    with alone(tmp_path):
        with alone(tmp_path / "."):
            pass
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    ask()
    assert refused == [True, False]


def test_a_training_in_the_folder_of_another(tmp_path: Path) -> None:
    data = tmp_path / "reviews.csv"
    data.write_text("text,label\n" + "good film,1\nbad film,0\n" * 10)
    train = ["train", "--data", str(data), "--text-column", "text", "--label-column", "label"]
    with held(tmp_path / "model") as child:
        found = CliRunner().invoke(app, [*train, "--epochs", "1", "--out", str(tmp_path / "model")])
    assert found.exit_code == 2
    assert f"given a folder in which process {child.pid} has been writing since" in found.stderr
    assert [path.name for path in (tmp_path / "model").iterdir()] == [LOCK]


@pytest.mark.parametrize("jobs", [1, 2])
def test_workers_of_a_study_share_its_folder(tmp_path: Path, jobs: int) -> None:
    manifest = schedule.run(One(tmp_path), jobs, Quiet())
    [unit] = manifest["units"]
    assert unit["numbers"] == {"instances": 1}
    assert LOCK not in unit["files"]


def test_a_file_of_an_older_version_and_a_folder_that_is_a_file(tmp_path: Path) -> None:
    with held(tmp_path):
        (tmp_path / LOCK).write_bytes(b"")
        with pytest.raises(RunError, match="in which another process is writing"), alone(tmp_path):
            pass
    with pytest.raises(OSError, match=LOCK), alone(tmp_path / LOCK):
        pass


def test_a_folder_that_cannot_be_written_to_needs_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(lock, "open", refuse, raising=False)
    with alone(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []


def fail_in(folder: Path, work: Callable[[], object] = lambda: None) -> None:
    """Lock a folder, do something there, and fail."""
    with alone(folder):
        work()
        raise RunError


def test_a_folder_in_which_nothing_came_of_it_is_gone_again(tmp_path: Path) -> None:
    folder, kept = tmp_path / "runs" / "new", tmp_path / "kept"
    with pytest.raises(RunError):
        fail_in(folder)
    assert not folder.parent.exists()
    kept.mkdir()  # was there before
    with pytest.raises(RunError):
        fail_in(kept)
    assert kept.exists()
    with pytest.raises(RunError):
        fail_in(folder, lambda: (folder / "run.json").write_text("{}"))
    assert sorted(file.name for file in folder.iterdir()) == [LOCK, "run.json"]


def test_a_lock_whose_file_is_taken_away_is_taken_anew(tmp_path: Path) -> None:
    """Who waits for a folder that its first process clears away makes a folder of its own."""
    folder = tmp_path / "new"
    begun, done = threading.Event(), threading.Event()

    def wait_and_fail() -> None:
        with pytest.raises(RunError):
            fail_in(folder, lambda: (begun.set(), done.wait(timeout=60)))

    thread = threading.Thread(target=wait_and_fail)
    thread.start()
    assert begun.wait(timeout=60)
    threading.Timer(0.3, done.set).start()
    with alone(folder, wait=True):
        thread.join()
        assert (folder / LOCK).is_file()
        code = f"from pathlib import Path\n{_ALONE}"
        refused = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True
        )
        assert "RunError" in refused.stderr
