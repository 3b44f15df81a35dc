"""`fastattnerase reproduce serrano-smith`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fastattnerase.cli.console import UsageError, out
from fastattnerase.cli.inputs import Device, Jobs, choose_device, require_folder
from fastattnerase.cli.options import command
from fastattnerase.cli.watcher import Watcher
from fastattnerase.fields import one_of


def _print_example(wanted: bool) -> None:
    if wanted:
        from fastattnerase.studies.serrano_smith.example_study import example_study

        out.print(example_study(), end="", soft_wrap=True)
        raise typer.Exit


def _numbers(given: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in given.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise UsageError(
            f"--seeds: given {given!r}, needed distinct numbers from 0, with commas between"
        )
    return numbers


@command(
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
            help="TOML or JSON file that names other corpora and options (see --example-study); by "
            "default those of the paper's four corpora that are there.",
            show_default=False,
        ),
    ] = None,
    example_study: Annotated[
        bool,
        typer.Option(
            "--example-study",
            help="Print a study file with all keys, and end.",
            is_eager=True,
            callback=_print_example,
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Corpus, model or CORPUS/MODEL to run, with * and ?; may be given several times.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str, typer.Option(help="Last stage: prepare, embed, train, erase, seeds or report.")
    ] = "report",
    preset: Annotated[
        str | None,
        typer.Option(
            help="What the paper's corpora follow: paper (the paper's text, the default) or code "
            "(its code).",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds with commas between: each model is trained and erased once with each. By "
            "default those of --study, or once with the presets' seed.",
            show_default=False,
        ),
    ] = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder to write; an interrupted run goes on there.")
    ] = Path("runs/serrano-smith"),
    jobs: Jobs = 1,
    device: Device = "auto",
) -> None:
    """Reproduce Serrano and Smith 2019, "Is Attention Interpretable?": every model and figure.

    Prepares the corpora, embeds words, trains HAN and FLAN models with three encoders, erases, and
    writes the report. Finished stages are never redone; the same command goes on after a kill.
    """
    from fastattnerase.runs import schedule
    from fastattnerase.runs.workspace import MANIFEST
    from fastattnerase.studies.serrano_smith.corpora import original_study
    from fastattnerase.studies.serrano_smith.study import read_study
    from fastattnerase.studies.serrano_smith.units import STAGES, SerranoSmith

    if until not in STAGES:
        raise UsageError(f"--until: given {until!r}, needed {one_of(STAGES)}")
    require_folder("--data-root", data_root)
    if study is not None and preset is not None:
        raise UsageError(
            "--preset: given with --study, needed without it: a study has corpora of its own"
        )
    wanted = original_study(data_root, preset or "paper") if study is None else read_study(study)
    if seeds is not None:
        wanted = dataclasses.replace(wanted, seeds=_numbers(seeds))
    workspace = SerranoSmith(
        wanted, data_root, out_folder, tuple(only or ()), until, choose_device(device)
    )
    with Watcher(workspace.describe) as watcher:
        schedule.run(workspace, jobs, watcher)
    out.print(str((out_folder / MANIFEST).resolve()), soft_wrap=True)
    for unit in workspace.unfit():
        out.print(f"not in the report, made with other options or data: {unit.key}", soft_wrap=True)
    if until == "report":
        page = out_folder / "report" / "report.html"
        out.print(str(page.resolve()), style="bold", soft_wrap=True)
