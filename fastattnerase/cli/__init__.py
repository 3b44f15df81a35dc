"""The `fastattnerase` command: one file a command, and what they share."""

from __future__ import annotations

import atexit
import gc
import sys

from fastattnerase.cli import interrupts
from fastattnerase.extras import MissingPackageError, needs


def main() -> None:
    """Run the command line."""
    interrupts.handle()  # before anything else is imported
    # What is imported stays: going through it for garbage again and again, and once more at the
    # end, takes a third of the time in which torch is there.
    gc.set_threshold(50_000, 20, 50)
    atexit.register(gc.freeze)
    try:
        with needs("cli"):
            from fastattnerase.cli.app import app
            from fastattnerase.cli.console import prepare
    except MissingPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    prepare()
    app()
