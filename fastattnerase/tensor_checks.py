"""Checks of the tensors that are given, and two small helpers of the packed form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fastattnerase.plurals import counted

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def offsets_of(lengths: Tensor) -> Tensor:
    """Offsets [B + 1] from lengths [B]."""
    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int64), (1, 0))


def unit_last_stride(tensor: Tensor) -> Tensor:
    """The tensor itself where its last stride is 1, else a copy."""
    if tensor.stride(-1) == 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def shape_of(tensor: Tensor) -> str:
    return "[" + ", ".join(str(size) for size in tensor.shape) + "]"


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype | None = None) -> None:
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        way = {"ndarray": "from_numpy", "list": "tensor"}.get(kind)
        made = f", as torch.{way}({name}) makes" if way else ""
        raise TypeError(f"{name}: given {kind}, needed a tensor{made}")
    if tensor.is_nested:
        raise TypeError(
            f"{name}: given a nested tensor, needed a plain one; AttentionBatch.from_list takes "
            "nested tensors"
        )
    if tensor.layout != torch.strided:
        raise TypeError(f"{name}: given {tensor.layout}, needed a dense tensor: .to_dense()")
    if dtype is not None and tensor.dtype != dtype:
        whole = dtype == torch.int64 and not (tensor.is_floating_point() or tensor.is_complex())
        way = f", as {name}.long() makes" if whole else ""
        raise TypeError(f"{name}: given {tensor.dtype}, needed {dtype}{way}")


def check_float(name: str, tensor: Tensor) -> None:
    check_tensor(name, tensor)
    if tensor.dtype not in FLOATS:
        raise TypeError(
            f"{name}: given {tensor.dtype}, needed float32, float64, bfloat16 or float16"
        )


def check_devices(values: Tensor, **others: Tensor) -> None:
    for name, tensor in others.items():
        if tensor.device != values.device:
            raise ValueError(
                f"{name}: given on {tensor.device}, needed on {values.device} as values; "
                "move it with .to(…)"
            )


_keys: Any = torch._C._dispatch_keys


def _plain_keys() -> tuple[Any, ...]:
    """Find the dispatch keys of tensors in the CPU's memory, of those made for inference too."""
    with torch.inference_mode(False):
        ordinary = _keys(torch.empty(0))
    with torch.inference_mode():
        return ordinary, _keys(torch.empty(0))


_PLAIN = _plain_keys()


def are_plain(tensors: Iterable[Tensor]) -> bool:
    """Say whether all lie in the CPU's memory as they are: no subclass, no lazy negation."""
    return all(type(tensor) is Tensor and _keys(tensor) in _PLAIN for tensor in tensors)


def check_named(function: str, by_position: tuple[object, ...]) -> None:
    """Refuse attention without a name: before or after the softmax is not seen in its numbers."""
    if by_position:
        before = "values and offsets" if function == "AttentionBatch" else "values"
        raise TypeError(
            f"{function}: given {counted(len(by_position), 'argument')} by position after "
            f"{before}, needed names: scores=… before the softmax or weights=… after it, head=…"
        )
