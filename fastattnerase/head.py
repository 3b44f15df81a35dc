"""The head that reads the average: linear, or a function."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from fastattnerase.tensor_checks import check_devices, check_float, shape_of, unit_last_stride

# Of pooled vectors and the rows of their instances, or of pooled vectors alone.
Head = Callable[[Tensor, Tensor], Tensor] | Callable[[Tensor], Tensor]

_FORM = (
    "head(pooled [M, D], instance [M]) -> logits [M, C], or a function of pooled alone, such as "
    "lambda pooled: …"
)


def is_linear_layer(head: object) -> TypeGuard[nn.Linear]:
    """Whether a head is a linear layer without hooks, which may change what it computes."""
    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward:
        return False
    return not head._forward_hooks and not head._forward_pre_hooks


def linear_layer(head: Head, values: Tensor) -> tuple[Head | None, Tensor | None, Tensor | None]:
    """Take a linear layer apart: no function, its weight [C, D] or [C, H, Dh] and bias [C].

    Any other head is given back.
    """
    return take_apart(head, values) if is_linear_layer(head) else (head, None, None)


def take_apart(layer: nn.Linear, values: Tensor) -> tuple[None, Tensor, Tensor]:
    """Give no function, the weight [C, D] or [C, H, Dh] and the bias [C] of a linear layer."""
    weight, inner = layer.weight, values.shape[1:]
    if weight.shape[1] != inner.numel():
        raise ValueError(
            f"head: given {layer}, needed in_features={inner.numel()} as values {shape_of(values)}"
        )
    return None, weight.reshape(-1, *inner), layer.bias


def takes_rows(head: Head) -> bool:
    """Whether a head is called with the rows of its instances as well as the pooled vectors.

    A second argument that may be left out is for rows only where it is called `instance`: it could
    mean anything, such as a mask, and is refused.
    """
    if isinstance(head, type):
        raise TypeError(f"head: given the class {head.__name__}, needed one that is made of it")
    if not callable(head):
        where = "; a weight is head_weight=…" if isinstance(head, Tensor) else ""
        raise TypeError(
            f"head: given {type(head).__name__}, needed a callable, such as a module{where}"
        )
    inner: Any = getattr(head, "_orig_mod", head)  # of torch.compile
    function = inner.forward if isinstance(inner, nn.Module) else inner
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin has none that can be read: it has to take both
        return True
    alone, both = _binds(signature, 1), _binds(signature, 2)
    if alone and both:
        second = next(itertools.islice(signature.parameters.values(), 1, None), None)
        meant = second is not None and second.name in ("instance", "instances")
        if meant or any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
            return True
    if alone == both:
        name = getattr(head, "__name__", type(inner).__name__)
        names = ", ".join(signature.parameters)
        raise ValueError(f"head: given {name}({names}), needed {_FORM}")
    return both


def dtype_of(head: Head | None) -> torch.dtype | None:
    """Find the float type that a module computes in; None of a function, or without parameters."""
    parameters = head.parameters() if isinstance(head, nn.Module) else ()
    return next((p.dtype for p in parameters if p.is_floating_point()), None)


def _binds(signature: inspect.Signature, count: int) -> bool:
    """Whether a function can be called with this many arguments."""
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


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
        return None, None
    if weight is None:
        raise ValueError("head_weight: given none, needed [C, D] (or a callable head)")
    check_float("head_weight", weight)
    inner = tuple(values.shape[1:] if several else values.shape[2:])
    if weight.ndim != len(inner) + 1 or tuple(weight.shape[1:]) != inner or not weight.shape[0]:
        needed = ", ".join(str(size) for size in inner)
        # As a layer on all heads' values, one after another, has it.
        flat = weight.ndim == 2 and len(inner) == 2 and weight.shape[1] == inner[0] * inner[1]
        way = f", as head_weight.reshape(-1, {needed}) makes" if flat and weight.shape[0] else ""
        raise ValueError(
            f"head_weight: given {shape_of(weight)}, needed [C, {needed}] with C at least 1{way}"
        )
    C = weight.shape[0]
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
