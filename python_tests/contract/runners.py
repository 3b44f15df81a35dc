"""The backends that tests must run, and how to load each."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from zlib import crc32

from gpus import GPUS

from contract import served
from contract.harness import Runner
from contract.interpreter import quicken
from contract.tally import ABSENT
from fastattnerase import _C
from fastattnerase.backends import choose, register
from fastattnerase.backends.cpu import CpuBackend

# Tests that a backend refuses: 8 cases have several attention heads, and 2 of pooled prefixes.
REFUSALS = {"triton": 8, "cuda": 10, "cuda-emulated": 10}


def hide(names: str) -> None:
    """Make this process and those it starts see a processor without some variants (comma list)."""
    hidden = set(names.split(","))
    if unknown := hidden - set(_C.cpu_variants_built()) | hidden & {"plain"}:
        raise ValueError(
            f"FASTATTNERASE_TEST_HIDE: given {', '.join(sorted(unknown))}, "
            f"needed variants of {_C.cpu_variants_built()} but plain"
        )
    left = [name for name in _C.cpu_variants() if name not in hidden]
    _C.cpu_variants = lambda: left
    if os.environ.setdefault("FASTATTNERASE_CPU_ISA", left[0]) in hidden:
        raise ValueError("FASTATTNERASE_CPU_ISA: given a variant that FASTATTNERASE_TEST_HIDE has")


def required(gpu: bool) -> list[str]:
    """What must run: every variant of the build, everything else but a GPU's own without a GPU."""
    native = [f"cpu-{variant}" for variant in _C.cpu_variants_built()]
    return ["reference", *native, *served.here(), "triton", "cuda" if gpu else "cuda-emulated"]


def cases_only(name: str) -> bool:
    """Whether a backend runs the contract's cases and leaves its other tests to faster ones."""
    return name in served.SERVERS


def permutes(name: str) -> bool:
    """Whether a backend permutes weights, `fae.permute`."""
    return name == "reference" or name.startswith("cpu-")


def absent(name: str) -> str:
    """Why this machine cannot run a variant; empty where it can."""
    variant = name.removeprefix("cpu-")
    if variant in _C.cpu_variants_built() and variant not in _C.cpu_variants():
        return ABSENT
    return served.lacking(name)


def native(variant: str) -> str:
    """Register a variant of the CPU engine as a backend and say its name."""
    name = f"cpu-{variant}"
    register(served.load(name) if name in served.SERVERS else CpuBackend(name, variant))
    return name


@cache
def emulator() -> ModuleType:
    """The module that builds and loads the emulated CUDA kernels."""
    path = Path(__file__).parents[1] / "cuda" / "emulator.py"
    spec = importlib.util.spec_from_file_location("fastattnerase_emulator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def emulate(test: str, gpu: str) -> None:
    """Emulate a GPU, or one that the test's name draws: each sees its share of all tests."""
    name = gpu or sorted(GPUS)[crc32(test.encode()) % len(GPUS)]
    emulator().use(GPUS[name])


@cache
def load(name: str, gpu: bool) -> Runner:
    """Load and register a backend; one that cannot run fails the test that wants it, saying why."""
    device = "cuda" if gpu and name in ("cuda", "triton") else "cpu"
    if name == "triton" and device == "cpu":
        quicken()
    elif name in served.SERVERS:
        register(served.load(name))
    elif name.startswith("cpu-"):
        native(name.removeprefix("cpu-"))
    elif name == "cuda-emulated":
        register(emulator().load())
    return Runner(name, choose(name, device), device)
