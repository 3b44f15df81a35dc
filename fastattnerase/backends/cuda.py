"""The CUDA kernels: tensors become device addresses for `fastattnerase._C`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

import torch
from torch import Tensor

from fastattnerase import _C
from fastattnerase.backends.base import Outputs, PooledProblem, Problem
from fastattnerase.backends.checks import check_contents

_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_MOST_ITEMS = 2**31 - 1


def _readable(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy where rows overlap or the last stride is not one."""
    *strides, last = tensor.stride()
    width = tensor.shape[-1]
    if (last == 1 or width == 1) and all(s == 0 or s >= width for s in strides):
        return tensor
    return tensor.contiguous()


def _address(tensor: Tensor | None) -> int:
    """Where a result goes; 0 where it is not wanted."""
    return 0 if tensor is None else tensor.data_ptr()


def _item_fields(
    values: Tensor, offsets: Tensor, attention: Tensor, is_scores: bool, keep: bool
) -> dict[str, object]:
    """The keywords that both operators share, and where and in which order they run."""
    T, H, D = values.shape
    on_gpu = values.is_cuda
    return {
        "B": offsets.shape[0] - 1,
        "T": T,
        "H": H,
        "D": D,
        "values": values.data_ptr(),
        "values_stride_t": values.stride(0),
        "values_stride_h": values.stride(1),
        "values_dtype": _DTYPES[values.dtype],
        "offsets": offsets.data_ptr(),
        "attention": attention.data_ptr(),
        "attention_stride_t": attention.stride(0),
        "attention_stride_h": attention.stride(1),
        "attention_dtype": _DTYPES[attention.dtype],
        "is_scores": int(is_scores),
        "keep": int(keep),
        "workspace": 0,
        "workspace_bytes": 0,
        "num_threads": 1,
        "device": values.get_device() if on_gpu else 0,
        "stream": torch.cuda.current_stream(values.device).cuda_stream if on_gpu else 0,
    }


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
        values = _readable(problem.values)
        bias = problem.head_bias
        fields = _item_fields(
            values, problem.offsets, problem.attention, problem.is_scores, problem.keep
        ) | {
            "C": problem.head_weight.shape[0],
            "R": len(problem.rankings),
            "head_weight": problem.head_weight.data_ptr(),
            "head_bias": bias.data_ptr(),
            "head_bias_stride_b": bias.stride(0) if bias.ndim == 2 else 0,
            "head_bias_dtype": _DTYPES[bias.dtype],
            "ids": problem.ids.data_ptr(),
            "rankings": [int(kind) for kind in problem.rankings],
            "ranking_args": list(problem.ranking_args),
            "orders": [order.data_ptr() for order in problem.orders],
            "keys": [keys.data_ptr() for keys in problem.keys],
            "keys_dtype": [_DTYPES[keys.dtype] for keys in problem.keys],
            "seed": problem.seed & 0xFFFFFFFFFFFFFFFF,
            "validate": 0,
            "label": out.label.data_ptr(),
            "probabilities": out.probabilities.data_ptr(),
            "status": out.status.data_ptr(),
            "first_flip": out.first_flip.data_ptr(),
            "flip_label": out.flip_label.data_ptr(),
            "removed_mass": out.removed_mass.data_ptr(),
            "curve_js": _address(out.curve_js),
            "curve_kl": _address(out.curve_kl),
            "curve_label_prob": _address(out.curve_label_prob),
            "curve_mass": _address(out.curve_mass),
            "curve_decision": _address(out.curve_decision),
            "curve_logits": _address(out.curve_logits),
            "order": _address(out.order),
            "single_flip_label": _address(out.single_flip_label),
            "single_js": _address(out.single_js),
            "single_drop": _address(out.single_drop),
            "minimal_size": _address(out.minimal_size),
            "minimal_flip_label": _address(out.minimal_flip_label),
            "minimal_order": _address(out.minimal_order),
        }
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
                f"values: got {problem.values.shape[1]} attention heads; the {self.name} backend "
                "takes one, backend='reference' any number"
            )
        values = _readable(problem.values)
        fields = _item_fields(
            values, problem.offsets, problem.attention, problem.is_scores, problem.keep
        ) | {
            "M": pooled.shape[0],
            "order": problem.order.data_ptr(),
            "point_begin": problem.begin,
            "pooled": pooled.data_ptr(),
        }
        with self._on(values):
            self._module.cuda_pooled_prefixes(**fields)

    def _on(self, tensor: Tensor) -> AbstractContextManager[object]:
        """Make the tensor's device the current one."""
        return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


BACKEND = CudaBackend()
