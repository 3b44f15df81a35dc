"""`fastattnerase sweep`: exit codes, progress as JSON lines, signals, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pandas as pd
import pytest
import tiny
import torch
from command_line import invoke, one_line

from fastattnerase import _C
from fastattnerase.cli.interrupts import MESSAGE
from fastattnerase.dumps.reading import open_batches
from fastattnerase.sweeps import run
from fastattnerase.sweeps.options import Options
from fastattnerase.sweeps.work import Job

FAST = ("--random-orders", "2", "--resamples", "5", "--device", "cpu")


def last_line(*arguments: object) -> str:
    """Run a command that begins, and must fail with one line after its progress; give that."""
    result = invoke(*arguments, code=2)
    assert "Traceback" not in result.output
    [bar, line] = result.stderr.splitlines()
    assert bar.startswith("sweeping")
    return line


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_sweep_ends_with_the_tables_of_erase(dump: Path, tmp_path: Path) -> None:
    """The same model's numbers, by the file alone and by dump and sweep."""
    tiny.make_dump(tmp_path / "one", shard_bytes=1 << 28)
    file = tmp_path / "one" / "shard-000000.safetensors"
    invoke("erase", "--tensors", file, *FAST, "--out", tmp_path / "run")
    told = invoke("sweep", dump, *FAST, "--out", tmp_path / "out", "--log", tmp_path / "log").stdout
    assert "8 of 8 shards done: 30 instances" in told
    assert f"Next: fastattnerase report {tmp_path / 'out'}" in told
    for table in ("instances", "multi", "single", "erased"):
        wanted, found = (
            pd.read_parquet(folder / f"{table}.parquet")
            for folder in (tmp_path / "run", tmp_path / "out" / "aggregate")
        )
        keys = [key for key in ("row", "ranking", "order", "place") if key in wanted]
        wanted, found = (
            frame.sort_values(keys, kind="stable").reset_index(drop=True)
            for frame in (wanted, found)
        )
        pd.testing.assert_frame_equal(found, wanted, check_exact=True)
    # Its log: the begin, eight shards, the end.
    first, *shards, last = lines(tmp_path / "log")
    assert (first["event"], first["shards_done"], first["items_of_call"]) == ("begin", 0, 149)
    assert [line["event"] for line in shards] == ["done"] * 8
    assert [line["shards_done"] for line in shards] == [*range(1, 9)]
    assert shards[-1]["items_done"] == 149
    assert shards[-1]["seconds_left"] == 0
    assert (last["event"], last["complete"], last["done"]) == ("end", True, 8)
    # Again: nothing is left, and nothing is aggregated again.
    told = invoke("sweep", dump, *FAST, "--out", tmp_path / "out", "--log", tmp_path / "log").stdout
    assert "8 of 8 shards done" in told
    assert "Next" not in told
    assert lines(tmp_path / "log")[10]["shards_done"] == 8
    assert "Next" in invoke("sweep", "--out", tmp_path / "out", "--aggregate").stdout


def test_the_exit_code_is_3_while_shards_are_set_aside(dump: Path, tmp_path: Path) -> None:
    own = tmp_path / "dump"
    tiny.make_dump(own)
    path = own / "shard-000003.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    arguments = ("sweep", own, *FAST, "--out", tmp_path / "out")
    result = invoke(*arguments, "--log", tmp_path / "log", code=3)
    assert "7 of 8 shards done" in result.stdout
    assert "set aside: shard-000003: shard-000003.safetensors: given a file with CRC-32" in (
        result.stderr
    )
    assert "--retry does again what is set aside, once its reason is gone" in result.stderr
    [aside] = [line for line in lines(tmp_path / "log") if line["event"] == "aside"]
    assert aside["shard"] == "shard-000003"
    assert "it is damaged" in str(aside["reason"])
    assert (tmp_path / "out" / "aggregate" / "result.json").is_file()
    path.write_bytes(content)
    invoke(*arguments, code=3)
    assert "8 of 8 shards done" in invoke(*arguments, "--retry").stdout


def test_an_aggregate_is_made_anew_where_it_is_of_other_records(dump: Path, tmp_path: Path) -> None:
    """As of a rank that aggregated while another finished: its files may be the newest."""
    own, out = tmp_path / "dump", tmp_path / "out"
    tiny.make_dump(own)
    path = own / "shard-000003.safetensors"
    content = path.read_bytes()
    path.write_bytes(b"")
    arguments = ("sweep", own, *FAST, "--out", out)
    invoke(*arguments, code=3)
    path.write_bytes(content)
    invoke(*arguments, "--retry", "--no-aggregate")
    for written in (out / "aggregate").iterdir():
        os.utime(written, (4e9, 4e9))
    assert "Next" in invoke(*arguments).stdout
    rows = pd.read_parquet(out / "aggregate" / "instances.parquet")["row"]
    assert rows.tolist() == list(range(30))
    assert "Next" not in invoke(*arguments).stdout
    (out / "aggregate" / "run.json").unlink()
    assert "Next" in invoke(*arguments).stdout


def test_what_is_not_finished_is_not_aggregated(dump: Path, tmp_path: Path) -> None:
    own, out = tmp_path / "dump", tmp_path / "out"
    tiny.make_dump(own)
    invoke("sweep", own, *FAST, "--out", out, "--no-aggregate")
    (out / "shards" / "shard-000003.json").unlink()
    result = invoke("sweep", "--out", out, "--aggregate", code=2)
    assert "7 of 8 shards done" in result.stdout
    assert "given a sweep of which 1 of 8 shards are not done, needed a finished one" in (
        result.stderr
    )
    for path in own.glob("*.safetensors"):
        path.unlink()
    invoke("sweep", own, *FAST, "--out", tmp_path / "none", code=3)
    result = invoke("sweep", "--out", tmp_path / "none", "--aggregate", code=2)
    assert "given a sweep of which every shard is set aside, needed one that is done" in (
        result.stderr
    )


def test_a_mixture_of_engines_is_told(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a cluster whose processors have other instructions: last bits may differ."""
    arguments = ("sweep", dump, *FAST, "--backend", "cpu", "--out", tmp_path)
    assert "the last bits" not in invoke(*arguments).stderr
    usual = f"cpu-{_C.cpu_variant()}"
    for number in (2, 5, 6):
        (tmp_path / "shards" / f"shard-{number:06d}.json").unlink()
    monkeypatch.setattr(_C, "cpu_variant", lambda: "a")
    told = f"3 shards by cpu-a, 5 shards by {usual}: the last bits of numbers may be others"
    assert told in invoke(*arguments).stderr
    assert json.loads((tmp_path / "manifest.json").read_text())["engines"] == {
        "cpu-a": 3,
        usual: 5,
    }
    run_record = json.loads((tmp_path / "aggregate" / "run.json").read_text())
    assert run_record["source"]["engines"] == {"cpu-a": 3, usual: 5}


def test_the_order_is_that_of_the_dump_whatever_its_files_are_called(
    dump: Path, tmp_path: Path
) -> None:
    """The last file's name comes first; records without a first row follow the names."""
    own = tmp_path / "dump"
    tiny.make_dump(own)
    manifest = json.loads((own / "manifest.json").read_text())
    for number, shard in enumerate(manifest["shards"]):
        (own / shard["file"]).rename(own / f"part-{9 - number}.safetensors")
        shard["file"] = f"part-{9 - number}.safetensors"
    (own / "manifest.json").write_text(json.dumps(manifest))
    invoke("sweep", dump, *FAST, "--out", tmp_path / "out")
    invoke("sweep", own, *FAST, "--out", tmp_path / "other")
    for name in ("result.json", "tables/multi_weight.csv"):
        wanted, found = (tmp_path / out / "aggregate" / name for out in ("out", "other"))
        assert found.read_bytes() == wanted.read_bytes()
    tables = [
        pd.read_parquet(tmp_path / out / "aggregate" / "multi.parquet") for out in ("out", "other")
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    for path in (tmp_path / "other" / "shards").iterdir():
        record = json.loads(path.read_text())
        del record["first_row"]
        path.write_text(json.dumps(record))
    invoke("sweep", "--out", tmp_path / "other", "--aggregate")
    rows = pd.read_parquet(tmp_path / "other" / "aggregate" / "instances.parquet")["row"]
    assert sorted(rows) == list(range(30))
    assert rows[0] == manifest["shards"][-1]["first_row"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_with_one_line(
    number: signal.Signals, code: int, dump: Path, tmp_path: Path
) -> None:
    """At its first shard, which takes longer than the test: erased again and again."""
    hold = (
        "import sys, time\n"
        "from fastattnerase.cli import main\n"
        "from fastattnerase.sweeps import work\n"
        "def hold(*_, **__):\n"
        "    open(sys.argv[-1], 'w').close()\n"
        "    time.sleep(600)\n"
        "work.tables_of = hold\n"
        "main()\n"
    )
    # Handlers are there before torch is.
    script = "from fastattnerase.cli import interrupts\ninterrupts.handle()\n" + hold
    begun = tmp_path / "begun"
    call = [sys.executable, "-c", script, "sweep", str(dump), *FAST, "--out", str(tmp_path / "out")]
    child = subprocess.Popen([*call, "--log", str(begun)], stderr=subprocess.PIPE, text=True)
    while not begun.exists() or begun.stat().st_size:
        assert child.poll() is None, child.stderr
        time.sleep(0.05)
    child.send_signal(number)
    _, told = child.communicate(timeout=60)
    assert child.returncode == code
    assert f"stopped: {MESSAGE}" in told
    assert "Traceback" not in told
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_sigterm_before_torch_is_there_ends_it_with_one_line() -> None:
    script = (
        "import os, signal, sys\n"
        "from fastattnerase.cli import interrupts\n"
        "interrupts.handle()\n"
        "assert 'torch' not in sys.modules\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (143, f"stopped: {MESSAGE}\n")


def test_what_cannot_be_swept_is_refused_in_a_line(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ("--out", tmp_path / "out", *FAST)
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    told = {
        (): "DUMP: given none, needed the folder of a dump, or --aggregate",
        (tmp_path,): "given a folder without manifest.json",
        (tmp_path / "none",): "given no folder, needed a dump",
        (dump, "--engine", "spark"): "--engine: given 'spark', needed local, ranks or ray",
        (dump, "--engine", "ranks"): "given neither RANK and WORLD_SIZE nor SLURM_PROCID",
        (dump, "--jobs", "0"): "--jobs: given 0, needed at least 1",
        (dump, "--engine", "ranks", "--jobs", "2"): "--jobs: given with the engine ranks",
        (dump, "--ray-address", "x"): "--ray-address: given with the engine local, needed ray",
        (dump, "--cpus-per-worker", "2"): "--cpus-per-worker: given with the engine local",
        (dump, "--engine", "ray", "--ray-address", "x", "--backend", "none"): "given 'none'",
        (dump, "--memory", "much"): "--memory: given 'much', needed a size such as",
        (dump, "--memory", "255MiB"): "--memory: given 255MiB, needed at least 256MiB",
        (dump, "--backend", "none"): "--backend: given 'none'",
        (dump, "--rankings", "none"): "--rankings",
        ("--aggregate",): "given no sweep.json",
    }
    for arguments, line in told.items():
        assert line in one_line("sweep", *arguments, *out), arguments
    before = {path.name: path.read_bytes() for path in dump.iterdir()}
    line = one_line("sweep", dump, *FAST, "--out", dump)
    assert "a manifest.json of something else, such as a dump, needed another folder" in line
    assert {path.name: path.read_bytes() for path in dump.iterdir()} == before
    (tmp_path / "file").touch()
    assert "Not a directory" in one_line("sweep", dump, *FAST, "--out", tmp_path / "file" / "x")


def test_ray_that_is_not_installed_is_named_with_its_extra(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    told = last_line("sweep", dump, *FAST, "--engine", "ray", "--out", tmp_path)
    assert (
        "ray: not installed, needed here; install it with `pip install 'fastattnerase[ray]'`"
        in told
    )


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_cluster_s_gpus_are_not_looked_for_here(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """This machine may be one without; a Ray that is started here is another matter."""
    given: list[str] = []

    def work(job: Job, shards: object, options: object) -> NoReturn:
        given.append(job.device)
        raise OSError(28, "seen")

    monkeypatch.setattr(run, "_work", work)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ray = ("sweep", dump, *FAST, "--engine", "ray", "--out", tmp_path, "--device", device)
    last_line(*ray, "--ray-address", "auto")
    assert given == [device]
    told = "--device: given 'cuda:1' with the engine ray, needed auto, cpu or cuda: Ray chooses"
    assert told in one_line(*ray, "--device", "cuda:1")
    if device == "cuda":
        assert "needed cpu: torch finds no GPU here" in one_line(*ray)
    else:
        last_line(*ray)
        assert given == ["auto", "cpu"]


def test_a_full_disk_is_one_line(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(run, "_work", full)
    told = last_line("sweep", dump, *FAST, "--out", tmp_path)
    assert told == (
        "error: No space left on device; what is finished is kept, the same command goes on from "
        "there"
    )


def test_options_name_what_they_refuse() -> None:
    with pytest.raises(ValueError, match="engine: given 'x', needed local, ranks or ray"):
        Options("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cpus_per_worker: given 0, needed at least 1"):
        Options("ray", cpus_per_worker=0)


def test_a_dump_of_another_format_is_refused(dump: Path, tmp_path: Path) -> None:
    own = tmp_path / "dump"
    tiny.make_dump(own)
    manifest = own / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 9}))
    assert "given format 9, needed 1" in one_line("sweep", own, *FAST, "--out", tmp_path / "out")
    assert len(open_batches(dump)) == 8
