"""The command line starts at once: what computes is imported when work begins."""

from __future__ import annotations

import json
import subprocess
import sys

from fastattnerase.studies import STUDIES

COMMANDS = ["demo", "train", "erase", "measure", "report", "export", "info"]
COMMANDS += [f"reproduce {study.name}" for study in STUDIES]
HEAVY = (
    "torch", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "matplotlib", "spacy", "jinja2",
    "datasets", "gensim",
)  # fmt: skip
# Runs each command line after the other in one process, and names what all of them imported.
START = """
import json, sys
from fastattnerase.cli import main

for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, arguments
json.dump(sorted(sys.modules), sys.stderr)
"""


def imported_by(*lines: str) -> set[str]:
    """Run command lines in a process of their own; name the heavy packages that they import."""
    arguments = json.dumps([line.split() for line in lines])
    result = subprocess.run(
        [sys.executable, "-c", START, arguments], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stderr)) & set(HEAVY)


def test_help_imports_nothing_that_computes() -> None:
    assert imported_by("--help", "reproduce --help", *(f"{name} --help" for name in COMMANDS)) == (
        set()
    )


def test_what_computes_is_imported_when_work_begins() -> None:
    assert {"torch", "numpy"} <= imported_by("info")
