"""The Triton backend: for GPUs where this package's compiled CUDA code is not at hand.

The kernels live in `kernels/triton` (`fastattnerase.kernels.triton`), one launch function a file;
this module turns a problem into launches. With `TRITON_INTERPRET=1` in the environment before the
first import of Triton the same kernels run in its interpreter, on CPU tensors: slow, for tests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy
import torch
from torch import Tensor

from fastattnerase.backends.checks import check_contents
from fastattnerase.problem import Outputs, PooledProblem, Problem, RankingKind
from fastattnerase.status import Status

# Rankings whose keys a kernel writes that takes one row of them for each, named after the ranking.
_BY_GRADIENT = (
    RankingKind.ATTENTION,
    RankingKind.GRADIENT,
    RankingKind.PRODUCT,
    RankingKind.RENORMALIZED_GRADIENT,
)
_BY_SINGLES = (RankingKind.LEAVE_ONE_OUT, RankingKind.LEAVE_ONE_OUT_DROP)
_ORDERED_DIRECTLY = (RankingKind.GIVEN_ORDER, RankingKind.GREEDY, RankingKind.MINIMAL)
# Classes whose minimal sets are searched at once: as many as fit this, but at least one.
_MINIMAL_BYTES = 256 * 2**20
_MAX_CLASSES = 4096  # what prefixes.py can count in 16 bits


def _kernel(module: str) -> Any:
    """A module of `fastattnerase.kernels.triton`, which imports Triton."""
    return import_module(f"fastattnerase.kernels.triton.{module}")


def _interpreting() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _guard(device: torch.device) -> AbstractContextManager[Any]:
    """Launch on the tensors' device; in the interpreter NaN and infinity need no warning."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    return numpy.errstate(all="ignore")


def _aligned(values: Tensor) -> Tensor:
    """Rows [T, D] that 16-byte loads can read; other layouts are copied once.

    The width of the loads depends on D alone, so that no batch rounds differently from another.
    """
    width = _kernel("project").vector_width(values.shape[1], values.element_size())
    misplaced = values.data_ptr() % (width * values.element_size()) != 0
    if misplaced or values.stride(0) % width or values.stride(1) != 1:
        return values.clone(memory_format=torch.contiguous_format)
    return values


def _safe_offsets(offsets: Tensor, num_items: int) -> tuple[Tensor, Tensor]:
    """Correct offsets that leave the batch or decrease, and mark the instances it changes."""
    safe = offsets.clamp(0, num_items).cummax(0).values  # [B + 1]
    wrong = safe != offsets  # [B + 1]
    return safe, (wrong[:-1] | wrong[1:]).to(torch.int32)


class TritonBackend:
    """Runs the Triton kernels: a launch for each step instead of one fused kernel."""

    name = "triton"

    @property
    def devices(self) -> tuple[str, ...]:
        """GPU tensors, or CPU tensors in the interpreter."""
        return ("cpu",) if _interpreting() else ("cuda",)

    def unavailable(self) -> list[str]:
        """Say what Triton lacks here."""
        reasons = []
        if find_spec("triton") is None:
            reasons.append(
                "Triton is not installed"
                if sys.platform == "linux"
                else f"Triton has no release for {sys.platform}"
            )
        if not _interpreting() and not torch.cuda.is_available():
            reasons.append("torch finds no GPU and TRITON_INTERPRET=1 is not set")
        return reasons

    def unsupported(self, problem: Problem) -> list[str]:
        """Say what of the problem is beyond the kernels."""
        reasons = []
        if problem.values.shape[1] != 1:
            reasons.append(f"it takes one attention head, these are {problem.values.shape[1]}")
        if problem.head_weight.shape[0] > _MAX_CLASSES:
            reasons.append(
                f"it takes at most {_MAX_CLASSES} classes, these are {problem.head_weight.shape[0]}"
            )
        return reasons

    def sweep(self, problem: Problem, out: Outputs) -> None:
        """Fill every wanted result."""
        if problem.validate:
            check_contents(problem)
        with _guard(problem.values.device):
            _Sweep(problem, out).run()

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        """Fill `pooled` [M, H, D] with the averages over the survivors, a head at a time."""
        with _guard(problem.values.device):
            offsets, _ = _safe_offsets(problem.offsets, len(problem.values))
            for h in range(problem.values.shape[1]):
                head = pooled[:, h]  # [M, D]
                part = head if head.is_contiguous() else head.new_empty(head.shape)
                values = problem.values[:, h]  # [T, D]
                _kernel("pooled").pooled_prefixes(
                    values if values.stride(1) == 1 else values.contiguous(),
                    problem.attention[:, h],
                    problem.is_scores,
                    problem.order,
                    offsets,
                    problem.keep,
                    problem.begin,
                    part,
                )
                if part is not head:
                    head.copy_(part)


@dataclass
class _Sweep:
    """One sweep: its inputs in the kernels' form, its workspace, its launches in order."""

    problem: Problem
    out: Outputs

    def __post_init__(self) -> None:
        problem, out = self.problem, self.out
        self.values = _aligned(problem.values[:, 0])  # [T, D]
        self.head_weight = _aligned(problem.head_weight[:, 0].contiguous())  # [C, D]
        T, B, C = len(self.values), len(problem.ids), len(self.head_weight)
        offsets, self.found_invalid = _safe_offsets(problem.offsets, T)
        self.batch = _kernel("launch").Batch(
            attention=problem.attention[:, 0],
            is_scores=problem.is_scores,
            keep=problem.keep,
            offsets=offsets,
            bias=problem.head_bias,
            contributions=self._new((T, C), out.probabilities.dtype),
            norms=self._new((T,), torch.float64),
            weights=self._new((T,), torch.float64) if out.weights is None else out.weights[:, 0],
            log_probabilities=self._new((B, C), torch.float64),
            tolerance=self._new((B,), torch.float64),
            positive=self._new((B,), torch.int64),
            runner_up=self._new((B,), torch.int64),
            bias_label=self._new((B,), torch.int64),
            results=vars(out),
        )

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.problem.values.device)

    def _rows(self) -> Tensor:
        """Make room for an integer of each item under each ranking: [R, T]."""
        return self._new((len(self.problem.rankings), len(self.values)), torch.int64)

    @cached_property
    def order(self) -> Tensor:
        """Where the orders go [R, T]: the result, or workspace."""
        return self._rows() if self.out.order is None else self.out.order

    @cached_property
    def keys(self) -> Tensor:
        """Sort keys [R, T]; rows of rankings that need no sort stay unused."""
        return self._rows()

    def run(self) -> None:
        """Launch everything that is wanted."""
        self._check_given()
        self._original()
        _kernel("singles").erase_each(self.batch, self._rows_of_keys(_BY_SINGLES))
        _kernel("gradient_keys").gradient_keys(self.batch, self._rows_of_keys(_BY_GRADIENT))
        if self._wants_minimal or RankingKind.MINIMAL in self.problem.rankings:
            self._minimal()
        self._rank()
        if self.problem.rankings:
            _kernel("prefixes").erase_prefixes(self.batch, self.order)

    def _check_given(self) -> None:
        """Mark instances whose given order or scores are unusable; turn scores into keys."""
        problem, place = self.problem, None
        for row, (kind, arg) in enumerate(zip(problem.rankings, problem.ranking_args, strict=True)):
            if kind == RankingKind.GIVEN_ORDER:
                if place is None:
                    place = self._new((len(self.values),), torch.int32)
                given, scratch = problem.orders[arg], place
            elif kind == RankingKind.GIVEN_KEYS:
                given, scratch = problem.keys[arg], self.keys[row]
            else:
                continue
            _kernel("given").check_given(given, self.batch.offsets, scratch, self.found_invalid)

    def _original(self) -> None:
        """Compute contributions and what is known before anything is erased."""
        batch = self.batch
        _kernel("project").project(self.values, self.head_weight, batch.contributions, batch.norms)
        head_norm = torch.linalg.vector_norm(self.head_weight, dim=1, dtype=torch.float64).amax()
        _kernel("decide").decide(batch, self.found_invalid, head_norm)

    def _rows_of_keys(self, kinds: tuple[RankingKind, ...]) -> dict[str, Tensor | None]:
        """Name the row of keys of the first ranking of each kind as kernels do; None for none."""
        rankings = self.problem.rankings
        return {
            f"{kind.name}_KEYS": self.keys[rankings.index(kind)] if kind in rankings else None
            for kind in kinds
        }

    def _rank(self) -> None:
        """Make all orders: what has keys is sorted, consecutive rows in one launch."""
        problem, status, offsets = self.problem, self.out.status, self.batch.offsets
        kinds, args = problem.rankings, problem.ranking_args
        for begin, end in _runs(
            len(kinds), lambda row: kinds[row] == kinds[row - 1] and args[row] == args[row - 1] + 1
        ):
            if kinds[begin] == RankingKind.RANDOM:
                _kernel("random_keys").random_keys(
                    problem.ids, offsets, self.keys[begin:end], problem.seed, args[begin]
                )
        for row, kind in enumerate(kinds):
            first = kinds.index(kind)
            if kind in (*_BY_GRADIENT, *_BY_SINGLES) and row != first:
                self.keys[row].copy_(self.keys[first])
        directly = [kind in _ORDERED_DIRECTLY for kind in kinds]
        for begin, end in _runs(len(kinds), lambda row: directly[row] == directly[row - 1]):
            if not directly[begin]:
                _kernel("sort").sort(self.keys[begin:end], offsets, status, self.order[begin:end])
        for row, (kind, arg) in enumerate(zip(kinds, args, strict=True)):
            if kind == RankingKind.GIVEN_ORDER:
                _kernel("copy_order").copy_order(
                    problem.orders[arg], offsets, status, self.order[row]
                )
            elif kind == RankingKind.GREEDY and row != kinds.index(kind):
                self.order[row].copy_(self.order[kinds.index(kind)])
            elif kind == RankingKind.GREEDY:
                _kernel("greedy").greedy_order(self.batch, self.order[row])
            elif kind == RankingKind.MINIMAL:
                self.order[row].copy_(self.minimal_order)

    def _minimal(self) -> None:
        """Search the minimal set: its order [T], which rankings may want, and its results."""
        batch, out = self.batch, self.out
        T, B, C = batch.num_items, batch.num_instances, batch.num_classes
        label, positive = out.label, batch.positive
        never = _kernel("common").NEVER.value
        order = self._new((T,), torch.int64) if out.minimal_order is None else out.minimal_order
        self.minimal_order = order
        code = torch.full_like(label, never * C + C)  # [B], size * C + class
        nearest = torch.full_like(label, never)  # [B]
        step = max(1, min(C - 1, _MINIMAL_BYTES // (24 * max(1, T))))
        rows = None
        for first in range(0, C - 1, step):
            count = min(step, C - 1 - first)
            rows = self._minimal_rows(count, first)  # [count, T]
            codes = self._new((count, B), torch.int64)
            near = self._new((count, B), torch.int32)
            _kernel("minimal_size").minimal_size(batch, rows, codes, near, first)
            code = torch.minimum(code, codes.amin(0))
            nearest = torch.minimum(nearest, near.amin(0))
        found = code // C < never  # [B]
        usable = (label >= 0) & (positive > 0)  # [B]
        by_mass = torch.where(batch.bias_label != label, positive, -1)  # [B]
        size = torch.where(usable, torch.where(found, code // C, by_mass), -1)  # [B]
        if rows is not None and C == 2:  # the only class there is to flip to
            order.copy_(rows[0])
        else:
            pick = torch.where(found, code % C, batch.runner_up)  # [B]
            pick = torch.where(usable, pick, -1) if C > 1 else torch.full_like(pick, -1)
            order.copy_(self._minimal_rows(1, 0, pick)[0])
        if out.minimal_size is not None:
            out.minimal_size.copy_(size)
        if out.minimal_flip_label is not None:
            _kernel("minimal_label").minimal_label(batch, order, size)
        if self._wants_minimal:
            last = torch.where(found, size, positive)  # [B]
            out.status.bitwise_or_((usable & (nearest <= last)) * int(Status.NEAR_TIE))

    def _minimal_rows(self, count: int, first: int, pick: Tensor | None = None) -> Tensor:
        """Order by the margins of the `count` other classes from `first` on, or of `pick` [B]."""
        keys = self._new((count, len(self.values)), torch.int64)
        rows = torch.empty_like(keys)  # [count, T]
        _kernel("minimal_keys").minimal_keys(self.batch, keys, first, pick)
        _kernel("sort").sort(keys, self.batch.offsets, self.out.status, rows)
        return rows

    @property
    def _wants_minimal(self) -> bool:
        """Whether a result of the minimal set is wanted."""
        results = vars(self.out).items()
        return any(name.startswith("minimal_") and tensor is not None for name, tensor in results)


def _runs(count: int, continues: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
    """Divide `0 … count - 1` into runs `[begin, end)` whose rows each continue the one before."""
    begin = 0
    for row in range(1, count + 1):
        if row == count or not continues(row):
            yield begin, row
            begin = row


BACKEND = TritonBackend()
