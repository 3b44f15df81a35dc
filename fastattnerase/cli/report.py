"""`fastattnerase report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastattnerase.cli.console import Stages, out
from fastattnerase.cli.inputs import LOADING, find_run
from fastattnerase.cli.options import command
from fastattnerase.runs.progress import tracked
from fastattnerase.studies.serrano_smith.config import REPORT_COSTS

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
    pdf: Annotated[bool, typer.Option("--pdf", help="Write figures as PDF, too.")] = False,
) -> None:
    """Write one HTML page on one run or several side by side, with figures and tables as files."""
    from fastattnerase.studies.serrano_smith.result import load

    stages = Stages({LOADING: 1.0} | REPORT_COSTS)
    with stages:
        results = [load(find_run(run)) for run in tracked(runs, len(runs), LOADING, stages)]
    page = write_report(results, out_folder or results[0].folder / "report", stages, pdf)
    out.print(str(page.resolve()), soft_wrap=True)


def write_report(results: list[Result], folder: Path, stages: Stages, pdf: bool = False) -> Path:
    """Write the report on runs into a folder; give the page."""
    from fastattnerase.runs.lock import alone
    from fastattnerase.studies.serrano_smith.report import build

    with alone(folder), stages:
        return build(results, folder, stages, pdf=pdf)
