"""`fastattnerase report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastattnerase.cli.console import err, out
from fastattnerase.cli.inputs import find_run
from fastattnerase.cli.options import command

if TYPE_CHECKING:
    from fastattnerase.studies.serrano_smith.result import Result


@command("fastattnerase report runs/flanrnn/erase runs/hanrnn/erase --out report")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories that `erase` wrote, or model folders with one run."),
    ],
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder to write; by default `report` in the first run.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one HTML page on one run or several side by side, with figures and tables as files."""
    from fastattnerase.studies.serrano_smith.result import load

    results = [load(find_run(run)) for run in runs]
    page = write_report(results, out_folder or results[0].folder / "report")
    out.print(str(page.resolve()), soft_wrap=True)


def write_report(results: list[Result], folder: Path) -> Path:
    """Write the report on runs into a folder; give the page."""
    from fastattnerase.runs.lock import alone
    from fastattnerase.studies.serrano_smith.report import build

    with alone(folder), err.status("writing the report"):
        return build(results, folder)
