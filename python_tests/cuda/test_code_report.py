"""What nvcc makes of the kernels, against the budgets written next to them.

Compiles the float32 sweep for Hopper, which takes no GPU; the compiled code is kept in build/nvcc
under a name made of its sources. Without nvcc these tests skip.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import emulator
import pytest

CUDA = emulator.ROOT / "kernels" / "cuda"
BUDGETS = json.loads((CUDA / "budgets.json").read_text())
FLAGS = ["-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "--expt-extended-lambda"]


def _disassembler() -> str | None:
    """Of the toolkit, else the one in the Triton wheel."""
    found = shutil.which("nvdisasm")
    if found:
        return found
    triton = pytest.importorskip("triton")
    beside = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    return str(beside) if beside.exists() else None


@cache
def compiled() -> tuple[str, str]:
    """What ptxas reports, and the machine code."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    disassembler = _disassembler()
    if disassembler is None:
        pytest.skip("no nvdisasm here")
    sources = sorted([*CUDA.glob("*.cu*"), *(emulator.ROOT / "csrc" / "include").rglob("*.h")])
    name = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = emulator.ROOT / "build" / "nvcc" / name
    report, code = folder / "report.txt", folder / "code.sass"
    if not code.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cubin = folder / "sweep.cubin"
        arch = BUDGETS["architecture"]
        done = subprocess.run(
            [
                nvcc,
                *FLAGS,
                f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}",
                f"-I{CUDA}",
                f"-I{emulator.ROOT / 'csrc' / 'include'}",
                "--resource-usage",
                "-cubin",
                "-o",
                str(cubin),
                str(CUDA / BUDGETS["source"]),
            ],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        )
        report.write_text(done.stdout + done.stderr)
        listing = subprocess.run(
            [disassembler, "-c", str(cubin)], capture_output=True, text=True, check=True
        )
        code.write_text(listing.stdout)
    return report.read_text(), code.read_text()


@pytest.mark.parametrize("kernel", BUDGETS["kernels"])
def test_registers_and_stack_are_within_the_budget(kernel):
    report, _ = compiled()
    used = re.search(
        rf"Function properties for _ZN3fae\d+{kernel}I.*\n.*\n.*Used (\d+) registers(.*)", report
    )
    assert used is not None, report
    stack = re.search(r"(\d+) bytes cumulative stack", used.group(2))
    budget = BUDGETS["kernels"][kernel]
    assert int(used.group(1)) <= budget["registers"]
    assert int(stack.group(1) if stack else 0) <= budget["stack_bytes"]


def test_the_projection_loads_16_bytes_at_a_time_and_keeps_its_sums_in_registers():
    """The innermost loop of four float32 rows and ten classes: 4 · 4 · (10 + 1) products."""
    _, code = compiled()
    body = code.split("project_rows", 1)[1]
    operations: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in body.splitlines():
        label = re.match(r"(\.L_x_\d+):", line.strip())
        if label:
            labels[label.group(1)] = len(operations)
        operation = re.search(r"/\*[0-9a-f]{4,6}\*/\s+(.*?);", line)
        if operation:
            operations.append(operation.group(1))
            back = re.search(r"BRA.*?(\.L_x_\d+)", operation.group(1))
            if back and back.group(1) in labels:
                loops.append(operations[labels[back.group(1)] :])
    budget = BUDGETS["projection"]
    hot = [
        loop
        for loop in loops
        if sum("FFMA" in x for x in loop) == budget["hot_loop_fma"]
        and sum("LDG.E.EF.128" in x for x in loop) == budget["vector_loads_of_values"]
        and len(loop) < 400
    ]
    assert hot, "no innermost loop has the expected products and 16-byte loads"
    for loop in hot:
        assert sum("LDL" in x or "STL" in x for x in loop) == budget["local_memory"]
