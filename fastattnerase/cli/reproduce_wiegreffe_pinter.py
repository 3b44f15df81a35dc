"""`fastattnerase reproduce wiegreffe-pinter`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastattnerase.cli.console import out
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
from fastattnerase.studies.wiegreffe_pinter.options import Options


@command(
    "fastattnerase reproduce wiegreffe-pinter --data-root corpora --datasets sst "
    "--out runs/wiegreffe-pinter --jobs 2"
)
def wiegreffe_pinter(
    options: Annotated[Options, Offer(paths=("vectors",))],
    data_root: DataRoot,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder to write; an interrupted run goes on there."),
    ] = Path("runs/wiegreffe-pinter"),
    jobs: Jobs = 1,
    device: Device = "cpu",
) -> None:
    """Reproduce Wiegreffe and Pinter 2019: could attention as well be otherwise?

    Trains each base model and what it is compared with: a twin of uniform attention, other seeds,
    MLPs that borrow attention weights, and adversaries that imitate its outputs with other
    attention. Finished models are never trained again; the same command goes on after a kill.
    Other data sets, seeds, tests and λ can be added later in the same folder, and the report is on
    all that is there.
    """
    from fastattnerase.runs import schedule
    from fastattnerase.studies.wiegreffe_pinter.report import build
    from fastattnerase.studies.wiegreffe_pinter.units import WiegreffePinter

    require_folder("--data-root", data_root)
    options = find_vectors(options, data_root)
    workspace = WiegreffePinter(options, data_root, out_folder, choose_device(device))
    with Watcher(workspace.describe) as watcher:
        schedule.run(workspace, jobs, watcher)
    page = build(workspace, out_folder / "report")
    out.print(str(page.resolve()), style="bold", soft_wrap=True)
