"""`fastattnerase export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastattnerase.cli.console import out
from fastattnerase.cli.inputs import find_run
from fastattnerase.cli.options import command


@command("fastattnerase export runs/flanrnn/erase --out runs/flanrnn/original")
def export(
    run: Annotated[
        Path, typer.Argument(help="A run directory that `erase` wrote, or a model folder with one.")
    ],
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder to write; by default `original` in the run.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a run as CSV files in the field layout of Serrano and Smith's published code."""
    from fastattnerase.runs.lock import alone
    from fastattnerase.studies.serrano_smith.published_layout import export as write
    from fastattnerase.studies.serrano_smith.result import load

    result = load(find_run(run, "what the published code wrote"))
    if result.counts.accuracy is None:
        out.print(
            "Note: no instance has a label, so actual_label is -1 everywhere; scripts that read it "
            "need a run on labelled data: `fastattnerase erase` with --data FILE and "
            "--label-column, or with labels in the file of --tensors",
            soft_wrap=True,
        )
    folder = out_folder or result.folder / "original"
    with alone(folder):
        files = write(result, folder)
    for path in files:
        out.print(str(path), soft_wrap=True)
