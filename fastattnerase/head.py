"""The head that reads the average: linear, or a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from fastattnerase.tensor_checks import check_devices, check_float, shape_of, unit_last_stride

Head = Callable[[Tensor, Tensor], Tensor]


def linear_head(
    weight: Tensor | None,
    bias: Tensor | None,
    head: Head | None,
    values: Tensor,
    B: int,
    several: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Check the head and bring it to the form that backends take; no tensors for a function.

    Args:
        weight, bias, head: as a batch is given them.
        values: [T, H, D].
        B: the number of instances.
        several: whether the values were given with several attention heads.

    Returns:
        The weight [C, H, D], in the dtype of contributions, and the bias, [C] or [B, C].
    """
    if head is not None:
        if weight is not None or bias is not None:
            raise ValueError("head: given with head_weight or head_bias, needed one or the other")
        if not callable(head):
            raise TypeError(f"head: given {type(head).__name__}, needed a callable")
        return None, None
    if weight is None:
        raise ValueError("head_weight: given none, needed [C, D] (or a callable head)")
    check_float("head_weight", weight)
    inner = tuple(values.shape[1:] if several else values.shape[2:])
    if weight.ndim != len(inner) + 1 or tuple(weight.shape[1:]) != inner or not weight.shape[0]:
        needed = ", ".join(str(size) for size in inner)
        raise ValueError(
            f"head_weight: given {shape_of(weight)}, needed [C, {needed}] with C at least 1"
        )
    C = weight.shape[0]
    if C == 1:
        warnings.warn(
            "head_weight: one class, so nothing can flip; a model with one logit is "
            "binary_head(w, b)",
            stacklevel=3,
        )
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    weight3 = weight.detach().to(dtype).reshape(C, *values.shape[1:]).contiguous()  # [C, H, D]
    if bias is None:
        bias = torch.zeros(C, dtype=dtype, device=values.device)
    check_float("head_bias", bias)
    if tuple(bias.shape) not in ((C,), (B, C)):
        raise ValueError(f"head_bias: given {shape_of(bias)}, needed [{C}] or [{B}, {C}]")
    check_devices(values, head_weight=weight, head_bias=bias)
    bias = bias.detach()
    if bias.dtype not in (torch.float32, torch.float64):
        bias = bias.float()
    return weight3, unit_last_stride(bias)


def binary_head(w: Tensor, b: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Build the two-class head of a model with one logit `w·c + b`: logits [0, w·c + b].

    Args:
        w: [D] or [1, D] (or [H, Dh] and [1, H, Dh] with several attention heads), a float type.
        b: a number, or a tensor with one element.

    Returns:
        head_weight [2, D] (or [2, H, Dh]) and head_bias [2].

    Raises:
        ValueError: where `w` is a scalar or `b` has more than one element.

    >>> import torch, fastattnerase as fae
    >>> fae.binary_head(torch.tensor([1.0, -2.0]), 0.5)
    (tensor([[ 0.,  0.],
            [ 1., -2.]]), tensor([0.0000, 0.5000]))
    """
    check_float("w", w)
    if w.ndim == 0:
        raise ValueError("w: given a scalar, needed [D] or [1, D]")
    if w.ndim > 1 and w.shape[0] == 1:
        w = w[0]
    bias = torch.as_tensor(b, dtype=w.dtype, device=w.device)
    if bias.numel() != 1:
        raise ValueError(f"b: given {shape_of(bias)}, needed one number")
    bias = bias.reshape(1)
    return torch.stack([torch.zeros_like(w), w]), torch.cat([torch.zeros_like(bias), bias])
