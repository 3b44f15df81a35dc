"""A sweep from its dump to its manifest: what is left is given to an engine, and watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path

from fastattnerase.dumps.ids import require_unique_ids
from fastattnerase.dumps.manifest import Shard
from fastattnerase.dumps.reading import Dump, open_batches
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.sweeps.engines import Rank, here, side_by_side
from fastattnerase.sweeps.folder import left, renew_manifest, taken
from fastattnerase.sweeps.on_ray import on_ray
from fastattnerase.sweeps.options import Options
from fastattnerase.sweeps.progress import Progress, Watcher
from fastattnerase.sweeps.records import FORMAT, KIND, Manifest, ShardRecord, SweepState
from fastattnerase.sweeps.work import Job

_LATE = 10.0  # seconds in which a rank of the same call may begin after another has ended
_PAUSES = 0.2, 2.0  # seconds between two looks at the others, at first and at most


def state_of(dump: Dump, config: Config, name: str) -> SweepState:
    """Say what all results of a sweep depend on."""
    manifest = dump.manifest
    return SweepState(
        kind=KIND,
        format=FORMAT,
        config=config.to_dict(),
        dump={
            "digest": manifest.digest,
            "shards": len(manifest.shards),
            "instances": manifest.instances,
            "items": manifest.items,
        },
        name=name,
        classes=manifest.classes,
        head_bias=manifest.head_bias,
        near_ties=manifest.near_ties,
    )


def sweep_dump(
    folder: Path,
    out: Path,
    config: Config,
    options: Options,
    *,
    name: str,
    device: str = "cpu",
    rank: Rank | None = None,
    watchers: Iterable[Watcher] = (),
) -> Manifest:
    """Erase all shards of a dump that are not done; results are the same whoever does it.

    Args:
        folder: of the dump.
        out: where results go: see `records`.
        config: of the experiment, as of `erase`; its options of intervals serve the aggregation.
        options: who works.
        name: of the sweep in reports.
        device: `cpu`, `cuda` or `cuda:N`; of the engine ray `cpu`, `cuda` or `auto`.
        rank: which of the ranks this process is; of the engine ranks.
        watchers: told how far the sweep is.

    Returns:
        What is there of the sweep.

    Raises:
        RunError: no dump, or one with an id twice in this process's shards; results of another
            sweep in the folder, or another call that is at work there; a worker that was killed.
        OSError: the folder cannot be written to, or the disk is full.

    Example:
        >>> import tempfile, torch
        >>> import fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.eye(3), torch.tensor([0, 3]), scores=torch.zeros(3),
        ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
        >>> with tempfile.TemporaryDirectory() as tmp:
        ...     _ = fae.save_batches([batch], Path(tmp) / "dump")
        ...     found = sweep_dump(
        ...         Path(tmp) / "dump", Path(tmp) / "out", Config(), Options(), name="one")
        ...     found.complete, found.rows["instances"]
        (True, 1)
    """
    dump = open_batches(folder)
    # Workers may be elsewhere, and their folder of work another one.
    job = Job(folder.resolve(), out.resolve(), config, device)
    own = dump.shards if rank is None else rank.own(dump.shards)
    require_unique_ids(folder, own)
    call, number = ("", 0) if rank is None else (rank.call, rank.number)
    state = state_of(dump, config, name)
    with taken(
        out, state, dump.shards, retry=options.retry, call=call, rank=number
    ) as others_at_work:
        waiting = left(out, own)
        progress = Progress(len(own), len(own) - len(waiting), sum(s.items for s in waiting))
        watching = list(watchers)
        for watcher in watching:
            watcher.begin(progress)
        started = time.monotonic()
        try:
            with closing(_work(job, waiting, options)) as records:
                for record in records:
                    progress.done += 1
                    progress.items_done += record.items
                    progress.seconds = time.monotonic() - started
                    for watcher in watching:
                        watcher.finished(record, progress)
        finally:
            manifest = renew_manifest(out)
        if rank is not None and manifest.aside:
            # A rank that ends with an exit code makes torchrun end the others, too.
            manifest = _wait(out, others_at_work)
    return manifest


def _work(job: Job, shards: list[Shard], options: Options) -> Generator[ShardRecord, None, None]:
    if options.engine == "ray" and shards:
        return on_ray(
            job,
            shards,
            address=options.ray_address,
            cpus_per_worker=options.cpus_per_worker,
            workers=options.jobs,
        )
    if options.jobs is not None and options.jobs > 1 and shards:
        return side_by_side(job, shards, options.jobs)
    return here(job, shards)


def _wait(out: Path, others_at_work: Callable[[], bool]) -> Manifest:
    """Wait until the others of this call have done their part, or do not come."""
    quiet, (pause, longest) = time.monotonic(), _PAUSES
    while True:
        if others_at_work():
            quiet = time.monotonic()
        else:  # reading all records takes its time, and so does every rank of a call
            manifest = renew_manifest(out)
            if manifest.complete or time.monotonic() - quiet >= _LATE:
                return manifest
        time.sleep(pause)
        pause = min(2 * pause, longest)
