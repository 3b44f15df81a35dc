"""What nvcc made of the kernels in the native module, against the budgets written next to them.

Reads the machine code of every architecture that the module was built for; disassembled code is
kept in build/nvcc under a name made of the module. Without CUDA in the build these tests skip.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import emulator
import pytest
from gpus import BY_CAPABILITY

from fastattnerase import _C

pytestmark = pytest.mark.long
BUDGETS = json.loads((emulator.ROOT / "kernels" / "cuda" / "budgets.json").read_text())
HELD = _C.cuda_compiled_for().split(",") if _C.has_cuda else []
CODES = [int(name.removeprefix("sm_")) for name in HELD if name.startswith("sm_")]
KERNELS = [(source, kernel) for source, kernels in BUDGETS["kernels"].items() for kernel in kernels]
# Which real type a source's templates are of, in mangled names.
REAL = {"sweep_f32.cu": "If", "sweep_f64.cu": "Id", "pooled.cu": "I"}


def tool(name: str) -> str:
    """A program of the toolkit, else the one in the Triton wheel."""
    found = shutil.which(name)
    if found is None:
        triton = pytest.importorskip("triton")
        found = str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)
    return found


def output(*command: str, folder: Path | None = None) -> str:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


@cache
def extracted(code: int) -> list[Path]:
    """The module's machine code for one architecture, a file a source."""
    module = Path(_C.__file__)
    name = hashlib.sha256(module.read_bytes()).hexdigest()[:16]
    folder = emulator.ROOT / "build" / "nvcc" / f"{name}-sm_{code}"
    if not folder.exists():  # made aside and renamed: several processes of tests may want it
        folder.parent.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(dir=folder.parent))
        output(tool("cuobjdump"), "--extract-elf", f".sm_{code}.", str(module), folder=own)
        try:
            own.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(own)
    return sorted(folder.glob("*.cubin"))


@cache
def usage(code: int) -> dict[str, dict[str, int]]:
    """Registers, bytes of stack and of other local memory of each kernel, by mangled name."""
    found = {}
    for cubin in extracted(code):
        lines = output(tool("cuobjdump"), "--dump-resource-usage", str(cubin)).splitlines()
        for line, numbers in itertools.pairwise(lines):
            if name := re.match(r"\s*Function (\S+):", line):
                row = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", numbers))
                found[name[1]] = {key: int(number) for key, number in row.items()}
    return found


@cache
def listing(code: int, source: str) -> str:
    """The disassembled kernels of a source."""
    for cubin in extracted(code):
        kept = cubin.with_suffix(".sass")
        if not kept.exists():
            aside = kept.with_suffix(f".{os.getpid()}")
            aside.write_text(output(tool("nvdisasm"), "-c", str(cubin)))
            aside.replace(kept)
        text = kept.read_text()
        kernels = BUDGETS["kernels"][source]
        if all(re.search(rf"\d{kernel}{REAL[source]}", text) for kernel in kernels):
            return text
    raise AssertionError(f"no code of {source} for sm_{code}")


@pytest.fixture(params=sorted(BY_CAPABILITY))
def code(request: pytest.FixtureRequest) -> int:
    """An architecture of the build."""
    if not CODES:
        pytest.skip("no CUDA kernels in this build")
    if request.param not in CODES:
        pytest.skip(f"no code for sm_{request.param} in this build")
    return request.param


def test_the_module_holds_what_was_asked_for():
    if not CODES:
        pytest.skip("no CUDA kernels in this build")
    for kind, prefix in (("elf", "sm"), ("ptx", "compute")):
        listed = output(tool("cuobjdump"), f"--list-{kind}", _C.__file__)
        found = {f"{prefix}_{number}" for number in re.findall(r"\.sm_(\d+)\.", listed)}
        assert found == {name for name in HELD if name.startswith(prefix)}


def of(budget: dict[str, Any], name: str, code: int) -> int:
    """A number of a budget, which may differ by architecture."""
    number = budget[name]
    return number.get(f"sm_{code}", number["else"]) if isinstance(number, dict) else number


@pytest.mark.parametrize(("source", "kernel"), KERNELS)
def test_registers_and_stack_are_within_the_budget(code, source, kernel):
    budget = BUDGETS["kernels"][source][kernel]
    rows = [
        row for name, row in usage(code).items() if re.search(rf"\d{kernel}{REAL[source]}", name)
    ]
    assert rows
    for row in rows:
        assert row["REG"] <= budget["registers"]
        assert (row["STACK"], row["LOCAL"]) <= (of(budget, "stack_bytes", code), 0)


def test_every_kernel_has_a_budget(code):
    for name in usage(code):
        assert any(
            re.search(rf"\d{kernel}{REAL[source]}", name) for source, kernel in KERNELS
        ), name  # fmt: skip


@pytest.mark.parametrize("source", BUDGETS["kernels"])
def test_only_what_the_budget_names_spills(code, source):
    """Loads and stores of local memory, of kernels and of the functions that they call."""
    allowed = BUDGETS["spills"][f"sm_{code}"]
    found: dict[str, int] = {}
    name = ""
    for body in re.split(r"^\s*\.type\s+", listing(code, source), flags=re.MULTILINE)[1:]:
        function = body.split(",", 1)[0]
        name = name if function.startswith("$") else function  # a part of the kernel before it
        if count := len(re.findall(r"\b(?:LDL|STL)\b", body)):
            found[name] = found.get(name, 0) + count
    for name, count in found.items():
        (budget,) = (most for part, most in allowed.items() if part in name)
        assert count <= budget, name


@pytest.mark.parametrize(("source", "kernel"), KERNELS)
def test_occupancy_is_what_the_budget_says(code, source, kernel):
    """Threads that registers, launch bounds and the planned shared memory let be resident."""
    gpu = BY_CAPABILITY[code]
    budget = BUDGETS["kernels"][source][kernel]
    shared = gpu.quarter if budget["shared_bytes"] == "quarter" else budget["shared_bytes"]
    resident = gpu.resident(budget["registers"], shared, budget["threads"])
    percent = 100 * resident // gpu.threads
    assert percent == of(budget, "occupancy_percent", code)
    assert percent >= 50 or budget["reason"]


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
def test_the_projection_loads_16_bytes_at_a_time_and_keeps_its_sums_in_registers(code, variant):
    """The loop over features: kRows rows' loads, a load a class of the head, then products only."""
    hot = [
        loop
        for loop in loops(listing(code, variant["source"]), f"project_tileI{variant['mangled']}EEd")
        if sum(variant["product"] in x for x in loop) == variant["products"]
    ]
    assert len(hot) == 1, "no loop has the expected number of products"
    (loop,) = hot
    assert sum("LDG.E.EF.128" in x for x in loop) == variant["loads_of_values"]
    assert sum("LDG.E.128" in x for x in loop) == variant["loads_of_the_head"]
    assert not any(re.search(r"\b(LDL|STL|LD|ST)\b", x) for x in loop)
    assert len(loop) <= of(variant, "most_instructions", code)


@pytest.mark.parametrize(
    "variant", BUDGETS["projection_by_lanes"], ids=lambda variant: variant["mangled"]
)
def test_a_lane_with_a_row_of_its_own_reads_16_bytes_at_a_time_and_adds_nothing_across(
    code, variant
):
    """Innermost, products and 16-byte loads of shared memory; around it, four loads of values."""
    function = f"project_lanesI{variant['mangled']}EEd"
    (body,) = bodies(listing(code, "sweep_f32.cu"), function)
    inner = loops(listing(code, "sweep_f32.cu"), function)[0]
    assert sum("FFMA" in x for x in inner) == variant["products"]
    assert sum("LDS.128" in x for x in inner) == variant["loads_of_shared"]
    assert len(inner) <= variant["most_instructions"]
    # Of the first 64 bytes and, in the loop, of those behind.
    assert body.count("LDG.E.EF.128") == 8
    assert not re.search(r"\b(LDL|STL|SHFL)\b", body)
