"""`benchmarks/gpu_check.sh`: what its summary says of the stages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu_check.sh"


def summary(folder: Path, python: str) -> tuple[int, list[str]]:
    """Run the stage `transformer` alone with a Python that is a shell script; its last lines."""
    program = folder / "python"
    program.write_text(f"#!/usr/bin/env bash\n{python}\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", str(SCRIPT), "--emulated", "--stages", "transformer", str(folder / "out")],
        env=os.environ | {"PYTHON": str(program)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()[-2:]


def test_a_stage_without_its_package_is_named_as_not_run(tmp_path: Path) -> None:
    # The check of the packages runs in a Python that finds none but its own.
    status, [stage, all_stages] = summary(tmp_path, f'exec {sys.executable} -S -I "$@"')
    assert status == 0
    assert stage.split()[:3] == ["transformer", "not", "run"]
    assert stage.endswith("transformers tokenizers not installed: nothing was checked")
    assert all_stages.startswith("emulated: 0 failed")


@pytest.mark.parametrize(
    ("python", "verdict", "failed"), [("exit 0", "ok", 0), ("exit 1", "FA", 1)]
)
def test_failures_are_counted(tmp_path: Path, python: str, verdict: str, failed: int) -> None:
    status, [stage, all_stages] = summary(tmp_path, python)
    assert status == failed
    assert stage.split()[1].startswith(verdict)
    assert all_stages.startswith(f"emulated: {failed} failed")
