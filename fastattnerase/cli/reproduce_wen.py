"""`fastattnerase reproduce wen`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fastattnerase.cli.console import UsageError, out
from fastattnerase.cli.inputs import (
    DataRoot,
    Device,
    Jobs,
    choose_device,
    find_vectors,
    require_folder,
)
from fastattnerase.cli.options import Offer, command
from fastattnerase.cli.watcher import Watcher
from fastattnerase.studies.wen.options import Options

_MOST_SEEDS = 10_000  # every seed is a model of each kind


@command(
    "fastattnerase reproduce wen --data-root corpora --datasets sst --seeds 3 --out runs/wen "
    "--jobs 2"
)
def wen(
    options: Annotated[
        Options, Offer(without=("seeds", "small_seeds", "backend"), paths=("vectors",))
    ],
    data_root: DataRoot,
    seeds: Annotated[
        int, typer.Option(min=1, max=_MOST_SEEDS, help="Number of seeds of the grid, from 0.")
    ] = 3,
    small_seeds: Annotated[
        int,
        typer.Option(
            min=1, max=_MOST_SEEDS, help="Number of seeds of the parts but the grid, from 0."
        ),
    ] = 1,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder to write; an interrupted run goes on there."),
    ] = Path("runs/wen"),
    jobs: Jobs = 1,
    device: Device = "cpu",
) -> None:
    """Reproduce Wen, Subbalakshmi and Yang 2022: does information follow attention?

    Trains every model, measures the mutual information between ranked states and outputs, and
    writes the report. Finished cells are never redone; the same command goes on after a kill.
    More data sets, seeds or studies can be added later in the same folder.
    """
    from fastattnerase.runs import schedule
    from fastattnerase.studies.wen.report import build
    from fastattnerase.studies.wen.units import Wen

    require_folder("--data-root", data_root)
    options = replace(
        find_vectors(options, data_root),
        seeds=tuple(range(seeds)),
        small_seeds=tuple(range(small_seeds)),
    )
    workspace = Wen(options, data_root, out_folder, choose_device(device))
    with Watcher(workspace.describe) as watcher:
        schedule.run(workspace, jobs, watcher)
    page = build(workspace, out_folder / "report")
    out.print(str(page.resolve()), style="bold", soft_wrap=True)
    reasons = [
        (f"{cell.key} {name}", measured.reason)
        for cell, result in workspace.results().items()
        for name, measured in result.measurements.items()
    ]
    missing = [(name, reason) for name, reason in reasons if reason]
    for name, reason in missing:
        out.print(f"not measured: {name}: {reason}", soft_wrap=True)
    if len(missing) == len(reasons):
        raise UsageError("no cell could be measured; change the options that the reasons name")
