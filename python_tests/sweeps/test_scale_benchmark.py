"""The benchmark of large sweeps in little, and its model on numbers worked out by hand."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def imported(name: str) -> Iterator[ModuleType]:
    """Import a script; scripts import their neighbours."""
    sys.path.append(str(BENCHMARKS))
    yield importlib.import_module(name)
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def model() -> Iterator[ModuleType]:
    yield from imported("scale_model")


@pytest.fixture(scope="module")
def scale() -> Iterator[ModuleType]:
    yield from imported("scale")


def test_the_slower_of_reading_and_computing_decides(model: ModuleType) -> None:
    """Of 1,000 items: read in 10 s; the engine takes 4 s, tables of 10 instances 1 s."""
    rates = model.Rates(
        item_bytes=8.0,
        instance_items=100.0,
        result_bytes=50.0,
        reader=100.0,
        engine=250.0,
        native=0.5,
        results=10.0,
        kernel=1000.0,
    )
    assert model.predicted(rates, 1000) == 10.0
    slow = model.replace(rates, engine=50.0)
    assert model.predicted(slow, 1000) == 21.0
    # Two processes read and write twice as much, and compute on the same cores.
    assert model.predicted(slow, 1000, jobs=2) == 20.5
    assert model.predicted(rates, 1000, jobs=2) == pytest.approx(5.0)
    # Half of the engine's 0.4 s an instance is tables, which take 0.1 s more to write.
    assert rates.tables == pytest.approx(1 / 0.3)
    assumed = model.Assumed(disk=80.0, copy=16.0, written=5.0, workers=2, gpus=8)
    found = model.stages(rates, 1000.0, 16, assumed)
    assert found["storage read"] == 8000 / 160  # of two nodes
    assert found["checksum and reader"] == 1000 / (100 * 32)
    assert found["copy to the GPU"] == 8000 / (16 * 16)
    assert found["kernels"] == 1000 / 16000
    assert found["tables on the host"] == pytest.approx(10 * 0.3 / 32)
    assert found["results written"] == 500 / 10


def test_times_are_written_as_people_say_them(model: ModuleType) -> None:
    assert [model.clock(s) for s in (5, 90, 7200, 500_000)] == [
        "5.0 s",
        "1.5 min",
        "2.0 h",
        "5.8 days",
    ]


def test_a_used_folder_gives_no_numbers_of_what_was_there(
    scale: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = ["--folder", str(tmp_path), "--shard-bytes", "100000", "--make"]
    assert scale.main([*call, "--items", "1000"]) == 0
    assert scale.main([*call, "--items", "1000"]) == 0
    with pytest.raises(SystemExit):
        scale.main([*call, "--items", "2000"])
    dump, out = tmp_path / "values", tmp_path / "values-out"
    told = f"{dump}: given a dump of --items 1000, needed one of 2000, or another --folder"
    assert told in capsys.readouterr().err
    (out / "shards").mkdir(parents=True)
    (out / "shards" / "shard-000000.json").touch()

    def watch(command: list[str], shards: Path) -> list[tuple[float, int, int]]:
        assert not out.exists()
        return [(0.0, 0, 5), (1.0, 1, 7), (3.0, total, 7)]

    monkeypatch.setattr(scale, "watch", watch)
    shards = scale.read_manifest(dump).shards
    total = len(shards)
    assert total > 1
    found = scale.sweep(dump, out, 1)
    assert found["items_per_second"] == sum(shard.items for shard in shards[1:]) / 2


@pytest.mark.long
def test_the_benchmark_runs_in_little(tmp_path: Path) -> None:
    """Its thresholds are for large sweeps; what it measures is all there."""
    path = tmp_path / "scale.json"
    command = [sys.executable, str(BENCHMARKS / "scale.py"), "--items", "40000"]
    command += ["--shard-bytes", "300000", "--folder", str(tmp_path), "--json", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert path.is_file(), found.stderr
    rows = json.loads(path.read_text())["scale"]
    assert [row["form"] for row in rows] == ["values", "compact"]
    for row in rows:
        assert row["instances"] == 200
        assert row["sweep"]["rss_anon_peak"] > 0
        assert row["engine_items_per_second"] > 0
    assert rows[1]["bytes"] < rows[0]["bytes"] / 4
    command = [sys.executable, str(BENCHMARKS / "scale_model.py"), "--scale", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100).stdout
    assert "## A trillion items on H100s" in said


@pytest.mark.long
def test_the_stages_of_a_sweep_are_measured_in_little(tmp_path: Path) -> None:
    """The stage of `gpu_check.sh`, without a GPU: nothing is copied."""
    path = tmp_path / "sweep.json"
    command = [sys.executable, str(BENCHMARKS / "scale_gpu.py"), "--device", "cpu"]
    command += ["--items", "40000", "--shard-bytes", "2000000", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert found["items"] > 30_000
    assert list(found["stages"]) == [
        "reading",
        "copy",
        "weights",
        "kernels",
        "results",
        "tables",
        "writing",
    ]
    assert all(stage["share"] >= 0 for stage in found["stages"].values())
    assert found["stages"]["tables"]["items_per_second"] > 0
