"""`fastattnerase reproduce PAPER`: whole papers with one command.

A file beside this one is a command: it registers itself with `app` when imported. Nothing heavy is
imported there outside the command's function, so that `--help` answers soon.
"""

import importlib
import pkgutil

import typer

app = typer.Typer(
    help="Reproduce a whole paper, on its corpora or on yours.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
