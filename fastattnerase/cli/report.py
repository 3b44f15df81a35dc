"""`fastattnerase report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastattnerase.cli.console import Stages, UsageError, out
from fastattnerase.cli.inputs import LOADING, find_run
from fastattnerase.cli.options import command
from fastattnerase.mil.options import KIND as SLIDES
from fastattnerase.runs.progress import tracked
from fastattnerase.studies.compare.options import KIND as COMPARISON
from fastattnerase.studies.serrano_smith.config import REPORT_COSTS
from fastattnerase.sweeps.names import AGGREGATE, LARGE, SWEEP

if TYPE_CHECKING:
    from fastattnerase.studies.serrano_smith.result import Result
else:  # imported where they are used; hints that are read at run time say Any
    Result = Any


@command("fastattnerase report runs/flanrnn/erase runs/hanrnn/erase --out report")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run directories that `erase` wrote, or model folders with one run; or one folder "
            "that `compare` or `sweep` wrote."
        ),
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
            "files; takes two to three times as long.",
        ),
    ] = False,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="The same as --figures, with figures as PDF, too.")
    ] = False,
) -> None:
    """Write one HTML page on one run or several side by side, with tables as files."""
    from fastattnerase.studies.serrano_smith.result import load

    if any(is_of(COMPARISON, run) for run in runs):
        if len(runs) > 1:
            raise UsageError(
                f"runs: given {len(runs)} with a comparison of methods among them, needed that "
                "alone, which has a page of its own"
            )
        out.print(str(report_comparison(runs[0], out_folder).resolve()), soft_wrap=True)
        return
    if any(is_of(SLIDES, run) for run in runs):
        if len(runs) > 1:
            raise UsageError(
                f"runs: given {len(runs)} with a run over slides among them, needed that alone, "
                "which has a page of its own"
            )
        out.print(str(report_slides(runs[0], out_folder).resolve()), soft_wrap=True)
        return
    places = [aggregate_of(run) or run for run in runs]
    if any(map(is_large, places)):
        if len(runs) > 1:
            raise UsageError(
                f"runs: given {len(runs)} with a sweep of more than 50,000 instances among them, "
                "needed that alone, which has a page of its own"
            )
        page = report_sweep(places[0], out_folder or runs[0] / "report", figures, pdf)
        out.print(str(page.resolve()), soft_wrap=True)
        return
    stages = Stages({LOADING: 1.0} | REPORT_COSTS)
    with stages:
        results = [load(find_run(run)) for run in tracked(places, len(runs), LOADING, stages)]
    swept = places[0] != runs[0]  # the page of a sweep lies beside its aggregate
    folder = out_folder or (runs[0] if swept else results[0].folder) / "report"
    page = write_report(results, folder, stages, figures or pdf, pdf)
    out.print(str(page.resolve()), soft_wrap=True)


def is_of(kind: str, folder: Path) -> bool:
    """Say whether a folder holds a run of some kind."""
    from fastattnerase.runs.rundir import RUN, read_json

    return (folder / RUN).is_file() and read_json(folder / RUN).get("kind") == kind


def report_slides(folder: Path, out_folder: Path | None) -> Path:
    """Write the page of a run over slides; give its path."""
    from fastattnerase.mil.report import build
    from fastattnerase.mil.run import load
    from fastattnerase.runs.lock import alone

    result = load(folder)
    target = out_folder or folder / "report"
    with alone(target):
        return build(result, target)


def aggregate_of(folder: Path) -> Path | None:
    """Give the folder of a sweep's aggregate; None of a folder that is no sweep's."""
    from fastattnerase.runs.rundir import RESULT, RunError

    if not (folder / SWEEP).is_file():
        return None
    found = folder / AGGREGATE
    if not (found / RESULT).is_file():
        raise RunError(
            f"{folder}: given a sweep without an aggregate, needed one that ended, or "
            "`fastattnerase sweep --aggregate`"
        )
    return found


def is_large(folder: Path) -> bool:
    """Say whether a folder holds the aggregate of a sweep too large for the page of `erase`."""
    from fastattnerase.runs.rundir import RUN, read_json

    return (folder / RUN).is_file() and read_json(folder / RUN).get("kind") == LARGE


def report_sweep(folder: Path, target: Path, figures: bool, pdf: bool) -> Path:
    """Write the page of a large sweep; give its path."""
    from fastattnerase.runs.lock import alone
    from fastattnerase.sweeps.aggregate import load_aggregate
    from fastattnerase.sweeps.page import build

    with alone(target):
        return build(load_aggregate(folder), target, files=figures, pdf=pdf)


def report_comparison(folder: Path, out_folder: Path | None) -> Path:
    """Write the page of a comparison of methods; give its path."""
    from fastattnerase.runs.lock import alone
    from fastattnerase.studies.compare.report import build
    from fastattnerase.studies.compare.units import Compare

    work = Compare.open(folder)
    target = out_folder or folder / "report"
    with alone(target):
        return build(work, target)[0]


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
