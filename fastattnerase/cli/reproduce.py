"""`fastattnerase reproduce PAPER`: whole papers with one command.

A file `reproduce_*.py` is a command: it registers itself with `app` when imported. Nothing heavy is
imported there outside the command's function, so that `--help` answers soon.
"""

import typer

app = typer.Typer(
    help="Reproduce a whole paper, on its corpora or on yours.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
