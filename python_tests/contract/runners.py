"""The backends that tests must run on this machine, and how to load each."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from contract.harness import Runner
from fastattnerase.backends import backends, choose, register
from fastattnerase.backends.base import Outputs, PooledProblem, Problem


def isas() -> list[str]:
    """The instruction-set variants of the CPU engine that run here."""
    from fastattnerase import _C

    return list(_C.cpu_isas())


def required(gpu: bool) -> list[str]:
    """What must run: everything but a GPU's own backends where there is no GPU."""
    native = [f"cpu-{isa}" for isa in isas()]
    return ["reference", *native, "triton", "cuda" if gpu else "cuda-emulated"]


@cache
def load(name: str, gpu: bool) -> Runner:
    """Load and register a backend; one that cannot run fails the test that wants it."""
    device = "cuda" if gpu and name in ("cuda", "triton") else "cpu"
    if name.startswith("cpu-"):
        register(ForcedIsa(name.removeprefix("cpu-")))
    elif name == "cuda-emulated":
        path = Path(__file__).parents[1] / "cuda" / "emulator.py"
        spec = importlib.util.spec_from_file_location("fastattnerase_emulator", path)
        assert spec is not None
        assert spec.loader is not None
        emulator = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(emulator)
        register(emulator.load())
    reasons = backends().get(name, ["no such backend"])
    assert not reasons, f"{name} must run here, but: {'; '.join(reasons)}"
    return Runner(name, choose(name, torch.device(device).type), device)


class ForcedIsa:
    """The CPU backend with one instruction-set variant in force during each call."""

    devices = ("cpu",)

    def __init__(self, isa: str) -> None:
        from fastattnerase import _C
        from fastattnerase.backends.cpu import BACKEND

        self.name, self.isa = f"cpu-{isa}", isa
        self._native, self._cpu = _C, BACKEND

    def unavailable(self) -> list[str]:
        return self._cpu.unavailable()

    def unsupported(self, problem: Problem) -> list[str]:
        return self._cpu.unsupported(problem)

    def sweep(self, problem: Problem, out: Outputs) -> None:
        with _Force(self._native, self.isa):
            self._cpu.sweep(problem, out)

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        with _Force(self._native, self.isa):
            self._cpu.pooled_prefixes(problem, pooled)


class _Force:
    def __init__(self, native: object, isa: str) -> None:
        self.native, self.isa = native, isa

    def __enter__(self) -> None:
        self.before = self.native.cpu_isa()
        self.native.cpu_select_isa(self.isa)

    def __exit__(self, *exception: object) -> None:
        self.native.cpu_select_isa(self.before)

