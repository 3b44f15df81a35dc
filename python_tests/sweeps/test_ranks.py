"""Ranks of one call: what one of them does again the others do not take for done."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from fastattnerase.dumps.reading import open_batches
from fastattnerase.sweeps import run
from fastattnerase.sweeps.engines import Rank
from fastattnerase.sweeps.folder import taken
from fastattnerase.sweeps.options import Options
from fastattnerase.sweeps.records import Manifest, part_path, read_manifest, read_shard
from fastattnerase.sweeps.run import sweep_dump
from fastattnerase.sweeps.work import Job, Worker

FILES = [f"shard-{number:06d}.safetensors" for number in range(8)]
MINE, OTHER = FILES[0], FILES[1]  # of rank 0, which is looked at, and of rank 1


@pytest.fixture
def own(dump: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dump, tmp_path / "dump"))


def sweep_of(own: Path, number: int, *, retry: bool = False) -> Manifest:
    """Sweep the shards of one of two ranks into the folder beside the dump."""
    rank, options = Rank(number, 2, "2 ranks", number), Options("ranks", retry=retry)
    return sweep_dump(own, own.parent / "out", tiny.CONFIG, options, name="tiny", rank=rank)


def swept_with_damage(own: Path, *names: str) -> Path:
    """Sweep a dump of which some files are damaged; give the folder."""
    for name in names:
        (own / name).write_bytes(b"")
    out = own.parent / "out"
    assert len(sweep_dump(own, out, tiny.CONFIG, Options(), name="tiny").aside) == len(names)
    return out


def while_waiting(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> list[float]:
    """Have something happen when a rank first waits for others; give the pauses of all waits."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            happens()

    monkeypatch.setattr(run.time, "sleep", sleep)
    return pauses


def test_a_rank_with_nothing_to_do_again_does_not_end_the_sweep(
    dump: Path, own: Path, whole: dict[str, str]
) -> None:
    """Rank 1 has just begun with a shard that was set aside."""
    out = swept_with_damage(own, OTHER)
    shutil.copy(dump / OTHER, own)
    opened = open_batches(own)
    state = run.state_of(opened, tiny.CONFIG, "tiny")
    with taken(out, state, opened.shards, retry=True, call="2 ranks", rank=1):
        assert not read_manifest(out).complete
        found = sweep_of(own, 0, retry=True)
        assert (found.complete, found.done, found.aside) == (False, 7, {})
    assert sweep_of(own, 1, retry=True).complete
    assert tiny.digests(out) == whole


def test_a_rank_waits_for_one_that_does_again_what_was_set_aside(
    dump: Path, own: Path, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own shard is damaged still: did it end with a code, torchrun would end the other."""
    out = swept_with_damage(own, MINE, OTHER)
    shutil.copy(dump / OTHER, own)
    pauses = while_waiting(monkeypatch, lambda: sweep_of(own, 1, retry=True))
    found = sweep_of(own, 0, retry=True)
    assert (found.complete, found.done, list(found.aside)) == (True, 7, ["shard-000000"])
    assert pauses == [0.2]
    assert tiny.digests(out).items() < whole.items()
    assert len(tiny.digests(out)) == len(whole) - 4


def test_a_rank_waits_for_one_that_makes_a_part_that_is_gone(
    own: Path, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = swept_with_damage(own, MINE)
    lost = part_path(out, "multi", "shard-000001")
    lost.unlink()
    while_waiting(monkeypatch, lambda: sweep_of(own, 1))
    found = sweep_of(own, 0)
    assert (found.complete, found.done) == (True, 7)
    assert tiny.digests(out)["multi/shard-000001.parquet"] == whole["multi/shard-000001.parquet"]


def test_a_rank_that_waits_reads_no_records_while_others_are_at_work(
    dump: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And looks at them less and less often."""
    out = swept_with_damage(own, MINE, OTHER)
    shutil.copy(dump / OTHER, own)
    opened = open_batches(own)
    state = run.state_of(opened, tiny.CONFIG, "tiny")
    pauses: list[float] = []
    read: list[int] = []  # the number of pauses before each reading of all records
    renew = run.renew_manifest
    monkeypatch.setattr(
        run, "renew_manifest", lambda out: [read.append(len(pauses)), renew(out)][1]
    )
    with taken(out, state, opened.shards, retry=True, call="2 ranks", rank=1) as others_at_work:

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 6:
                Worker(Job(own, out, tiny.CONFIG)).run(opened.shards[1])
                others_at_work()  # gives back its own place among them

        monkeypatch.setattr(run.time, "sleep", sleep)
        assert sweep_of(own, 0, retry=True).complete
    assert pauses == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert read == [0, 6]


def test_a_killed_retry_leaves_its_shards_undone(own: Path) -> None:
    """Killed once the records of what it does again are deleted, before anything is done."""
    out = swept_with_damage(own, MINE, OTHER)
    opened = open_batches(own)
    state = run.state_of(opened, tiny.CONFIG, "tiny")
    with pytest.raises(KeyboardInterrupt), taken(out, state, opened.shards, retry=True):
        raise KeyboardInterrupt
    assert read_shard(out, "shard-000000") is None
    found = read_manifest(out)
    assert (found.complete, found.done, found.aside) == (False, 6, {})
    again = sweep_dump(own, out, tiny.CONFIG, Options(), name="tiny")
    assert list(again.aside) == ["shard-000000", "shard-000001"]
