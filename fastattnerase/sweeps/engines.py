"""Who works on the shards: this process, several, or this process as one of many ranks."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

from fastattnerase.dumps.manifest import Shard
from fastattnerase.plurals import counted
from fastattnerase.runs.children import ctrl_c_held, end_with_parent
from fastattnerase.runs.rundir import RunError
from fastattnerase.sweeps.records import ShardRecord
from fastattnerase.sweeps.work import Job, Worker
from fastattnerase.threads import cores

_SILENCE = 0.2  # seconds between two looks at the children
# From the variable that numbers the processes of a call to the one that counts them.
_RANKS = {"RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"}
# What the ranks of a call have in common, and where on its machine a rank is.
_CALLS = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")
_PLACES = ("LOCAL_RANK", "SLURM_LOCALID")


def here(job: Job, shards: Sequence[Shard]) -> Generator[ShardRecord, None, None]:
    """Work in this process."""
    if shards:
        yield from Worker(job).run_all(shards)


def side_by_side(
    job: Job, shards: Iterable[Shard], jobs: int
) -> Generator[ShardRecord, None, None]:
    """Work in several processes, which get shards one at a time.

    Raises:
        RunError: a process was killed.
    """
    # Forked children of a process with threads can hang, so they are started anew.
    context = multiprocessing.get_context("spawn")
    number = context.Value("i", 0)
    waiting = iter(shards)
    running: set[Future[ShardRecord]] = set()
    others = set(multiprocessing.active_children())
    threads = max(1, cores() // jobs)
    job = replace(job, threads=job.threads or threads)
    pool = ProcessPoolExecutor(jobs, context, _start_child, (job, number, os.getpid()))
    try:
        while True:
            while len(running) < jobs and (shard := next(waiting, None)) is not None:
                with ctrl_c_held():
                    running.add(pool.submit(_run_in_child, shard))
            if not running:
                return
            finished, running = wait(running, timeout=_SILENCE, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
    except BrokenProcessPool as error:
        raise RunError(
            f"--jobs: given {jobs} processes, of which one was killed (where memory was short, "
            "fewer help); what is finished is kept, the same command goes on from there"
        ) from error
    except (KeyboardInterrupt, GeneratorExit):
        # Nobody waits for what is at work: it is done anew next time, as after a kill.
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_worker: Worker | None = None  # of a child


def _start_child(job: Job, number: Any, parent: int) -> None:
    """Prepare a child, which does not outlive its parent; several GPUs are shared out."""
    import torch

    global _worker
    end_with_parent(parent)
    with number.get_lock():
        own = number.value
        number.value += 1
    if job.device == "cuda":
        job = replace(job, device=f"cuda:{own % torch.cuda.device_count()}")
    _worker = Worker(job)


def _run_in_child(shard: Shard) -> ShardRecord:
    assert _worker is not None  # made by `_start_child`
    return _worker.run(shard)


@dataclass(frozen=True)
class Rank:
    """One of several processes of a call, which do not speak with each other.

    Attributes:
        number: from 0 on.
        count: of the processes.
        call: what those of this call have in common, and those of another have not.
        place: number on its machine; picks a GPU.
    """

    number: int
    count: int
    call: str
    place: int

    def own(self, shards: Iterable[Shard]) -> tuple[Shard, ...]:
        """Give the shards of this rank: shard `i` is of rank `i mod N`."""
        return tuple(shards)[self.number :: self.count]

    def device(self, name: str) -> str:
        """Pick a GPU where any will do."""
        if name != "cuda":
            return name
        import torch

        return f"cuda:{self.place % torch.cuda.device_count()}"


def rank_of(environment: Mapping[str, str]) -> Rank:
    """Read which rank this process is, as torchrun or Slurm's `srun` say.

    Args:
        environment: `RANK` and `WORLD_SIZE`, or `SLURM_PROCID` and `SLURM_NTASKS`.

    Raises:
        RunError: none of these, or no number from 0 to N - 1.

    Example:
        >>> rank = rank_of({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"})
        >>> rank.number, rank.count, rank.place
        (1, 2, 1)
    """
    for name, total in _RANKS.items():
        if name in environment and total in environment:
            number, count = environment[name], environment[total]
            if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
                raise RunError(
                    f"{name}, {total}: given {number!r} and {count!r}, needed a rank from 0 on and "
                    "how many there are"
                )
            call = " ".join(f"{key}={environment[key]}" for key in _CALLS if key in environment)
            place = next((environment[key] for key in _PLACES if key in environment), number)
            return Rank(
                int(number), int(count), f"{counted(int(count), 'rank')} {call}".strip(),
                int(place) if place.isdecimal() else int(number),
            )  # fmt: skip
    raise RunError(
        "--engine ranks: given neither RANK and WORLD_SIZE nor SLURM_PROCID and SLURM_NTASKS in "
        "the environment, needed what `torchrun` or `srun` sets"
    )
