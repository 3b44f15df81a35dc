"""Every Triton kernel compiled ahead of time for sm_90: registers, spills, width of loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

KERNELS = import_module("fastattnerase.kernels.triton")


@pytest.mark.parametrize("configuration", ["float32", "bfloat16", "wide"])
def test_kernels_compile_without_spills(configuration: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    process = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_kernels.py"), configuration],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    compiled = [json.loads(line) for line in process.stdout.splitlines()]
    modules = [
        import_module(f"{KERNELS.__name__}.{m.name}") for m in iter_modules(KERNELS.__path__)
    ]
    expected = {name for m in modules for name in vars(m) if name.endswith("_kernel")}
    assert {row["kernel"] for row in compiled} == expected
    for row in compiled:
        assert row["spills"] == 0, row
        assert row["registers"] * row["warps"] * 32 <= 65536, row
        assert row["shared"] <= 48 * 1024, row
    projection = [row for row in compiled if row["kernel"] == "project_kernel"]
    assert all(row["wide_loads"] >= 2 for row in projection), projection
