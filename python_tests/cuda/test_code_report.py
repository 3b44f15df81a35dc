"""What nvcc makes of the kernels, against the budgets written next to them.

Compiles every source for Hopper, which takes no GPU; the compiled code is kept in build/nvcc under
a name made of the sources. Without nvcc these tests skip.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import emulator
import pytest

pytestmark = pytest.mark.long
CUDA = emulator.ROOT / "kernels" / "cuda"
BUDGETS = json.loads((CUDA / "budgets.json").read_text())
FLAGS = ["-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "--expt-extended-lambda"]
# Of a multiprocessor of compute capability 9.0.
REGISTERS, THREADS, SHARED = 65536, 2048, 233472
PER_BLOCK_RESERVED = 1024  # bytes of shared memory the system keeps a block


def _disassembler() -> str | None:
    """Of the toolkit, else the one in the Triton wheel."""
    found = shutil.which("nvdisasm")
    if found:
        return found
    triton = pytest.importorskip("triton")
    beside = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    return str(beside) if beside.exists() else None


@cache
def compiled(source: str) -> tuple[str, str]:
    """What ptxas reports of a source, and the machine code."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    disassembler = _disassembler()
    if disassembler is None:
        pytest.skip("no nvdisasm here")
    parts = [*CUDA.glob("*.cuh"), CUDA / source]
    parts += (emulator.ROOT / "csrc" / "include").rglob("*.h")
    name = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(parts))).hexdigest()[:16]
    folder = emulator.ROOT / "build" / "nvcc" / f"{Path(source).stem}-{name}"
    report, code = folder / "report.txt", folder / "code.sass"
    if not code.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cubin = folder / "code.cubin"
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
                str(CUDA / source),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        listing = subprocess.run(
            [disassembler, "-c", str(cubin)], capture_output=True, text=True, check=True
        )
        report.write_text(done.stdout + done.stderr)
        code.write_text(listing.stdout)
    return report.read_text(), code.read_text()


def functions(report: str) -> list[tuple[str, dict[str, int]]]:
    """Mangled name and numbers of every kernel and every function that kernels call."""
    found = []
    lines = report.splitlines()
    for number, line in enumerate(lines):
        name = re.search(r"Function properties for (\S+)", line)
        if name is None:
            continue
        numbers = re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
            lines[number + 1],
        )
        assert numbers is not None, lines[number : number + 2]
        row = dict(zip(("stack", "stores", "loads"), map(int, numbers.groups()), strict=True))
        used = re.search(
            r"Used (\d+) registers", lines[number + 2] if number + 2 < len(lines) else ""
        )
        if used is not None:
            row["registers"] = int(used.group(1))
        found.append((name.group(1), row))
    return found


@pytest.mark.parametrize("source", BUDGETS["sources"])
def test_nothing_spills_and_registers_are_within_the_budget(source):
    """Every kernel has a budget, every budget a kernel; calls count, since they may spill too."""
    budgets = BUDGETS["sources"][source]
    kernels = set()
    for name, row in functions(compiled(source)[0]):
        assert (row["stores"], row["loads"], row["stack"]) == (0, 0, 0), name
        if "registers" in row:
            (kernel,) = (k for k in budgets if re.search(rf"\d{k}I", name))
            kernels.add(kernel)
            assert row["registers"] <= budgets[kernel]["registers"], name
    assert kernels == set(budgets)


@pytest.mark.parametrize("source", BUDGETS["sources"])
def test_occupancy_is_what_the_budget_says(source):
    """Threads that registers, launch bounds and the planned shared memory let be resident."""
    for name, budget in BUDGETS["sources"][source].items():
        by_registers = REGISTERS // (-(-budget["registers"] // 8) * 8 * 32) * 32
        by_shared = SHARED // (budget["shared_bytes"] + PER_BLOCK_RESERVED) * budget["threads"]
        resident = min(by_registers, by_shared, THREADS) // budget["threads"] * budget["threads"]
        assert 100 * resident // THREADS == budget["occupancy_percent"], name
        assert budget["occupancy_percent"] >= 50 or budget["reason"], name


def bodies(code: str, function: str) -> list[str]:
    """The listings of the functions with this in their name."""
    parts = re.split(r"^\s*\.type\s+", code, flags=re.MULTILINE)[1:]
    return [part for part in parts if function in part.split(",", 1)[0]]


def loops(code: str, function: str) -> list[list[str]]:
    """The machine code's loops without a loop inside, of the functions with this in their name."""
    found: list[list[str]] = []
    for body in bodies(code, function):
        operations: list[str] = []
        labels: dict[str, int] = {}
        last_back = 0
        for line in body.splitlines():
            label = re.match(r"(\.L_x_\d+):", line.strip())
            if label:
                labels[label.group(1)] = len(operations)
            operation = re.search(r"/\*[0-9a-f]{4,6}\*/\s+(.*?);", line)
            if operation:
                operations.append(operation.group(1))
                back = re.search(r"BRA.*?(\.L_x_\d+)", operation.group(1))
                if back and back.group(1) in labels and labels[back.group(1)] >= last_back:
                    found.append(operations[labels[back.group(1)] :])
                    last_back = len(operations)
    return found


@pytest.mark.parametrize("variant", BUDGETS["projection"], ids=lambda variant: variant["mangled"])
def test_the_projection_loads_16_bytes_at_a_time_and_keeps_its_sums_in_registers(variant):
    """The loop over features: kRows rows' loads, a load a class of the head, then products only."""
    hot = [
        loop
        for loop in loops(compiled(variant["source"])[1], f"project_tileI{variant['mangled']}EEd")
        if sum(variant["product"] in x for x in loop) == variant["products"]
    ]
    assert len(hot) == 1, "no loop has the expected number of products"
    (loop,) = hot
    assert sum("LDG.E.EF.128" in x for x in loop) == variant["loads_of_values"]
    assert sum("LDG.E.128" in x for x in loop) == variant["loads_of_the_head"]
    assert not any(re.search(r"\b(LDL|STL|LD|ST)\b", x) for x in loop)
    assert len(loop) <= variant["most_instructions"]


@pytest.mark.parametrize(
    "variant", BUDGETS["projection_by_lanes"], ids=lambda variant: variant["mangled"]
)
def test_a_lane_with_a_row_of_its_own_reads_16_bytes_at_a_time_and_adds_nothing_across(variant):
    """Innermost, products and 16-byte loads of shared memory; around it, four loads of values."""
    function = f"project_lanesI{variant['mangled']}EEd"
    (body,) = bodies(compiled("sweep_f32.cu")[1], function)
    inner = loops(compiled("sweep_f32.cu")[1], function)[0]
    assert sum("FFMA" in x for x in inner) == variant["products"]
    assert sum("LDS.128" in x for x in inner) == variant["loads_of_shared"]
    assert len(inner) <= variant["most_instructions"]
    # Of the first 64 bytes and, in the loop, of those behind.
    assert body.count("LDG.E.EF.128") == 8
    assert not re.search(r"\b(LDL|STL|SHFL)\b", body)
