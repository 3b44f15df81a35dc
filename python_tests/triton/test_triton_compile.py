"""Every Triton kernel compiled ahead of time for each GPU: registers, spills, occupancy, loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from gpus import BY_CAPABILITY, REGISTERS

pytestmark = pytest.mark.long
KERNELS = import_module("fastattnerase.kernels.triton")
# Why a kernel leaves more than half of a multiprocessor's warps unused, and which may spill.
REASONS = json.loads(
    (Path(__file__).parents[2] / "kernels" / "triton" / "occupancy.json").read_text()
)
EVERY = [(configuration, 90) for configuration in ("float32", "bfloat16", "wide")]
EVERY += [("wide", capability) for capability in BY_CAPABILITY if capability != 90]


@pytest.mark.parametrize(("configuration", "capability"), EVERY)
def test_kernels_compile_without_spills(configuration: str, capability: int) -> None:
    gpu = BY_CAPABILITY[capability]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    process = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("compile_kernels.py"),
            configuration,
            str(capability),
        ],
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
        spills = 2 if row["kernel"] in REASONS["spills"] and capability < 90 else 0
        assert row["spills"] <= spills, row
        threads = row["warps"] * 32
        assert row["registers"] * threads <= REGISTERS, row
        assert row["shared"] <= 48 * 1024, row  # what a block has of any GPU without asking
        resident = gpu.resident(row["registers"], row["shared"], threads)
        assert 2 * resident >= gpu.threads or REASONS["occupancy"][row["kernel"]], row
    assert {*REASONS["occupancy"], *REASONS["spills"]} <= expected
    projection = [row for row in compiled if row["kernel"] == "project_kernel"]
    assert all(row["wide_loads"] >= 2 for row in projection), projection
