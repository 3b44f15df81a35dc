"""CPU variants that `_C` does not hold, behind pipes: see python_tests/native/serve.cpp.

`cpu-wide` is the engine with vectors of 64 bytes on any machine: the body that AVX-512 runs.
`cpu-neon-emulated` is the engine built for Arm and run by an emulator of user programs, where the
machine has the tools (Debian: g++-aarch64-linux-gnu and qemu-user).
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastattnerase import _C
from fastattnerase.backends.addresses import (
    permute_fields,
    pooled_fields,
    readable,
    reweigh_fields,
    sweep_fields,
)
from fastattnerase.problem import (
    Outputs,
    PermutedOutputs,
    PermutedProblem,
    PooledProblem,
    Problem,
    ReweighedProblem,
)

ROOT = Path(__file__).resolve().parents[2]
ARM = platform.machine() in ("aarch64", "arm64")
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


@dataclass(frozen=True)
class Server:
    """A build of serve.cpp."""

    folder: Path
    variant: str
    options: tuple[str, ...] = ()  # of CMake
    emulator: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()  # commands that the machine may lack


SERVERS = {
    "cpu-wide": Server(
        ROOT / "build" / "served-wide", "wide", ("-DFASTATTNERASE_CPU_TARGETS=wide",)
    ),
    "cpu-neon-emulated": Server(
        ROOT / "build" / "served-arm",
        "neon",
        (
            "-DFASTATTNERASE_CPU_TARGETS=neon",
            "-DCMAKE_SYSTEM_NAME=Linux",
            "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
            f"-DCMAKE_CXX_COMPILER={COMPILER}",
            "-DCMAKE_EXE_LINKER_FLAGS=-static",
        ),
        (EMULATOR,),
        (COMPILER, EMULATOR),
    ),
}


def here() -> list[str]:
    """The servers that tests must run on this kind of machine."""
    return [name for name in SERVERS if not (ARM and name == "cpu-neon-emulated")]


def lacking(name: str) -> str:
    """Why this machine cannot run a server; empty where it can."""
    if name == "cpu-wide" and not ARM and "avx2" not in _C.cpu_variants():
        return "no AVX2 on this machine"
    tools = SERVERS[name].tools if name in SERVERS else ()
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return f"no {' and no '.join(missing)}" if missing else ""


def build(name: str) -> Path:
    """Bring a server's folder up to date and say where it is."""
    server = SERVERS[name]
    server.folder.mkdir(parents=True, exist_ok=True)
    with (server.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one run may come here together
        if not (server.folder / "build.ninja").exists():
            source = str(ROOT / "python_tests" / "native")
            folder = str(server.folder)
            make = f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}"
            _run(
                _tool("cmake"), "-S", source, "-B", folder, "-G", "Ninja", make,
                "-DCMAKE_BUILD_TYPE=Release", *server.options,
            )  # fmt: skip
        _run(_tool("cmake"), "--build", str(server.folder))
    return server.folder


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is needed to build the engine for tests: pip install {name}")
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


# What `csrc/bindings/cpu.cpp` says of the faults of `csrc/cpu/engine.h`, in short.
FAULTS = {
    1: "offsets: given {value:g} at the end of instance {instance}, needed offsets that fit",
    2: "weights: given {value:g} at position {position} of instance {instance}, needed none < 0",
    3: "rankings: given position {value:g} in instance {instance}, needed a permutation",
    4: "rankings: given NaN in instance {instance}, needed scores that are not NaN",
}


class ServedBackend:
    """One variant of a server, as the contract tests run it."""

    devices = ("cpu",)

    def __init__(self, name: str, variant: str = "") -> None:
        self.name = name
        self._variant = variant or SERVERS[name].variant
        command = [*SERVERS[name].emulator, str(build(name) / "serve")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self._process.communicate)  # it ends where nothing more is asked

    def unavailable(self) -> list[str]:
        """It has been built."""
        return []

    def unsupported(self, problem: Problem) -> list[str]:
        """It takes every problem."""
        return []

    def sweep(self, problem: Problem, out: Outputs) -> None:
        """Fill every wanted result."""
        values = readable(problem.values)
        fields = sweep_fields(problem, values, out, torch.get_num_threads())
        written = [t for t in vars(out).values() if t is not None]
        self._ask("sweep", fields, [values, *_tensors(problem)], written)

    def permute(self, problem: PermutedProblem, out: PermutedOutputs) -> None:
        """Fill all results with what permuted weights do."""
        values = readable(problem.values)
        fields = permute_fields(problem, values, out, torch.get_num_threads())
        self._ask("permute", fields, [values, *_tensors(problem)], list(vars(out).values()))

    def reweigh(self, problem: ReweighedProblem, logits: Tensor) -> None:
        """Fill `logits` [R, B, C] with those of other weights."""
        values = readable(problem.values)
        fields = reweigh_fields(problem, values, logits, torch.get_num_threads())
        read = [values, problem.offsets, problem.weights, problem.head_weight, problem.head_bias]
        self._ask("reweigh", fields, read, [logits])

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        """Fill `pooled` [M, H, D] with the renormalised averages over the survivors."""
        values = readable(problem.values)
        fields = pooled_fields(problem, values, pooled, torch.get_num_threads())
        self._ask("pooled", fields, [values, *_tensors(problem)], [pooled])

    def _ask(
        self, operator: str, fields: dict[str, Any], read: list[Tensor], written: list[Tensor]
    ) -> None:
        lines = [f"{operator} {self._variant}"]
        for name, value in fields.items():
            numbers = value if isinstance(value, list) else [value]
            lines.append(" ".join((name, str(len(numbers)), *map(str, numbers))))
        sizes: dict[int, int] = {}
        for tensor in (*read, *written):
            address = tensor.data_ptr()
            sizes[address] = max(sizes.get(address, 0), _extent(tensor))
        sizes.pop(0, None)
        results = {tensor.data_ptr() for tensor in written}
        lines.append(f"memory {len(sizes)}")
        lines += [f"{at} {size} {int(at in results)}" for at, size in sizes.items()]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n".join((*lines, "")).encode())
        for at, size in sizes.items():
            stdin.write(ctypes.string_at(at, size))
        stdin.flush()
        answer = stdout.readline().split()
        if not answer:
            raise RuntimeError(f"{self.name} ended with {self._process.wait()}")
        for at, size in sizes.items():
            if at in results:
                ctypes.memmove(at, stdout.read(size), size)
        fault, instance, position = map(int, answer[:3])
        if fault < 0:
            raise RuntimeError(f"{self.name} has no variant {self._variant}")
        if fault:
            value = float.fromhex(answer[4].decode())
            text = FAULTS[fault]
            raise ValueError(text.format(value=value, instance=instance, position=position))


def _tensors(problem: Problem | PooledProblem | PermutedProblem) -> Iterator[Tensor]:
    for value in vars(problem).values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from (x for x in value if isinstance(x, Tensor))


def _extent(tensor: Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


@cache
def load(name: str) -> ServedBackend:
    """A server's backend, built and started where needed."""
    return ServedBackend(name)


if __name__ == "__main__":
    for name in sys.argv[1:] or here():
        if not lacking(name):
            build(name)
