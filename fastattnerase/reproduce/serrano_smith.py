"""`fastattnerase reproduce serrano-smith`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fastattnerase.console import command, err, out
from fastattnerase.reproduce import app

if TYPE_CHECKING:
    from fastattnerase.experiments.stages import Unit


@command(
    app,
    "fastattnerase reproduce serrano-smith --data-root corpora --out runs/serrano-smith --jobs 2",
)
def serrano_smith(
    data_root: Annotated[
        Path,
        typer.Option(
            help="Folder with the corpora, under the names they are distributed by, or with the "
            "files that --study names."
        ),
    ],
    study: Annotated[
        Path | None,
        typer.Option(
            help="A TOML or JSON file that names other corpora and options; default: the paper's "
            "four corpora, those that are there.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="A corpus, a model or CORPUS/MODEL, with * and ?; may be given several times.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str, typer.Option(help="The last stage: prepare, embed, train, erase or report.")
    ] = "report",
    preset: Annotated[
        str,
        typer.Option(
            help="Of the paper's corpora: paper (as the paper says) or code (as its code does)."
        ),
    ] = "paper",
    out_folder: Annotated[
        Path, typer.Option("--out", help="Where everything goes; an interrupted run goes on there.")
    ] = Path("runs/serrano-smith"),
    jobs: Annotated[
        int, typer.Option(min=1, help="Models at a time; several use one thread each.")
    ] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Reproduce Serrano and Smith 2019, "Is Attention Interpretable?": every model and figure.

    Prepares the corpora, embeds words, trains HAN and FLAN models with three encoders, erases, and
    writes the report. Finished stages are never redone; the same command goes on after a kill.
    """
    from fastattnerase.cli import choose_device
    from fastattnerase.experiments import schedule
    from fastattnerase.experiments.originals import original_study
    from fastattnerase.experiments.rundir import RunError
    from fastattnerase.experiments.stages import MANIFEST, STAGES, Workspace
    from fastattnerase.experiments.study import read_study

    if until not in STAGES:
        raise RunError(f"--until is {until!r}; one of {', '.join(STAGES)} is needed")
    if not data_root.is_dir():
        raise RunError(f"--data-root {data_root}: no such folder")
    wanted = original_study(data_root, preset) if study is None else read_study(study)
    workspace = Workspace(
        wanted, data_root, out_folder, tuple(only or ()), until, choose_device(device)
    )
    with _Watcher() as watcher:
        schedule.run(workspace, jobs, watcher)
    out.print(str((out_folder / MANIFEST).resolve()), soft_wrap=True)
    if until == "report":
        page = out_folder / "report" / "report.html"
        out.print(str(page.resolve()), style="bold", soft_wrap=True)


class _Watcher:
    """Shows units at work, says when one is finished, and how much time is left."""

    def __init__(self) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=err,
            transient=True,
        )
        self.bars: dict[Unit, TaskID] = {}
        self.costs: dict[Unit, float] = {}
        self.shares: dict[Unit, float] = {}
        self.total = 0
        self.done = 0
        self.started = time.monotonic()

    def __enter__(self) -> _Watcher:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def plan(self, costs: dict[Unit, float], done: int) -> None:
        self.costs = costs
        self.total, self.done = len(costs) + done, done
        if done:
            err.print(f"{done} of {self.total} steps were finished before")
        self.started = time.monotonic()

    def at(self, unit: Unit, share: float) -> None:
        if unit not in self.bars:
            self.bars[unit] = self.progress.add_task(unit.key, total=1.0)
        self.shares[unit] = share
        self.progress.update(
            self.bars[unit], completed=share, description=f"{unit.key}, {self._left()}"
        )

    def finished(self, unit: Unit, record: dict[str, Any]) -> None:
        from fastattnerase.experiments.stages import describe

        self.shares[unit] = 1.0
        self.done += 1
        if unit in self.bars:
            self.progress.remove_task(self.bars.pop(unit))
        found = describe(record)
        err.print(
            f"[{self.done}/{self.total}] {unit.key}: {record['seconds']:.0f} s"
            f"{', ' if found else ''}{found}; {self._left()}",
            markup=False,
            soft_wrap=True,
        )

    def _left(self) -> str:
        done = sum(self.costs.get(unit, 0.0) * share for unit, share in self.shares.items())
        left = sum(self.costs.values()) - done
        spent = time.monotonic() - self.started
        if left <= 0:
            return "nothing left"
        if done <= 0 or spent < 1:
            return "time left unknown yet"
        seconds = spent * left / done
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
