"""What the benchmark scripts share: the engine, medians, memory, comparison, tables."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from baselines import Result
from problems import RANKINGS, Data
from torch import Tensor

PAUSE = 0.020  # seconds; OpenMP workers spin after a parallel region and slow the next competitor


class Engine:
    """The library's functions on one batch."""

    def __init__(self, data: Data, backend: str) -> None:
        import fastattnerase as fae  # after the instruction set has been chosen

        self.fae, self.backend, self.data = fae, backend, data
        self.batch = fae.AttentionBatch(
            data.values,
            data.offsets,
            scores=data.scores,
            head_weight=data.head_weight,
            head_bias=data.head_bias,
        )

    def sweep(self, *, single: bool = False, minimal: bool = False, curves: tuple[str, ...] = ()):
        return self.fae.sweep(
            self.batch, RANKINGS, seed=0, single=single, minimal=minimal, curves=curves,
            backend=self.backend,
        )  # fmt: skip

    def prefixes(self):
        return self.fae.erase_prefixes(self.batch, RANKINGS, seed=0, backend=self.backend)

    def each(self):
        return self.fae.erase_each(self.batch, backend=self.backend)

    def minimal(self):
        return self.fae.minimal_flip_set(self.batch, backend=self.backend)

    def orders(self) -> Tensor:
        rank, backend = self.fae.rank, self.backend
        return torch.stack(
            [rank(self.batch, ranking, seed=0, backend=backend) for ranking in RANKINGS]
        )

    def result(self) -> tuple[Result, Tensor]:
        """The engine's answers in the baselines' form, and which instances are near ties."""
        found = self.sweep().prefixes
        near = (found.status & int(self.fae.Status.NEAR_TIE)) != 0
        return (
            Result(found.label, found.first_flip, found.flip_label, found.removed_mass),
            near,
        )


def load_emulator() -> None:
    """Register the CUDA kernels under the host emulator, the tests' way."""
    from fastattnerase.backends import register  # after the interpreter has been chosen

    path = Path(__file__).parents[1] / "python_tests" / "cuda" / "emulator.py"
    spec = importlib.util.spec_from_file_location("fastattnerase_emulator", path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"cannot load {path.name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    register(module.load())


class Disagreement(Exception):
    """Two implementations gave different answers to the same question."""


def machine() -> dict[str, Any]:
    """The processor, its caches and instruction sets, memory, and the GPU where there is one."""
    about: dict[str, Any] = {"cores": os.cpu_count(), "architecture": platform.machine()}
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(
            (part.strip() for part in line.split(":", 1))
            for line in cpuinfo.read_text().split("\n\n")[0].splitlines()
            if ":" in line
        )
        about["cpu"] = fields.get("model name", "unknown")
        about["cpu_family_model"] = f"{fields.get('cpu family')}/{fields.get('model')}"
        flags = fields.get("flags", "").split()
        about["isa"] = [name for name in ("avx2", "fma", "avx512f", "avx512vbmi") if name in flags]
    if hasattr(os, "sysconf"):
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        about["memory_gb"] = round(size / 1e9, 1)
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        about["gpu"] = properties.name
        about["gpu_multiprocessors"] = properties.multi_processor_count
        about["gpu_memory_gb"] = round(properties.total_memory / 1e9, 1)
    return about


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in ("fastattnerase", "torch", "triton", "numpy", "captum", "quantus", "isal"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def alternate(
    functions: Mapping[str, Callable[[], object]],
    repeats: int,
    pause: float = PAUSE,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each function; one call each per round, a pause before every call.

    For work of one thread `time.process_time` does not count what else the machine does.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            time.sleep(pause)
            begin = clock()
            function()
            times[name].append(clock() - begin)
    return {name: statistics.median(sample) for name, sample in times.items()}


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def peak_extra_bytes(function: Callable[[], object]) -> int | None:
    """How far resident memory rises above its level before the call, results included.

    Reads the kernel's high-water mark, so native scratch memory counts; None off Linux.
    """
    if not sys.platform.startswith("linux"):
        return None
    function()  # first-call allocations (thread pools, lazily loaded code) are not the call's own
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status_bytes("VmRSS:")
    function()
    return max(0, _status_bytes("VmHWM:") - before)


def keys_from_orders(orders: Tensor, offsets: Tensor) -> Tensor:
    """Keys `[R, T]` whose descending order within each instance is `orders` `[R, T]`."""
    lengths = offsets.diff()
    start = torch.repeat_interleave(offsets[:-1], lengths)  # [T]
    position = torch.arange(orders.shape[1], device=orders.device) - start
    keys = torch.empty_like(orders)
    return keys.scatter_(1, orders + start, -position.expand_as(orders))


def compare(what: str, ours: Result, other: Result, near_tie: Tensor) -> dict[str, int]:
    """Raise `Disagreement` unless both results agree outside the near-ties `[B]` bool.

    Returns how many instances are near ties and how many of them differ.
    """
    differs = ours.label != other.label  # [B]
    same = ours.first_flip == other.first_flip  # [R, B]
    differs = differs | (~same | (ours.flip_label != other.flip_label)).any(0)
    apart = (ours.removed_mass - other.removed_mass).abs().nan_to_num(0.0) > 1e-6
    apart |= ours.removed_mass.isnan() != other.removed_mass.isnan()
    differs = differs | (apart & same).any(0)
    wrong = (differs & ~near_tie).nonzero()[:, 0]
    if wrong.numel():
        b = int(wrong[0])
        raise Disagreement(
            f"{what}: {wrong.numel()} of {len(differs)} instances differ outside near-ties, first "
            f"instance {b}: label {int(ours.label[b])} against {int(other.label[b])}, first flips "
            f"{ours.first_flip[:, b].tolist()} against {other.first_flip[:, b].tolist()}, masses "
            f"{ours.removed_mass[:, b].tolist()} against {other.removed_mass[:, b].tolist()}"
        )
    return {"near_ties": int(near_tie.sum()), "near_ties_that_differ": int(differs.sum())}


def head_of(result: Result, instances: int) -> Result:
    """The results of the first `instances` instances."""
    return Result(
        result.label[:instances],
        result.first_flip[:, :instances],
        result.flip_label[:, :instances],
        result.removed_mass[:, :instances],
    )


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, columns aligned for reading as text too."""
    cells = [columns, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]

    def line(row: list[str]) -> str:
        return (
            "| "
            + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            + " |"
        )

    ruler = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(columns), ruler, *map(line, rows)])


def duration(seconds: float) -> str:
    """Seconds for people: three digits and a unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError("unreachable")


def quantity(number: float | None, unit: str = "") -> str:
    """A count or size for people: three digits and a decimal prefix; a dash for unknown."""
    if number is None:
        return "-"
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {prefix}{unit}".strip()
    return f"{number:.3g} {unit}".strip()
