"""Answers that need no search: the specification run by instance, and the engine's by address."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from fastattnerase.exact_problems import (
    UNANSWERED,
    EnvelopeOutputs,
    EnvelopeProblem,
    GreedyOutputs,
    GreedyProblem,
    ShapleyOutputs,
    ShapleyProblem,
    SufficientOutputs,
    SufficientProblem,
)
from fastattnerase.reference.envelope import envelope_instance
from fastattnerase.reference.greedy import greedy_instance
from fastattnerase.reference.shapley import shapley
from fastattnerase.reference.sufficient import sufficient
from fastattnerase.status import Status

_Record = TypeVar(
    "_Record",
    EnvelopeProblem,
    GreedyProblem,
    ShapleyProblem,
    SufficientProblem,
    EnvelopeOutputs,
    GreedyOutputs,
    ShapleyOutputs,
    SufficientOutputs,
)


class ExactReference:
    """Runs the specification, on the CPU, whatever device the tensors are on."""

    def envelope(self, problem: EnvelopeProblem, out: EnvelopeOutputs) -> None:
        """Fill the bounds and curves."""
        own, found = _on_cpu(problem), _on_cpu(out)
        for b in range(len(own.status)):
            if int(own.status[b]) & UNANSWERED:
                points = slice(int(own.point_offsets[b]), int(own.point_offsets[b + 1]))
                found.lower[points] = found.upper[points] = found.curves[:, points] = torch.nan
            else:
                envelope_instance(own, found, b)
        _copy(found, out)

    def shapley(self, problem: ShapleyProblem, out: ShapleyOutputs) -> None:
        """Fill the Shapley values."""
        own, found = _on_cpu(problem), _on_cpu(out)
        for b in range(len(own.status)):
            items = slice(int(own.offsets[b]), int(own.offsets[b + 1]))
            if int(own.status[b]) & UNANSWERED & ~Status.UNDERFLOW:  # scores may span any range
                found.values[items] = found.error[b] = found.efficiency[b] = torch.nan
                found.nodes[b] = -1
                continue
            one = shapley(own.log_weights[items], own.contributions[items], own.tolerance)
            found.values[items] = one.values
            found.error[b], found.efficiency[b], found.nodes[b] = (
                one.error,
                one.efficiency,
                one.nodes,
            )
        _copy(found, out)

    def sufficient(self, problem: SufficientProblem, out: SufficientOutputs) -> None:
        """Fill the sufficient sets."""
        own, found = _on_cpu(problem), _on_cpu(out)
        for b in range(len(own.status)):
            items = slice(int(own.offsets[b]), int(own.offsets[b + 1]))
            weights, margins = own.weights[items], own.margins[items]
            chosen, least, near = list[int](), -1, False
            if not int(own.status[b]) & UNANSWERED and margins.numel():
                chosen, least, near = sufficient(
                    weights, margins, own.wins[b], float(own.tolerance[b])
                )
            found.size[b], found.least[b], found.near[b] = len(chosen) or -1, least, int(near)
            left = torch.ones(len(weights), dtype=torch.bool)
            left[chosen] = False
            first = torch.tensor(chosen, dtype=torch.int64)
            found.order[items] = torch.cat([first, left.nonzero()[:, 0]])
        _copy(found, out)

    def greedy(self, problem: GreedyProblem, out: GreedyOutputs) -> None:
        """Fill the greedy orders."""
        own, found = _on_cpu(problem), _on_cpu(out)
        for b in range(len(own.status)):
            items = slice(int(own.offsets[b]), int(own.offsets[b + 1]))
            if int(own.status[b]) & UNANSWERED or items.start == items.stop:
                found.order[items] = torch.arange(items.stop - items.start)
                found.removed[b] = found.certain[b] = -1
            else:
                greedy_instance(own, found, b)
        _copy(found, out)


def exact_fields(problem: Any, out: Any, threads: int) -> tuple[dict[str, Any], list[Tensor]]:
    """The keywords of a native answer, without scratch memory, and the tensors they point into.

    Sizes are those of the axes that the records name.
    """
    given: dict[str, Any] = {}
    alive: list[Tensor] = []
    for record in (problem, out):
        for field in fields(record):
            value = getattr(record, field.name)
            if isinstance(value, float):
                value = torch.tensor([value], dtype=torch.float64)
            if isinstance(value, Tensor):
                value = value.contiguous()
                alive.append(value)
                value = value.data_ptr()
            given[field.name] = int(value)
    given |= {"B": len(problem.status), "workspace": 0, "workspace_bytes": 0}
    given["num_threads"] = threads
    if isinstance(problem, EnvelopeProblem):
        R, T = problem.orders.shape
        given |= {"T": T, "K": problem.outputs.shape[1], "P": len(problem.kept), "R": R}
    elif isinstance(problem, ShapleyProblem):
        T, C = problem.contributions.shape
        given |= {"T": T, "C": C}
    else:
        T, K = problem.margins.shape
        given |= {"T": T, "K": K}
    return given, alive


def _on_cpu(record: _Record) -> _Record:
    """Bring all tensors of a record to the CPU."""
    moved: dict[str, Any] = {
        name: t.cpu() for name, t in vars(record).items() if isinstance(t, Tensor)
    }
    return replace(record, **moved)


def _copy(found: _Record, out: _Record) -> None:
    """Write results into the tensors that were given for them."""
    for name, tensor in vars(found).items():
        if tensor is not getattr(out, name):
            getattr(out, name).copy_(tensor)
