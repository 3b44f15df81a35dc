"""`fastattnerase sweep`."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fastattnerase.cli.console import UsageError, counted, err, out
from fastattnerase.cli.inputs import (
    Device,
    choose_backend,
    choose_device,
    find_rankings,
    print_next,
)
from fastattnerase.cli.options import Offer, command
from fastattnerase.sizes import bytes_of
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.sweeps.names import LEAST_MEMORY
from fastattnerase.sweeps.options import Options

if TYPE_CHECKING:
    from fastattnerase.sweeps.progress import Progress as HowFar
    from fastattnerase.sweeps.records import Manifest, ShardRecord
else:  # imported where they are used; hints that are read at run time say Any
    HowFar = Manifest = ShardRecord = Any

SET_ASIDE = 3  # exit code while shards are set aside
# Seconds after which a thread of Python gives way: the engine's waits for it with all cores.
_SWITCH = 2e-4


@command("fastattnerase sweep dumps/flanrnn --out sweeps/flanrnn --jobs 2")
def sweep(
    options: Options,
    config: Annotated[
        Config,
        Offer(only=("random_orders", "random_item", "rankings", "resamples", "seed", "backend")),
    ],
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder of the results; the same call goes on in it.")
    ],
    dump: Annotated[
        Path | None,
        typer.Argument(
            help="Folder that `dump` or `fae.save_batches` wrote; not needed with --aggregate.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    name: Annotated[
        str | None,
        typer.Option(help="Name in reports; by default that of the dump.", show_default=False),
    ] = None,
    aggregate: Annotated[
        bool | None,
        typer.Option(
            "--aggregate/--no-aggregate",
            help="Only aggregate a finished sweep, again where that was done, or do not; by "
            "default a sweep is aggregated once it is finished.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory of the aggregation.")] = "1GiB",
    log: Annotated[
        Path | None,
        typer.Option(
            help="File to which progress is added as JSON, a line an event.", show_default=False
        ),
    ] = None,
) -> None:
    """Erase a dump, shard by shard: the tables of `erase`, however large it is.

    The same call goes on after a kill or an interruption, also with another engine: results are the
    same, bit for bit, where GPUs, or processors with the same instructions, do all of it. A damaged
    shard is set aside with its reason; while one is, the exit code is 3, and --retry does it again.
    """
    try:
        memory_bytes = bytes_of(memory)
    except ValueError as error:
        raise UsageError(f"--memory: {error}") from error
    if memory_bytes < LEAST_MEMORY:
        raise UsageError(f"--memory: given {memory}, needed at least {LEAST_MEMORY >> 20}MiB")
    if dump is None and aggregate is not True:
        raise UsageError("DUMP: given none, needed the folder of a dump, or --aggregate")
    if dump is None or aggregate is True:
        from fastattnerase.sweeps.folder import renew_manifest
        from fastattnerase.sweeps.records import read_state

        read_state(out_folder)  # refuses a folder that is no sweep's before anything is written
        found = renew_manifest(out_folder)
    else:
        _check(config.backend, options)
        find_rankings(config.rankings)
        device = _device(device, options)
        found = _run(dump, out_folder, config, options, name, device, log)
    _tell(found, out_folder)
    wanted = found.complete and found.done > 0 if aggregate is None else aggregate
    if wanted and _aggregate(out_folder, memory_bytes, again=aggregate is True):
        print_next("report", out_folder)
    if found.aside:
        raise typer.Exit(SET_ASIDE)


def _elsewhere(options: Options) -> bool:
    """Say whether a cluster works, whose GPUs this machine need not have."""
    return options.engine == "ray" and options.ray_address is not None


def _check(backend: str, options: Options) -> None:
    """Check the option --backend; on a cluster it need not be one that can run here."""
    import fastattnerase as fae

    if not _elsewhere(options) or backend not in fae.backends():
        choose_backend(backend)


def _device(name: str, options: Options) -> str:
    """Check the option --device and find out what `auto` is, which a cluster knows itself."""
    if options.engine == "ray" and name not in ("auto", "cpu", "cuda"):
        raise UsageError(
            f"--device: given {name!r} with the engine ray, needed auto, cpu or cuda: Ray chooses "
            "the GPU of each actor"
        )
    return name if _elsewhere(options) else choose_device(name)


def _run(
    dump: Path,
    folder: Path,
    config: Config,
    options: Options,
    name: str | None,
    device: str,
    log: Path | None,
) -> Manifest:
    from fastattnerase.sweeps.engines import rank_of
    from fastattnerase.sweeps.progress import Log
    from fastattnerase.sweeps.run import sweep_dump

    sys.setswitchinterval(_SWITCH)
    rank = rank_of(os.environ) if options.engine == "ranks" else None
    if rank is not None:
        device = rank.device(device)
    with ExitStack() as stack:
        bar = stack.enter_context(_Bar("sweeping" if rank is None else f"rank {rank.number}"))
        logs = [] if log is None else [Log(stack.enter_context(open(log, "a", encoding="utf-8")))]
        found = sweep_dump(
            dump,
            folder,
            config,
            options,
            name=name or dump.resolve().name,
            device=device,
            rank=rank,
            watchers=[bar, *logs],
        )
        for own in logs:
            own.end(found)
    return found


def _tell(found: Manifest, folder: Path) -> None:
    left = found.shards - found.done - len(found.aside)
    out.print(
        f"{found.done:,} of {counted(found.shards, 'shard')} done: "
        f"{counted(found.instances, 'instance')}, {counted(found.items, 'item')}"
        f"{f'; {left:,} left' if left else ''}: {folder}",
        soft_wrap=True,
    )
    if len(found.engines) > 1:
        by = ", ".join(f"{counted(n, 'shard')} by {name}" for name, n in found.engines.items())
        err.print(f"{by}: the last bits of numbers may be others than those of one", soft_wrap=True)
    for shard, reason in found.aside.items():
        err.print(f"set aside: {shard}: {reason}", soft_wrap=True)
    if found.aside:
        err.print("--retry does again what is set aside, once its reason is gone")


def _aggregate(folder: Path, memory: int, *, again: bool) -> bool:
    """Aggregate a sweep, where that is not done of its records; one of several ranks does.

    Returns:
        Whether this process did.
    """
    from fastattnerase.runs.lock import alone
    from fastattnerase.sweeps.aggregate import aggregate_sweep, is_aggregated
    from fastattnerase.sweeps.names import AGGREGATE

    with alone(folder / AGGREGATE, wait=True):
        if not again and is_aggregated(folder):
            return False
        aggregate_sweep(folder, memory=memory)
        return True


class _Bar:
    """Draws how many shards are done, how fast, and how much time is left."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[told]}", markup=False),
            console=err,
        )

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, progress: HowFar) -> None:
        """Shards will be done."""
        self._task = self._bar.add_task(
            self._what, total=progress.shards, completed=progress.done, told=""
        )

    def finished(self, record: ShardRecord, progress: HowFar) -> None:
        """A shard is done, or set aside."""
        self._bar.update(self._task, completed=progress.done, told=_speed(progress))


def _speed(progress: HowFar) -> str:
    rate, seconds = progress.rate, progress.seconds_left
    told = [] if rate is None else [f"{rate:,.0f} items/s"]
    if seconds:
        told.append(f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left")
    return ", ".join(told)
