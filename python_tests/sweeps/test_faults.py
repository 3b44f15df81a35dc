"""Whatever ends a sweep, the same command ends with the tables of one that nothing disturbed.

Commands in processes of their own, which takes minutes; `test_sweep.py` and `test_engines.py` have
the same within this process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeps.drawn import Drawn, dump_of
from sweeps.whole import (
    descendants,
    differences,
    kill,
    left_behind,
    named,
    records,
    run,
    sweep,
    torchrun,
)

pytestmark = pytest.mark.long
SOME = 7  # shards that are done before something happens


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dump_of(Drawn(), tmp_path_factory.mktemp("dump") / "dump")


@pytest.fixture(scope="module")
def whole(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    run(sweep(dump, out))
    assert records(out) >= 40
    return out


def test_what_a_sweep_leaves_is_all_compared(whole: Path) -> None:
    names = set(left_behind(whole))
    assert {
        "manifest.json",
        "aggregate/result.json",
        "aggregate/multi.parquet",
        "aggregate/tables/multi_weight.csv",
        "parts/multi/shard-000039.parquet",
        "shards/shard-000039.json",
    } <= names


def test_a_driver_that_is_killed(dump: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert kill(sweep(dump, out), out, SOME) == -9
    assert SOME <= records(out) < 40
    run(sweep(dump, out))
    assert differences(whole, out) == []


@pytest.mark.parametrize("engine", ["jobs", "ray", "ranks"])
def test_every_engine_leaves_the_same_bytes(
    dump: Path, whole: Path, tmp_path: Path, engine: str
) -> None:
    """Two processes, two Ray workers, two ranks of torchrun."""
    out = tmp_path / "out"
    command = sweep(dump, out)
    run(
        {
            "jobs": [*command, "--jobs", "2"],
            "ray": [*command, "--engine", "ray", "--jobs", "2"],
            "ranks": torchrun(2, [*command, "--engine", "ranks"]),
        }[engine]
    )
    assert differences(whole, out) == []


def test_a_driver_of_several_processes_that_is_killed(
    dump: Path, whole: Path, tmp_path: Path
) -> None:
    """Its children end with it, and the folder is free at once."""
    out = tmp_path / "out"
    assert kill(sweep(dump, out, "--jobs", "2"), out, SOME) == -9
    run(sweep(dump, out, "--jobs", "2"))
    assert differences(whole, out) == []


def test_a_rank_that_is_killed(dump: Path, whole: Path, tmp_path: Path) -> None:
    """torchrun ends the other rank; three ranks finish what two began."""
    out = tmp_path / "out"
    command = sweep(dump, out, "--engine", "ranks")
    code = kill(
        torchrun(2, command), out, SOME, lambda process: named(process, "fastattnerase", "ranks")
    )
    assert code != 0
    run(torchrun(3, command))
    assert differences(whole, out) == []


def test_a_ray_worker_that_is_killed(dump: Path, whole: Path, tmp_path: Path) -> None:
    """A dead actor is replaced and its shard done again, in the same call."""
    out = tmp_path / "out"
    command = sweep(dump, out, "--engine", "ray", "--jobs", "2")
    code = kill(command, out, SOME, lambda process: named(process, "ray::"))
    assert code == 0
    assert differences(whole, out) == []


@pytest.mark.parametrize("harm", ["truncated", "flipped"])
def test_a_damaged_shard_is_set_aside_and_done_again_where_it_is_mended(
    dump: Path, whole: Path, tmp_path: Path, harm: str
) -> None:
    damaged, out = tmp_path / "dump", tmp_path / "out"
    shutil.copytree(dump, damaged)
    path = damaged / "shard-000011.safetensors"
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        content[:middle]
        if harm == "truncated"
        else content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    )
    said = run(sweep(damaged, out), code=3)
    assert "shard-000011" in said
    assert records(out) == records(whole)
    assert not (out / "parts" / "multi" / "shard-000011.parquet").exists()
    run(sweep(damaged, out), code=3)  # it stays aside until it is tried again
    path.write_bytes(content)
    run(sweep(damaged, out, "--retry"))
    assert differences(whole, out) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine mounts no file systems")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(dump: Path, whole: Path, tmp_path: Path, small_disk: Path) -> None:
    out = small_disk / "out"
    said = run(sweep(dump, out), code=2)
    [line] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "No space left on device" in line
    assert 0 < records(out) < 40
    assert not list(out.rglob("*.partial"))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    run(sweep(dump, out))
    assert differences(whole, out) == []


def test_nobody_is_left_running() -> None:
    """The processes that these tests have started have ended."""
    assert not [
        number
        for number in descendants(os.getpid())
        if b"sweep" in Path(f"/proc/{number}/cmdline").read_bytes()
    ]
