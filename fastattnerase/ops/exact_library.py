"""The operators of answers that need no search, as torch sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fastattnerase.backends import choose
from fastattnerase.exact_problems import (
    EnvelopeOutputs,
    EnvelopeProblem,
    GreedyOutputs,
    GreedyProblem,
    ShapleyOutputs,
    ShapleyProblem,
    SufficientOutputs,
    SufficientProblem,
)

# torch.library comes without annotations.
_library: Any = torch.library
_LIBRARY = _library.Library("fastattnerase", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_TYPES = {"Tensor": "Tensor", "bool": "bool", "float": "float", "int": "SymInt"}


def _register(name: str, problem: type[Any], allocate: Callable[[Any], object]) -> Any:
    """Register the operator that a backend's method of the same name computes.

    Args:
        name: of operator and method.
        problem: the record of what it takes; its fields are the arguments, in their order, and a
            backend's name is the last.
        allocate: makes the record of its results, whose tensors it returns.

    Returns:
        The operator.
    """
    arguments = [f"{_TYPES[str(field.type)]} {field.name}" for field in fields(problem)]
    _LIBRARY.define(f"{name}({', '.join(arguments)}, str backend) -> Tensor[]", tags=_TAGS)

    def compute(*args: Any) -> list[Tensor]:
        *inputs, backend = args
        given = problem(*inputs)
        out = allocate(given)
        method = getattr(choose(backend, given.offsets.device.type, operator=name), name)
        method(given, out)
        return list(vars(out).values())

    def fake(*args: Any) -> list[Tensor]:
        return list(vars(allocate(problem(*args[:-1]))).values())

    _LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    _library.register_fake(f"fastattnerase::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.fastattnerase, name).default


envelope_op = _register(
    "envelope",
    EnvelopeProblem,
    lambda given: EnvelopeOutputs.allocate(given.outputs, given.kept, given.orders),
)
shapley_op = _register(
    "shapley",
    ShapleyProblem,
    lambda given: ShapleyOutputs.allocate(given.offsets, given.contributions),
)
greedy_op = _register(
    "greedy", GreedyProblem, lambda given: GreedyOutputs.allocate(given.offsets, given.weights)
)
sufficient_op = _register(
    "sufficient",
    SufficientProblem,
    lambda given: SufficientOutputs.allocate(given.offsets, given.weights),
)
