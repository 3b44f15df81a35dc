"""`benchmarks/peers.sh`: an environment for each library, from the package index that is given."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "peers.sh"

# Notes how it is called; makes an "environment" whose python is another copy of it.
PYTHON = """#!/usr/bin/env bash
printf '%s|' "$@" >>"$CALLS"; echo >>"$CALLS"
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
"""


def run(folder: Path, *arguments: str, **variables: str) -> tuple[list[list[str]], str]:
    """Run the script with a Python that only takes notes: its calls' arguments, and the output."""
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    calls = folder / "calls"
    calls.unlink(missing_ok=True)
    own = {"PYTHON": str(python), "CALLS": str(calls), "ENVIRONMENTS": str(folder / "made")}
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        env=os.environ | own | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split("|")[:-1] for line in calls.read_text().splitlines()], done.stdout


def test_the_index_that_is_given_is_pips_and_environments_are_made_once(tmp_path: Path) -> None:
    index = "--index-url https://packages.example/simple --find-links wheels"
    made, out = run(tmp_path, "out", "ferret", "m", "t.jsonl", "--explain", INDEX=index)
    [venv, pip, ferret] = made
    assert venv == ["-m", "venv", str(tmp_path / "made" / "ferret")]
    assert pip[:9] == ["-m", "pip", "install", "-q", "--prefer-binary", *index.split()]
    assert pip[9:11] == ["torch", "ferret-xai==0.4.2"]
    assert {"numpy<2", "captum<0.8", "datasets<3", "transformers<5"} < set(pip)
    runner = str(SCRIPT.with_name("peers_ferret.py"))
    assert ferret == [runner, "m", "t.jsonl", "out/ferret.json", "--explain"]
    assert out == "out/ferret.json\n"
    again, _ = run(tmp_path, "out", "ferret", "m", "t.jsonl")
    assert again == [[runner, "m", "t.jsonl", "out/ferret.json"]]
    other, _ = run(tmp_path, "out", "inseq", "m", "t.jsonl", INDEX="")
    assert other[1] == ["-m", "pip", "install", "-q", "--prefer-binary", "torch", "inseq==0.7.*"]


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    for given, told in (
        (["out", "lime", "m", "t"], "library: given lime, needed ferret or inseq"),
        (["out"], "given 1 arguments, needed OUT, ferret or inseq, MODEL and TEXTS"),
    ):
        done = subprocess.run(["bash", str(SCRIPT), *given], capture_output=True, text=True)
        assert done.returncode == 64
        assert told in done.stderr
