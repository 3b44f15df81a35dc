"""The reference backend: plain torch in float64 on the CPU, whatever device the tensors are on."""

from __future__ import annotations

from copy import copy
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from fastattnerase.backends.checks import check_contents, check_weights
from fastattnerase.backends.exact import ExactReference
from fastattnerase.backends.reference_sweep import is_invalid, sweep
from fastattnerase.problem import (
    FIRST_PERMUTATION,
    Outputs,
    PermutedOutputs,
    PermutedProblem,
    PooledProblem,
    Problem,
    ReweighedProblem,
)
from fastattnerase.rankings.random import random_order
from fastattnerase.reference.instance import Instance, LinearInstance
from fastattnerase.reference.permuted import fill_invalid, permute_instance
from fastattnerase.reference.pooled import pooled_prefixes
from fastattnerase.reference.reweighed import reweighed

P = TypeVar("P", Problem, PermutedProblem, PooledProblem, ReweighedProblem)


class ReferenceBackend(ExactReference):
    """Runs the specification itself: right before fast."""

    name = "reference"
    devices = ("cpu", "cuda", "mps", "xpu")

    def unavailable(self) -> list[str]:
        """Give no reason: it runs wherever torch does."""
        return []

    def unsupported(self, problem: Problem) -> list[str]:
        """Give no reason: it takes every problem."""
        return []

    def sweep(self, problem: Problem, out: Outputs) -> None:
        """Fill every wanted result."""
        on_cpu = _on_cpu(problem)
        if problem.validate:
            check_contents(on_cpu)
        results = copy(out)
        wanted = [name for name, tensor in vars(out).items() if tensor is not None]
        for name in wanted:
            setattr(results, name, torch.empty_like(getattr(out, name), device="cpu"))
        sweep(on_cpu, results)
        for name in wanted:
            getattr(out, name).copy_(getattr(results, name))

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        """Fill `pooled` [M, H, D] with the averages over the survivors."""
        on_cpu = _on_cpu(problem)
        result = torch.empty_like(pooled, device="cpu")
        pooled_prefixes(on_cpu, result)
        pooled.copy_(result)

    def reweigh(self, problem: ReweighedProblem, logits: Tensor) -> None:
        """Fill `logits` [R, B, C] with those of other weights."""
        on_cpu = _on_cpu(problem)
        if problem.validate:
            check_weights(on_cpu)
        result = torch.empty_like(logits, device="cpu")
        reweighed(on_cpu, result)
        logits.copy_(result)

    def permute(self, problem: PermutedProblem, out: PermutedOutputs) -> None:
        """Fill all results with what permuted weights do."""
        on_cpu = _on_cpu(problem)
        whole = on_cpu.as_problem()
        if problem.validate:
            check_contents(whole)
        results = PermutedOutputs(
            **{name: torch.empty_like(t, device="cpu") for name, t in vars(out).items()}
        )
        for index in range(len(on_cpu.ids)):
            if is_invalid(whole, index):
                fill_invalid(whole, results, index)
            else:
                instance = LinearInstance(whole, index)
                permute_instance(instance, partial(_draw, problem.seed, instance), results, index)
        for name, tensor in vars(results).items():
            getattr(out, name).copy_(tensor)


def _draw(seed: int, instance: Instance, p: int) -> Tensor:
    """Draw permutation `p` of an instance's items: an order [n]."""
    return random_order(seed, FIRST_PERMUTATION + p, instance.id, instance.n)


def _on_cpu(problem: P) -> P:
    """Bring all tensors of a record, also those in tuples, to the CPU."""
    moved: dict[str, Any] = {}
    for field in fields(problem):
        value = getattr(problem, field.name)
        if isinstance(value, Tensor):
            moved[field.name] = value.cpu()
        elif isinstance(value, tuple):
            moved[field.name] = tuple(v.cpu() if isinstance(v, Tensor) else v for v in value)
    return replace(problem, **moved)


BACKEND = ReferenceBackend()
