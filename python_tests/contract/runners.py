"""The backends that tests must run on this machine, and how to load each."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from contract.harness import Runner
from fastattnerase import _C
from fastattnerase.backends import choose, register
from fastattnerase.backends.cpu import CpuBackend


def required(gpu: bool) -> list[str]:
    """What must run: everything but a GPU's own backends where there is no GPU."""
    native = [f"cpu-{variant}" for variant in _C.cpu_variants()]
    return ["reference", *native, "triton", "cuda" if gpu else "cuda-emulated"]


@cache
def load(name: str, gpu: bool) -> Runner:
    """Load and register a backend; one that cannot run fails the test that wants it, saying why."""
    device = "cuda" if gpu and name in ("cuda", "triton") else "cpu"
    if name.startswith("cpu-"):
        register(CpuBackend(name, variant=name.removeprefix("cpu-")))
    elif name == "cuda-emulated":
        path = Path(__file__).parents[1] / "cuda" / "emulator.py"
        spec = importlib.util.spec_from_file_location("fastattnerase_emulator", path)
        assert spec is not None
        assert spec.loader is not None
        emulator = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(emulator)
        register(emulator.load())
    return Runner(name, choose(name, device), device)
