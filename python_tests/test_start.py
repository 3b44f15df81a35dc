"""The command line starts at once: what computes is imported when work begins."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import fastattnerase
from fastattnerase.cli.app import app


def names_of(group: Any) -> list[str]:
    """Name a group's commands and those of the groups in it."""
    inner = getattr(group, "commands", {})
    return [*inner, *(f"{name} {own}" for name in inner for own in names_of(inner[name]))]


COMMANDS = ["", *names_of(typer.main.get_command(app))]
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
    assert imported_by(*(f"{name} --help" for name in COMMANDS)) == set()


def test_what_computes_is_imported_when_work_begins() -> None:
    assert {"torch", "numpy"} <= imported_by("info")


def test_a_page_of_finished_runs_is_written_without_torch() -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "import fastattnerase.studies.serrano_smith.report\n"
        "from fastattnerase.cli.inputs import find_run\n"
        "find_run(Path())\nprint('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_completion_imports_nothing_that_computes() -> None:
    code = (
        "import sys\nfrom fastattnerase.cli import main\nsys.argv[0] = 'fastattnerase'\n"
        "try:\n    main()\nexcept SystemExit:\n    print('torch' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ
        | {
            "_FASTATTNERASE_COMPLETE": "complete_bash",
            "COMP_WORDS": "fastattnerase me",
            "COMP_CWORD": "1",
        },
    )
    assert result.stdout.split() == ["measure", "False"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_version_and_a_short_form_of_help(command: str) -> None:
    def invoke(option: str) -> str:
        result = CliRunner().invoke(app, [*command.split(), option], env={"COLUMNS": "100"})
        assert result.exit_code == 0, result.output
        return result.stdout

    assert invoke("--version") == f"fastattnerase {fastattnerase.__version__}\n"
    assert "Usage: fastattnerase" in invoke("-h")
    assert invoke("-h") == invoke("--help")


def test_the_version_is_that_of_the_distribution() -> None:
    assert importlib.metadata.version("fastattnerase") == fastattnerase.__version__


STOPPED = "stopped: interrupted; what is finished is kept, the same command goes on from there\n"
# Presses Ctrl-C when a module begins to be imported.
PRESS = """
import os, signal, sys

pressed = sys.argv.pop(1)

class Press:
    def find_spec(self, name, path, target=None):
        if name == pressed:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
from fastattnerase.cli import main

main()
"""


@pytest.mark.parametrize(
    "module", ["fastattnerase.cli.app", "typer", "fastattnerase.cli.train", "torch", "torch.nn"]
)
def test_ctrl_c_during_imports_ends_with_one_line(module: str) -> None:
    """First of all, before the commands are known, when work begins, and in the midst of torch."""
    result = subprocess.run(
        [sys.executable, "-c", PRESS, module, "info"], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", STOPPED)


def test_ctrl_c_during_work_ends_with_one_line_and_keeps_what_is_finished(tmp_path: Path) -> None:
    rows = [f"a {'good' if i % 2 else 'bad'} film number {i},{i % 2}" for i in range(60)]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    out = tmp_path / "model"
    command = [
        *(sys.executable, "-m", "fastattnerase", "train", "--data", str(tmp_path / "x.csv")),
        *("--encoder", "noenc", "--embedding-size", "4", "--epochs", "100000"),
        *("--patience", "100000", "--out", str(out), "--device", "cpu"),
    ]
    progress = out / "checkpoint" / "progress.json"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not progress.exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 130, told
    assert told.endswith(STOPPED)
    assert "Traceback" not in told
    assert json.loads(progress.read_text())["history"]


@pytest.mark.parametrize("package", ["", ".data", ".models", ".mi"])
def test_public_names_are_found_when_they_are_asked_for(package: str) -> None:
    """In a process of its own: by attribute, by star, in `dir`; another name is none."""
    code = f"""
import sys
import fastattnerase{package} as package
from fastattnerase{package} import *

public = sys.modules["fastattnerase{package}.public"]
assert package.__all__ == public.__all__
for name in public.__all__:
    assert globals()[name] is getattr(package, name) is getattr(public, name), name
assert set(public.__all__) <= set(dir(package))
try:
    package.swepe
except AttributeError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == ""
    assert result.stdout == f"module 'fastattnerase{package}' has no attribute 'swepe'\n"


def test_the_operators_are_there_with_the_first_public_name() -> None:
    code = (
        "import fastattnerase as fae, sys\nassert 'torch' not in sys.modules\nfae.AttentionBatch\n"
        "import torch\ntorch.ops.fastattnerase.sweep.default\nprint(fae.backends()['reference'])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")
