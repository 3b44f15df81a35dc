"""The operators of answers that need no search, as torch sees them."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from fastattnerase.backends import choose
from fastattnerase.backends.base import ExactBackend
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
_LIBRARY.define(
    "envelope(Tensor offsets, Tensor status, Tensor weights, Tensor outputs, Tensor empty, "
    "Tensor point_offsets, Tensor kept, Tensor orders, bool keep, str backend) -> Tensor[]",
    tags=_TAGS,
)
_LIBRARY.define(
    "shapley(Tensor offsets, Tensor status, Tensor log_weights, Tensor contributions, "
    "float tolerance, str backend) -> Tensor[]",
    tags=_TAGS,
)
_LIBRARY.define(
    "sufficient(Tensor offsets, Tensor status, Tensor weights, Tensor margins, Tensor wins, "
    "Tensor tolerance, str backend) -> Tensor[]",
    tags=_TAGS,
)
_LIBRARY.define(
    "greedy(Tensor offsets, Tensor status, Tensor weights, Tensor margins, Tensor empty, "
    "Tensor wins, Tensor tolerance, SymInt steps, bool until_flip, str backend) -> Tensor[]",
    tags=_TAGS,
)


def _backend(name: str, tensor: Tensor, operator: str) -> ExactBackend:
    return cast(ExactBackend, choose(name, tensor.device.type, operator=operator))


def _envelope(*args: Any) -> list[Tensor]:
    *inputs, backend = args
    problem = EnvelopeProblem(*inputs)
    out = EnvelopeOutputs.allocate(problem.outputs, problem.kept, problem.orders)
    _backend(backend, problem.weights, "envelope").envelope(problem, out)
    return list(vars(out).values())


def _envelope_fake(*args: Any) -> list[Tensor]:
    return list(vars(EnvelopeOutputs.allocate(args[3], args[6], args[7])).values())


def _shapley(*args: Any) -> list[Tensor]:
    *inputs, backend = args
    problem = ShapleyProblem(*inputs)
    out = ShapleyOutputs.allocate(problem.offsets, problem.contributions)
    _backend(backend, problem.contributions, "shapley").shapley(problem, out)
    return list(vars(out).values())


def _shapley_fake(*args: Any) -> list[Tensor]:
    return list(vars(ShapleyOutputs.allocate(args[0], args[3])).values())


def _sufficient(*args: Any) -> list[Tensor]:
    *inputs, backend = args
    problem = SufficientProblem(*inputs)
    out = SufficientOutputs.allocate(problem.offsets, problem.weights)
    _backend(backend, problem.weights, "sufficient").sufficient(problem, out)
    return list(vars(out).values())


def _sufficient_fake(*args: Any) -> list[Tensor]:
    return list(vars(SufficientOutputs.allocate(args[0], args[2])).values())


def _greedy(*args: Any) -> list[Tensor]:
    *inputs, backend = args
    problem = GreedyProblem(*inputs)
    out = GreedyOutputs.allocate(problem.offsets, problem.weights)
    _backend(backend, problem.weights, "greedy").greedy(problem, out)
    return list(vars(out).values())


def _greedy_fake(*args: Any) -> list[Tensor]:
    return list(vars(GreedyOutputs.allocate(args[0], args[2])).values())


for _name, _real, _fake in (
    ("greedy", _greedy, _greedy_fake),
    ("envelope", _envelope, _envelope_fake),
    ("shapley", _shapley, _shapley_fake),
    ("sufficient", _sufficient, _sufficient_fake),
):
    _LIBRARY.impl(_name, _real, "CompositeExplicitAutograd")
    _library.register_fake(f"fastattnerase::{_name}", _fake, lib=_LIBRARY)

envelope_op = torch.ops.fastattnerase.envelope.default
shapley_op = torch.ops.fastattnerase.shapley.default
greedy_op = torch.ops.fastattnerase.greedy.default
sufficient_op = torch.ops.fastattnerase.sufficient.default
