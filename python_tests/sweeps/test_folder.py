"""Who may work in the folder of a sweep, and at once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import tiny

from fastattnerase.dumps.reading import open_batches
from fastattnerase.runs.rundir import RunError
from fastattnerase.sweeps import folder
from fastattnerase.sweeps.records import SweepState, part_path
from fastattnerase.sweeps.run import state_of


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> SweepState:
    dump = tiny.make_dump(tmp_path_factory.mktemp("dump") / "dump")
    return state_of(open_batches(dump), tiny.CONFIG, "tiny")


def test_two_calls_refuse_each_other(state: SweepState, tmp_path: Path) -> None:
    with folder.taken(tmp_path, state, ()):
        for call in ("", "2 ranks"):
            with (
                pytest.raises(RunError, match=r"process \d+ has been sweeping since \d{4}-"),
                folder.taken(tmp_path, state, (), call=call),
            ):
                pass
    with folder.taken(tmp_path, state, ()):
        pass


def test_ranks_of_a_call_share_a_folder(state: SweepState, tmp_path: Path) -> None:
    with folder.taken(tmp_path, state, (), call="2 ranks a", rank=0) as others_at_work:
        with folder.taken(tmp_path, state, (), call="2 ranks a", rank=1) as first_at_work:
            for call in ("", "2 ranks b"):
                with (
                    pytest.raises(RunError, match="needed another folder"),
                    folder.taken(tmp_path, state, (), call=call),
                ):
                    pass
            assert others_at_work()
            assert not first_at_work()  # the other has just said that it is at work no more
        # The second goes on, and another comes.
        with folder.taken(tmp_path, state, (), call="2 ranks a", rank=1):
            assert others_at_work()
        assert not others_at_work()


def test_a_rank_is_there_once(state: SweepState, tmp_path: Path) -> None:
    """As of two calls of torchrun, whose environment does not tell them apart."""
    name = "2 ranks TORCHELASTIC_RUN_ID=none"
    with folder.taken(tmp_path, state, (), call=name, rank=1):
        with (
            pytest.raises(
                RunError, match=r"process \d+ has been sweeping since .* as rank 1 of what seems "
            ),
            folder.taken(tmp_path, state, (), call=name, rank=1),
        ):
            pass
        with folder.taken(tmp_path, state, (), call=name, rank=0):
            pass


def test_the_last_rank_deletes_what_one_left_that_was_killed(
    state: SweepState, tmp_path: Path
) -> None:
    part = part_path(tmp_path, "multi", "shard-000001")
    with folder.taken(tmp_path, state, (), call="2 ranks", rank=0):
        part.parent.mkdir(parents=True)
        partial = part.with_name(f"{part.name}.1.partial")
        partial.touch()
        with folder.taken(tmp_path, state, (), call="2 ranks", rank=1):
            pass
        assert partial.exists()
    assert not partial.exists()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_named(
    number: int, state: SweepState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: object, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder.fcntl, "flock", flock)
    with (
        pytest.raises(RunError, match=f"^{tmp_path}: given a file system without locks .*flock"),
        folder.taken(tmp_path, state, ()),
    ):
        pass
