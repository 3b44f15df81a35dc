"""The same parts, whoever works: several processes, ranks of torchrun, actors of Ray."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch

import fastattnerase as fae
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith.erasure import erased, tables_of
from fastattnerase.sweeps import engines, on_ray, work
from fastattnerase.sweeps.engines import Rank, rank_of
from fastattnerase.sweeps.options import Options
from fastattnerase.sweeps.records import ShardRecord, record_path
from fastattnerase.sweeps.run import sweep_dump
from fastattnerase.sweeps.transfer import Mover, Staging, taken_off, with_copies

SAME = ("--random-orders", "2", "--resamples", "5", "--device", "cpu", "--no-aggregate")


def command(*arguments: object, launcher: tuple[str, ...] = ()) -> None:
    """Run the command in a process of its own, to its end."""
    launched = [*launcher, "-m", "--"] if launcher else ["-m"]
    call = [sys.executable, *launched, "fastattnerase", "sweep", *map(str, arguments), *SAME]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    found = subprocess.run(call, capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr


def test_two_processes(dump: Path, whole: dict[str, str], tmp_path: Path) -> None:
    assert tiny.swept(dump, tmp_path, jobs=2) == whole


def test_processes_share_the_cores_that_this_one_may_run_on(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which a scheduler's job or `taskset` makes fewer than the machine has."""
    threads: list[int | None] = []

    def no_pool(jobs: int, context: object, start: object, arguments: tuple[Any, ...]) -> None:
        threads.append(arguments[0].threads)
        raise RunError("seen")

    monkeypatch.setattr(engines, "ProcessPoolExecutor", no_pool)
    for mine, jobs in ((7, 2), (1, 2)):
        monkeypatch.setattr(engines, "cores", lambda mine=mine: mine)
        with pytest.raises(RunError, match="seen"):
            list(engines.side_by_side(work.Job(dump, tmp_path, tiny.CONFIG), [], jobs))
    assert threads == [3, 1]


def test_two_ranks_of_torchrun(dump: Path, whole: dict[str, str], tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    log = tmp_path / "log"
    command(dump, "--out", tmp_path, "--engine", "ranks", "--log", log, launcher=launcher)
    assert tiny.digests(tmp_path) == whole
    events = Counter(json.loads(line)["event"] for line in log.read_text().splitlines())
    assert events == {"begin": 2, "done": 8, "end": 2}


def test_two_actors_of_ray(dump: Path, whole: dict[str, str], tmp_path: Path) -> None:
    command(dump, "--out", tmp_path, "--engine", "ray", "--jobs", "2")
    assert tiny.digests(tmp_path) == whole


def rank_sweeps(dump: Path, out: Path, number: int, count: int) -> bool:
    rank = Rank(number, count, f"{count} ranks", number)
    options = Options("ranks")
    return sweep_dump(dump, out, tiny.CONFIG, options, name="tiny", rank=rank).complete


def test_three_ranks_finish_what_two_began(
    dump: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    assert not rank_sweeps(dump, tmp_path, 1, 2)
    assert len(tiny.digests(tmp_path)) == 4 * 4  # shards 1, 3, 5 and 7 of 8, four tables
    assert [rank_sweeps(dump, tmp_path, number, 3) for number in (2, 0, 1)][-1]
    assert tiny.digests(tmp_path) == whole


def test_ranks_are_read_from_torchrun_and_slurm() -> None:
    torchrun = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "TORCHELASTIC_RUN_ID": "a",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "1",
    }
    assert rank_of(torchrun) == Rank(3, 4, "4 ranks TORCHELASTIC_RUN_ID=a", 1)
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7"}
    assert rank_of(slurm) == Rank(1, 2, "2 ranks SLURM_JOB_ID=7", 0)
    assert Rank(1, 2, "", 0).own(("a", "b", "c", "d")) == ("b", "d")  # type: ignore[arg-type, comparison-overlap]
    assert Rank(1, 2, "", 0).device("cpu") == "cpu"
    for bad in ({}, {"RANK": "0"}, {"SLURM_PROCID": "0", "WORLD_SIZE": "1"}):
        with pytest.raises(RunError, match="given neither RANK and WORLD_SIZE nor"):
            rank_of(bad)
    for number, count in (("2", "2"), ("-1", "2"), ("a", "2"), ("0", "")):
        with pytest.raises(RunError, match=f"RANK, WORLD_SIZE: given '{number}' and '{count}'"):
            rank_of({"RANK": number, "WORLD_SIZE": count})


def test_a_rank_waits_for_the_others_before_it_tells_of_damage(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others never come: it ends after a while, and says what is set aside."""
    from fastattnerase.sweeps import run

    own = tmp_path / "dump"
    tiny.make_dump(own)
    (own / "shard-000001.safetensors").write_bytes(b"")
    monkeypatch.setattr(run, "_LATE", 0.5)
    waits: list[float] = []
    monkeypatch.setattr(run.time, "sleep", waits.append)
    clock = iter(range(1000))
    monkeypatch.setattr(run.time, "monotonic", lambda: next(clock) / 8)
    rank = Rank(1, 2, "2 ranks", 1)
    found = sweep_dump(own, tmp_path / "out", tiny.CONFIG, Options("ranks"), name="x", rank=rank)
    assert list(found.aside) == ["shard-000001"]
    assert not found.complete
    assert waits


class FakeRay:
    """Ray with actors that die where they are told to, in this process.

    An actor that does not fit waits until another is killed; the place of one that died is lost, as
    long as `lost` says so.
    """

    def __init__(
        self,
        deaths: dict[str, int],
        machines: tuple[tuple[int, int], ...] = ((2, 0),),
        *,
        places: int = 2,
        lost: int = 0,
    ) -> None:
        self.deaths, self.machines, self.places, self.lost = deaths, machines, places, lost
        self.started: list[Any] = []
        self.alive: list[Any] = []  # those that fit first

        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            def __init__(self, cause: Exception) -> None:
                self.cause = cause

        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def nodes(self) -> list[dict[str, Any]]:
        dead = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        alive = [{"CPU": float(cores), "GPU": float(gpus)} for cores, gpus in self.machines]
        return [dead, *({"Alive": True, "Resources": resources} for resources in alive)]

    def kill(self, actor: Any) -> None:
        self.alive.remove(actor.made)

    def remote(self, **needed: object) -> Any:
        self.needed = needed

        def wrap(worker: type) -> Any:
            def start(job: work.Job) -> Any:
                made = worker(job)
                run = SimpleNamespace(remote=lambda s: (id(made), made, s))
                self.started.append(made)
                self.alive.append(made)
                return SimpleNamespace(run=run, made=made)

            return SimpleNamespace(remote=start)

        return wrap

    def wait(self, running: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        fit = [call for call in running if call[1] in self.alive[: self.places]]
        assert fit, "nothing will ever be done"
        return fit[-1:], [call for call in running if call is not fit[-1]]

    def get(self, call: Any) -> ShardRecord:
        _, made, shard = call
        if self.deaths.get(shard.name, 0):
            self.deaths[shard.name] -= 1
            if self.lost:
                self.lost, self.places = self.lost - 1, self.places - 1
            record = record_path(made.job.out, shard.name)
            record.parent.mkdir(exist_ok=True)
            record.with_name(f"{record.name}.1.partial").write_text("{")  # it was just writing
            raise self.exceptions.RayError
        try:
            return made.run(shard)  # type: ignore[no-any-return]
        except OSError as error:
            raise self.exceptions.RayTaskError(error) from error


def with_fake(monkeypatch: pytest.MonkeyPatch, fake: FakeRay) -> None:
    @contextlib.contextmanager
    def connected(address: str | None, cpus: int | None) -> Iterator[Any]:
        yield fake

    monkeypatch.setattr(on_ray, "connected", connected)


def test_a_dead_actor_is_replaced_and_its_shard_done_again(
    dump: Path, whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay({"shard-000002": 2, "shard-000005": 1})
    with_fake(monkeypatch, fake)
    assert tiny.swept(dump, tmp_path, engine="ray") == whole
    assert not list(tmp_path.rglob("*.partial"))
    assert len(fake.started) == 2 + 3  # for the cores, and for the dead
    assert fake.needed == {"num_cpus": 1, "num_gpus": 0, "max_restarts": 0}


@pytest.mark.parametrize(
    ("cpus", "places", "lost", "started"),
    [
        (1, 4, 2, 6),  # a machine is lost with its two actors, which are made again
        (2, 2, 0, 2),  # none gets cores of two machines
        (1, 1, 0, 4),  # others use the rest
    ],
)
def test_a_sweep_ends_where_fewer_actors_fit(
    dump: Path,
    whole: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cpus: int,
    places: int,
    lost: int,
    started: int,
) -> None:
    """Those that wait hold shards; they get the cores of those that have nothing left to do."""
    deaths = {"shard-000003": 1, "shard-000004": 1} if lost else {}
    machines = ((3, 0), (3, 0)) if cpus == 2 else ((2, 0), (2, 0))
    fake = FakeRay(deaths, machines, places=places, lost=lost)
    with_fake(monkeypatch, fake)
    assert tiny.swept(dump, tmp_path, engine="ray", cpus_per_worker=cpus) == whole
    assert len(fake.started) == started
    assert not fake.alive


@pytest.mark.parametrize(
    ("device", "machines", "size", "needed"),
    [
        ("cuda", ((16, 8), (4, 0)), 4, ("cuda", 1)),  # cores of a machine without GPU do not help
        ("cuda", ((64, 2), (4, 1)), 3, ("cuda", 1)),
        ("auto", ((64, 2), (64, 0)), 2, ("cuda", 1)),
        ("auto", ((7, 0), (5, 0)), 2, ("cpu", 0)),
        ("cpu", ((8, 8),), 2, ("cpu", 0)),
    ],
)
def test_as_many_actors_as_fit(
    dump: Path,
    tmp_path: Path,
    device: str,
    machines: tuple[tuple[int, int], ...],
    size: int,
    needed: tuple[str, int],
) -> None:
    """With four cores each, and a GPU where the cluster has any and they are wanted."""
    fake = FakeRay({}, machines)
    pool = on_ray._Pool(fake, work.Job(dump, tmp_path, tiny.CONFIG, device), 4, None)
    pool.actor()
    assert pool.size == size
    assert (fake.started[0].job.device, fake.needed["num_gpus"]) == needed
    assert on_ray._Pool(fake, work.Job(dump, tmp_path, tiny.CONFIG, device), 4, 1).size == 1


def test_ray_is_started_here_whatever_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address it would join the cluster that RAY_ADDRESS names."""
    given: list[dict[str, Any]] = []
    ray = SimpleNamespace(init=lambda **options: given.append(options), shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for address in (None, "auto"):
        with on_ray.connected(address, 3) as found:
            assert found is ray
    assert [options["address"] for options in given] == ["local", "auto"]
    assert ["num_cpus" in options for options in given] == [True, False]


def test_a_shard_that_kills_its_actors_is_set_aside(
    dump: Path, whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fake(monkeypatch, FakeRay({"shard-000002": 3}))
    found = sweep_dump(dump, tmp_path, tiny.CONFIG, Options("ray"), name="x")
    assert found.aside == {"shard-000002": "its worker died 3 times"}
    options = Options("ray", retry=True)
    assert not sweep_dump(dump, tmp_path, tiny.CONFIG, options, name="x").aside
    assert tiny.digests(tmp_path) == whole


def test_an_error_of_an_actor_ends_the_sweep(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fake(monkeypatch, FakeRay({}))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(work, "write_shard", full)
    with pytest.raises(OSError, match="No space left on device"):
        sweep_dump(dump, tmp_path, tiny.CONFIG, Options("ray"), name="x")


def test_more_cores_than_there_are(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fake(monkeypatch, FakeRay({}))
    options = Options("ray", cpus_per_worker=3)
    with pytest.raises(RunError, match="--cpus-per-worker: given 3, needed at most 2"):
        sweep_dump(dump, tmp_path, tiny.CONFIG, options, name="x")
    job = work.Job(dump, tmp_path, tiny.CONFIG, "cuda")
    with pytest.raises(RunError, match="needed at most 2, the cores that Ray has on a machine wi"):
        on_ray._Pool(FakeRay({}, ((2, 1), (8, 0))), job, 3, None)
    options = Options("ray")
    with pytest.raises(RunError, match="the Ray cluster has no GPU"):
        sweep_dump(dump, tmp_path, tiny.CONFIG, options, name="x", device="cuda")


def test_batches_pass_through_memory_that_grows_with_the_largest() -> None:
    """The way to a GPU, in the memory of the CPU."""
    staging = Staging(pinned=False)
    for batch in tiny.batches()[:2]:
        tensors = [batch.values, batch.offsets, batch.ids]
        staging.reserve(tensors)
        held = [staging.hold(tensor) for tensor in tensors]
        begin, end = staging.memory.data_ptr(), staging.memory.data_ptr() + len(staging.memory)
        for own, other in zip(held, tensors, strict=True):
            assert torch.equal(own, other)
            assert own.dtype == other.dtype
            assert begin <= own.data_ptr() < end or not own.numel()
    largest = len(staging.memory)
    staging.reserve([torch.zeros(1)])
    assert (len(staging.memory), staging.used) == (largest, 0)


def test_a_batch_for_the_cpu_stays_where_it_is() -> None:
    chunk = Chunk(tiny.batches()[0])
    moved = Mover("cpu")(chunk)
    assert moved.ready() is chunk
    assert moved.host is chunk


def test_results_are_used_where_they_were_copied_to() -> None:
    """What is done with results of a GPU, with copies in the CPU's memory."""
    [batch, *_] = tiny.batches()
    chunk = Chunk(batch)
    found = erased(chunk, tiny.CONFIG)
    assert taken_off(found, chunk).wait() is found
    copied: list[torch.Tensor] = []

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        copied.append(tensor)
        return tensor.clone()

    copies = with_copies(found, copy)
    assert copies.chunk is chunk
    assert len(copied) > 15  # of prefixes, items, the smallest sets and the decisions
    for tensor in copied:
        if tensor.dtype.is_floating_point:
            tensor.fill_(7.0)
    again = erased(chunk, tiny.CONFIG)
    own, wanted = (tables_of(one, tiny.CONFIG) for one in (copies, again))
    assert str({n: t.to_pydict() for n, t in own.items()}) == str(
        {n: t.to_pydict() for n, t in wanted.items()}
    )


def test_every_tensor_of_a_batch_is_moved() -> None:
    [batch, *_] = tiny.batches()
    seen: list[torch.Tensor] = []

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor)
        return tensor.clone()

    moved = batch.with_tensors(copy)
    assert len(seen) == 7  # values, offsets, attention, ids, rows, weight and bias of the head
    assert torch.equal(fae.sweep(moved).prefixes.first_flip, fae.sweep(batch).prefixes.first_flip)
