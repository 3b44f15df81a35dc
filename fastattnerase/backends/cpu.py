"""The CPU engine: tensors become addresses for `fastattnerase._C`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastattnerase import _C
from fastattnerase.backends.base import Outputs, PooledProblem, Problem

# Scratch memory kept for the next call: a fresh one costs a page fault every 4 KiB.
_SPARE: list[Tensor] = []
_SPARE_BYTES = 32 * 2**20

_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


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


class CpuBackend:
    """The fused sweep in C++, for the instruction set of the machine.

    `variant` forces one of `_C.cpu_variants()`; the tests run every one of them.
    """

    devices = ("cpu",)

    def __init__(self, name: str = "cpu", variant: str | None = None) -> None:
        self.name = name
        self._variant = variant

    def unavailable(self) -> list[str]:
        """Say which instruction set is missing, for a forced variant."""
        known = _C.cpu_variants()
        if self._variant is None or self._variant in known:
            return []
        return [f"this machine does not run {self._variant}, only {', '.join(known)}"]

    def unsupported(self, problem: Problem) -> list[str]:
        """It takes every problem."""
        return []

    def sweep(self, problem: Problem, out: Outputs) -> None:
        """Fill every wanted result."""
        values = _readable(problem.values)
        attention, bias, weight = problem.attention, problem.head_bias, problem.head_weight
        T, H, D = values.shape
        stride_t, stride_h, _ = values.stride()
        attention_t, attention_h = attention.stride()
        fields = {
            "B": problem.offsets.shape[0] - 1,
            "T": T,
            "H": H,
            "D": D,
            "C": weight.shape[0],
            "R": len(problem.rankings),
            "values": values.data_ptr(),
            "values_stride_t": stride_t,
            "values_stride_h": stride_h,
            "values_dtype": _DTYPES[values.dtype],
            "offsets": problem.offsets.data_ptr(),
            "attention": attention.data_ptr(),
            "attention_stride_t": attention_t,
            "attention_stride_h": attention_h,
            "attention_dtype": _DTYPES[attention.dtype],
            "is_scores": int(problem.is_scores),
            "head_weight": weight.data_ptr(),
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
            "keep": int(problem.keep),
            "validate": int(problem.validate),
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
            "workspace": 0,
            "workspace_bytes": 0,
            "num_threads": torch.get_num_threads(),
        }
        if self._variant is None:
            _call(_C.cpu_sweep, _C.cpu_sweep_workspace, fields)
            return
        before = _C.cpu_variant()
        _C.cpu_select_variant(self._variant)
        try:
            _call(_C.cpu_sweep, _C.cpu_sweep_workspace, fields)
        finally:
            _C.cpu_select_variant(before)

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        """Fill `pooled` [M, H, D] with the renormalised averages over the survivors."""
        values = _readable(problem.values)
        attention = problem.attention
        T, H, D = values.shape
        fields = {
            "B": problem.offsets.shape[0] - 1,
            "T": T,
            "H": H,
            "D": D,
            "M": pooled.shape[0],
            "values": values.data_ptr(),
            "values_stride_t": values.stride(0),
            "values_stride_h": values.stride(1),
            "values_dtype": _DTYPES[values.dtype],
            "offsets": problem.offsets.data_ptr(),
            "attention": attention.data_ptr(),
            "attention_stride_t": attention.stride(0),
            "attention_stride_h": attention.stride(1),
            "attention_dtype": _DTYPES[attention.dtype],
            "is_scores": int(problem.is_scores),
            "order": problem.order.data_ptr(),
            "keep": int(problem.keep),
            "point_begin": problem.begin,
            "pooled": pooled.data_ptr(),
            "workspace": 0,
            "workspace_bytes": 0,
            "num_threads": torch.get_num_threads(),
        }
        _call(_C.cpu_pooled_prefixes, _C.cpu_pooled_workspace, fields)


def _call(
    operator: Callable[..., None], workspace_of: Callable[..., int], fields: dict[str, Any]
) -> None:
    """Ask for the scratch memory, hand it over, run."""
    size = workspace_of(**fields)
    try:
        workspace = _SPARE.pop()
    except IndexError:
        workspace = torch.empty(0, dtype=torch.uint8)
    if workspace.numel() < size:
        workspace = torch.empty(size, dtype=torch.uint8)
    fields["workspace"] = workspace.data_ptr()
    fields["workspace_bytes"] = workspace.numel()
    try:
        operator(**fields)
    finally:
        if workspace.numel() <= _SPARE_BYTES and not _SPARE:
            _SPARE.append(workspace)


BACKEND = CpuBackend()
