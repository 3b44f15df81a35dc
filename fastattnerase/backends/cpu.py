"""The CPU engine: tensors become addresses for `fastattnerase._C`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastattnerase import _C
from fastattnerase.backends.addresses import (
    permute_fields,
    pooled_fields,
    readable,
    reweigh_fields,
    sweep_fields,
)
from fastattnerase.backends.exact import exact_fields
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
from fastattnerase.problem import (
    Outputs,
    PermutedOutputs,
    PermutedProblem,
    PooledProblem,
    Problem,
    ReweighedProblem,
)

# Scratch memory kept for the next call: a fresh one costs a page fault every 4 KiB.
_SPARE: list[Tensor] = []
_SPARE_BYTES = 64 * 2**20
# A forced instruction set is the whole process's while a call lasts.
_FORCED = threading.Lock()


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
        values = readable(problem.values)
        self._run(_C.cpu_sweep, sweep_fields(problem, values, out, torch.get_num_threads()))

    def permute(self, problem: PermutedProblem, out: PermutedOutputs) -> None:
        """Fill all results with what permuted weights do."""
        values = readable(problem.values)
        self._run(_C.cpu_permute, permute_fields(problem, values, out, torch.get_num_threads()))

    def reweigh(self, problem: ReweighedProblem, logits: Tensor) -> None:
        """Fill `logits` [R, B, C] with those of other weights."""
        values = readable(problem.values)
        self._run(_C.cpu_reweigh, reweigh_fields(problem, values, logits, torch.get_num_threads()))

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        """Fill `pooled` [M, H, D] with the renormalised averages over the survivors."""
        values = readable(problem.values)
        fields = pooled_fields(problem, values, pooled, torch.get_num_threads())
        _call(_C.cpu_pooled_prefixes, fields)

    def envelope(self, problem: EnvelopeProblem, out: EnvelopeOutputs) -> None:
        """Fill the least and largest outputs by number of items kept, and the curves."""
        self._answer(_C.cpu_envelope, problem, out)

    def shapley(self, problem: ShapleyProblem, out: ShapleyOutputs) -> None:
        """Fill the Shapley values."""
        self._answer(_C.cpu_shapley, problem, out)

    def sufficient(self, problem: SufficientProblem, out: SufficientOutputs) -> None:
        """Fill the sufficient sets."""
        self._answer(_C.cpu_sufficient, problem, out)

    def greedy(self, problem: GreedyProblem, out: GreedyOutputs) -> None:
        """Fill the greedy orders."""
        self._answer(_C.cpu_greedy, problem, out)

    def _answer(self, operator: Callable[..., int], problem: Any, out: Any) -> None:
        """Run what takes contributions as they stand; it is the same in every variant."""
        fields, _alive = exact_fields(problem, out, torch.get_num_threads())
        _call(operator, fields)

    def _run(self, operator: Callable[..., int], fields: dict[str, Any]) -> None:
        """Run an operator, in the variant where one is forced."""
        if self._variant is None:
            _call(operator, fields)
            return
        with _FORCED:
            before = _C.cpu_variant()
            _C.cpu_select_variant(self._variant)
            try:
                _call(operator, fields)
            finally:
                _C.cpu_select_variant(before)


def _call(operator: Callable[..., int], fields: dict[str, Any]) -> None:
    """Run with the scratch memory at hand; where the operator asks for more, with as much."""
    try:
        workspace = _SPARE.pop()
    except IndexError:
        workspace = torch.empty(0, dtype=torch.uint8)
    try:
        needed = operator(**_with(fields, workspace))
        if needed:
            workspace = torch.empty(needed, dtype=torch.uint8)
            operator(**_with(fields, workspace))
    finally:
        if workspace.numel() <= _SPARE_BYTES and not _SPARE:
            _SPARE.append(workspace)


def _with(fields: dict[str, Any], workspace: Tensor) -> dict[str, Any]:
    fields["workspace"] = workspace.data_ptr()
    fields["workspace_bytes"] = workspace.numel()
    return fields


BACKEND = CpuBackend()
