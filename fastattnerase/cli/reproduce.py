"""`fastattnerase reproduce STUDY`: the command of a study that has none of its own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

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
from fastattnerase.cli.options import Command
from fastattnerase.cli.watcher import Watcher
from fastattnerase.studies import Study


def command_of(study: Study) -> Command:
    """Give the command of a study.

    Where the study has none of its own, the fields of its `Options` are the options, and their
    docstring is the help.

    Args:
        study: of the list.

    Returns:
        The command.
    """
    if study.command is not None:
        module, _, name = study.command.partition(":")
        own: Command = getattr(import_module(module), name)
        return own

    def reproduce(
        options: Any,
        data_root: DataRoot,
        out_folder: Annotated[
            Path, typer.Option("--out", help="Folder to write; an interrupted run goes on there.")
        ] = Path("runs") / study.name,
        jobs: Jobs = 1,
        device: Device = "cpu",
    ) -> None:
        from fastattnerase.runs import schedule

        require_folder("--data-root", data_root)
        if hasattr(options, "vectors"):
            options = find_vectors(options, data_root)
        kind = study.load("units", study.workspace)
        workspace = kind(options, data_root, out_folder, choose_device(device))
        with Watcher(workspace.describe) as watcher:
            schedule.run(workspace, jobs, watcher)
        page = out_folder / "report" / study.page
        out.print(str(page.resolve()), style="bold", soft_wrap=True)

    options = study.load("options", "Options")
    reproduce.__annotations__["options"] = options
    reproduce.__doc__ = options.__doc__.partition("Attributes:")[0]
    reproduce.__name__ = study.name
    example = f"fastattnerase reproduce {study.name} --data-root corpora --jobs 2"
    return Command(reproduce, example)
