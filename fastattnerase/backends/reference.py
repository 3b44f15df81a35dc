"""The reference backend: plain torch in float64 on the CPU, whatever device the tensors are on."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from fastattnerase.backends.base import Outputs, PooledProblem, Problem
from fastattnerase.backends.checks import check_contents
from fastattnerase.reference import pooled, sweep


class ReferenceBackend:
    """Runs the specification itself: right before fast."""

    name = "reference"
    devices = ("cpu", "cuda", "mps", "xpu")

    def unavailable(self) -> list[str]:
        """It runs wherever torch does."""
        return []

    def unsupported(self, problem: Problem) -> list[str]:
        """It takes every problem."""
        return []

    def sweep(self, problem: Problem, out: Outputs) -> None:
        """Fill every wanted result."""
        on_cpu = replace(
            problem,
            values=problem.values.cpu(),
            offsets=problem.offsets.cpu(),
            attention=problem.attention.cpu(),
            head_weight=problem.head_weight.cpu(),
            head_bias=problem.head_bias.cpu(),
            ids=problem.ids.cpu(),
            orders=tuple(order.cpu() for order in problem.orders),
            keys=tuple(keys.cpu() for keys in problem.keys),
        )
        if problem.validate:
            check_contents(on_cpu)
        wanted = {f.name: getattr(out, f.name) for f in fields(out)}
        results = Outputs(
            **{
                k: None if v is None else torch.empty_like(v, device="cpu")
                for k, v in wanted.items()
            }
        )
        sweep.sweep(on_cpu, results)
        for name, tensor in wanted.items():
            if tensor is not None:
                tensor.copy_(getattr(results, name))

    def pooled_prefixes(self, problem: PooledProblem, out: Tensor) -> None:
        """Fill `out` [M, H, D] with the averages over the survivors."""
        on_cpu = replace(
            problem,
            values=problem.values.cpu(),
            offsets=problem.offsets.cpu(),
            attention=problem.attention.cpu(),
            order=problem.order.cpu(),
        )
        result = torch.empty_like(out, device="cpu")
        pooled.pooled_prefixes(on_cpu, result)
        out.copy_(result)


BACKEND = ReferenceBackend()
