"""The CUDA kernels: tensors become device addresses for `fastattnerase._C`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

import torch
from torch import Tensor

from fastattnerase import _C
from fastattnerase.backends.addresses import pooled_fields, readable, sweep_fields
from fastattnerase.backends.checks import check_contents
from fastattnerase.problem import Outputs, PooledProblem, Problem

_MOST_ITEMS = 2**31 - 2**16  # what the kernels count with, and room to step over the end


class CudaBackend:
    """The fused sweep as CUDA kernels, on the current stream of the tensors' device.

    `module` is the native module: `fastattnerase._C`, or the test module that runs the same
    kernels on an emulator, whose tensors are on the CPU. Nothing stops the stream unless
    `problem.validate` asks for exact errors; the scratch memory comes from torch's allocator.
    """

    def __init__(self, name: str = "cuda", module: ModuleType = _C) -> None:
        self.name = name
        self._module = module
        self._emulated = module is not _C
        self.devices = ("cpu",) if self._emulated else ("cuda",)

    def unavailable(self) -> list[str]:
        """Say what is missing: the build, a driver, a device."""
        if self._emulated:
            return []
        if not self._module.has_cuda:
            return [
                "fastattnerase was built without CUDA; reinstall where nvcc is on the PATH, "
                "with FASTATTNERASE_CUDA=ON to fail when it is not"
            ]
        if torch.version.cuda is None:
            return ["this torch was built without CUDA"]
        if not torch.cuda.is_available():
            return ["torch finds no CUDA device; check the driver with nvidia-smi"]
        reason = self._module.cuda_why_not(torch.cuda.current_device())
        return [reason] if reason else []

    def unsupported(self, problem: Problem) -> list[str]:
        """Say why it cannot run this problem: several heads, or too many items for one call."""
        reasons = []
        if problem.values.shape[1] != 1:
            reasons.append(f"it takes one attention head, not {problem.values.shape[1]}")
        if problem.values.shape[0] > _MOST_ITEMS:
            reasons.append(f"it takes up to {_MOST_ITEMS} items, not {problem.values.shape[0]}")
        return reasons

    def sweep(self, problem: Problem, out: Outputs) -> None:
        """Fill every wanted result."""
        if problem.validate:
            check_contents(problem)
        values = readable(problem.values)
        fields = sweep_fields(problem, values, out, threads=1) | _stream(values)
        with self._on(values):
            size = self._module.cuda_sweep_workspace(**fields)
            # Freed when this returns, yet safe: torch hands it out again on this stream only.
            workspace = torch.empty(size, dtype=torch.uint8, device=values.device)
            fields["workspace"] = workspace.data_ptr()
            fields["workspace_bytes"] = size
            self._module.cuda_sweep(**fields)

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        """Fill `pooled` [M, H, D] with the renormalised averages over the survivors."""
        if problem.values.shape[1] != 1:
            raise ValueError(
                f"values: given {problem.values.shape[1]} attention heads, needed one by the "
                f"{self.name} backend; backend='reference' takes any number"
            )
        values = readable(problem.values)
        fields = pooled_fields(problem, values, pooled, threads=1) | _stream(values)
        with self._on(values):
            self._module.cuda_pooled_prefixes(**fields)

    def _on(self, tensor: Tensor) -> AbstractContextManager[object]:
        """Make the tensor's device the current one."""
        return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _stream(values: Tensor) -> dict[str, int]:
    """Where and in which order a kernel runs."""
    if not values.is_cuda:
        return {"device": 0, "stream": 0}
    stream = torch.cuda.current_stream(values.device)
    return {"device": values.get_device(), "stream": stream.cuda_stream}


BACKEND = CudaBackend()
