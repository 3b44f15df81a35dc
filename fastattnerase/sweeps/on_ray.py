"""Shards worked on by actors of Ray, on one machine or on all of a cluster."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fastattnerase.dumps.manifest import Shard
from fastattnerase.extras import needs
from fastattnerase.runs.rundir import RunError
from fastattnerase.sweeps.records import ShardRecord, write_shard
from fastattnerase.sweeps.work import Job, Worker

_TRIES = 3  # of a shard whose actor dies


@contextmanager
def connected(address: str | None, cpus: int | None) -> Iterator[Any]:
    """Connect to a cluster, or start Ray on this machine and stop it afterwards.

    Args:
        address: of the cluster; None starts Ray here, without dashboard and usage statistics.
        cpus: of a Ray that is started here; all where it is None.

    Yields:
        The module `ray`.

    Raises:
        MissingPackageError: Ray is not installed.
        RunError: there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported
    with needs("ray"):
        import ray
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Without an address Ray would join that of RAY_ADDRESS, or a cluster that runs here.
        options |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    else:
        options["address"] = address
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except (ConnectionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"--ray-address: given {address}, needed a Ray cluster: {reason}") from error
    signal.signal(signal.SIGTERM, handler)  # Ray's own ends the process where it is
    try:
        yield ray
    finally:
        ray.shutdown()


class _Pool:
    """Actors, each with some cores of a machine and maybe a GPU, as many as fit."""

    def __init__(self, ray: Any, job: Job, cpus_per_worker: int, most: int | None) -> None:
        machines = [
            (int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0)))
            for node in ray.nodes()
            if node["Alive"]
        ]
        device = job.device
        if device == "auto":
            device = "cuda" if any(gpus for _, gpus in machines) else "cpu"
        if device == "cuda":
            machines = [(cores, gpus) for cores, gpus in machines if gpus]
            if not machines:
                raise RunError("--device: given cuda, needed cpu: the Ray cluster has no GPU")
        fit = sum(
            min(cores // cpus_per_worker, gpus) if device == "cuda" else cores // cpus_per_worker
            for cores, gpus in machines
        )
        if not fit:
            most_cores = max((cores for cores, _ in machines), default=0)
            of = "a machine with a GPU" if device == "cuda" else "a machine"
            raise RunError(
                f"--cpus-per-worker: given {cpus_per_worker}, needed at most {most_cores}, the "
                f"cores that Ray has on {of}"
            )
        self.size = min(fit, most or fit)
        self._job = replace(job, device=device, threads=job.threads or cpus_per_worker)
        needed = {"num_cpus": cpus_per_worker, "num_gpus": 1 if device == "cuda" else 0}
        self._actor = ray.remote(**needed, max_restarts=0)(Worker)

    def actor(self) -> Any:
        """Start an actor."""
        return self._actor.remote(self._job)


def on_ray(
    job: Job,
    shards: Iterable[Shard],
    *,
    address: str | None = None,
    cpus_per_worker: int = 1,
    workers: int | None = None,
) -> Generator[ShardRecord, None, None]:
    """Have actors of Ray work, which get shards one at a time.

    An actor that dies is replaced and its shard done again; a shard whose actor dies three times is
    set aside. Where fewer fit than before, as others use the cluster too or a machine is lost, an
    actor waits with its shard until another ends.

    Args:
        job: paths must be the same on every machine; where its device is `auto` the GPUs of the
            cluster work, or its cores where it has none.
        shards: to be done.
        address: of a cluster; None starts Ray on this machine.
        cpus_per_worker: cores of an actor.
        workers: actors at most; a Ray that is started here gets as many cores as they need.

    Raises:
        RunError: no cluster, or one without the GPUs or cores that are asked for.
        MissingPackageError: Ray is not installed.
    """
    cpus = None if workers is None else workers * cpus_per_worker
    with connected(address, cpus) as ray:
        pool = _Pool(ray, job, cpus_per_worker, workers)
        waiting = iter(shards)
        again: list[Shard] = []
        tries: dict[str, int] = {}
        idle: list[Any] = []
        running: dict[Any, tuple[Any, Shard]] = {}
        while True:
            while len(running) < pool.size:
                shard = again.pop() if again else next(waiting, None)
                if shard is None:
                    break
                actor = idle.pop() if idle else pool.actor()
                running[actor.run.remote(shard)] = (actor, shard)
            for actor in idle:  # no shard is left for them, but maybe one that waits for cores
                ray.kill(actor)
            idle.clear()
            if not running:
                return
            [done], _ = ray.wait(list(running), num_returns=1)
            actor, shard = running.pop(done)
            try:
                record: ShardRecord = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError:
                ray.kill(actor)  # it may only be out of reach; its shard is another's now
                tries[shard.name] = tries.get(shard.name, 0) + 1
                if tries[shard.name] < _TRIES:
                    again.append(shard)
                    continue
                record = ShardRecord(
                    shard.name, "aside", f"its worker died {_TRIES} times", shard.instances,
                    shard.items, first_row=shard.first_row,
                )  # fmt: skip
                write_shard(job.out, record)
            else:
                idle.append(actor)
            yield record
