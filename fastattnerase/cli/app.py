"""The command line as a whole: every command in the order of the help."""

from __future__ import annotations

from typing import Annotated

import typer

from fastattnerase.cli.compare import compare
from fastattnerase.cli.debate import debate
from fastattnerase.cli.demo import demo
from fastattnerase.cli.dump import dump
from fastattnerase.cli.erase import erase
from fastattnerase.cli.export import export
from fastattnerase.cli.info import info
from fastattnerase.cli.measure import measure
from fastattnerase.cli.options import version_option
from fastattnerase.cli.report import report
from fastattnerase.cli.reproduce import command_of
from fastattnerase.cli.sweep import sweep
from fastattnerase.cli.train import train
from fastattnerase.studies import STUDIES


def _application(help: str, name: str | None = None) -> typer.Typer:
    application = typer.Typer(
        name=name,
        help=help,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @application.callback()
    def _(version: Annotated[bool, version_option(hidden=False)] = False) -> None:
        """Take what every command takes."""

    return application


app = _application(
    "Does attention explain this decision? Train attention models on your text, erase what they "
    "attend to, and read the report.",
    "fastattnerase",
)
for command in (demo, train, erase, measure, debate, compare, dump, sweep, report, export, info):
    command.add_to(app)

reproduce = _application("Reproduce a whole paper, on its corpora or on yours.")
for study in STUDIES:
    command_of(study).add_to(reproduce)
app.add_typer(reproduce, name="reproduce")
