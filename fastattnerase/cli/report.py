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
    figures: Annotated[
        bool,
        typer.Option(
            "--figures",
            help="Draw the paper's figures for the page, too, and write all figures as PNG and SVG "
            "files; takes nearly three times as long.",
        ),
    ] = False,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="The same as --figures, with figures as PDF, too.")
    ] = False,
) -> None:
    """Write one HTML page on one run or several side by side, with tables as files."""
    from fastattnerase.studies.serrano_smith.result import load

    stages = Stages({LOADING: 1.0} | REPORT_COSTS)
    with stages:
        results = [load(find_run(run)) for run in tracked(runs, len(runs), LOADING, stages)]
    folder = out_folder or results[0].folder / "report"
    page = write_report(results, folder, stages, figures or pdf, pdf)
    out.print(str(page.resolve()), soft_wrap=True)


def write_report(
    results: list[Result],
    folder: Path,
    stages: Stages,
    figures: bool = True,
    pdf: bool = False,
) -> Path:
    """Write the report on runs into a folder, with the paper's figures or not; give the page."""
    from fastattnerase.runs.lock import alone
    from fastattnerase.studies.serrano_smith.report import build

    with alone(folder), stages:
        return build(results, folder, stages, all_figures=figures, pdf=pdf)
