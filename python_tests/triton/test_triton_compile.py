"""Every Triton kernel compiled ahead of time for sm_90: registers, spills, occupancy, loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

pytestmark = pytest.mark.long
KERNELS = import_module("fastattnerase.kernels.triton")
# Why a kernel leaves more than half of a multiprocessor's warps unused.
REASONS = json.loads(
    (Path(__file__).parents[2] / "kernels" / "triton" / "occupancy.json").read_text()
)


def occupancy(registers: int, shared: int, warps: int) -> float:
    """The share of 64 warps that a multiprocessor of compute capability 9.0 holds."""
    by_registers = 65536 // (-(-registers // 8) * 8 * 32 * warps)
    by_shared = 233472 // (shared + 1024)
    return min(by_registers, by_shared, 64 // warps, 32) * warps / 64


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
        resident = occupancy(row["registers"], row["shared"], row["warps"])
        assert resident >= 0.5 or REASONS[row["kernel"]], row
    assert set(REASONS) <= expected
    projection = [row for row in compiled if row["kernel"] == "project_kernel"]
    assert all(row["wide_loads"] >= 2 for row in projection), projection
