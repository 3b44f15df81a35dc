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

_GRADIENT_KEYS = {
    RankingKind.ATTENTION: "attention",
    RankingKind.GRADIENT: "gradient",
    RankingKind.PRODUCT: "product",
    RankingKind.RENORMALIZED_GRADIENT: "renormalized",
}
_SINGLE_KEYS = {
    RankingKind.LEAVE_ONE_OUT: "js_key",
    RankingKind.LEAVE_ONE_OUT_DROP: "drop_key",
}
_ORDERED_DIRECTLY = (RankingKind.GIVEN_ORDER, RankingKind.GREEDY, RankingKind.MINIMAL)
# Classes whose minimal sets are searched at once: as many as fit this, but at least one.
_MINIMAL_BYTES = 256 * 2**20
_NEVER = 2**31 - 1  # FAR of kernels/triton/common.py
_MAX_CLASSES = 4096


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
    """Offsets that stay within the batch and never decrease, and which instances they changed."""
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
        problem = self.problem
        self.values = _aligned(problem.values[:, 0])  # [T, D]
        self.attention = problem.attention[:, 0]  # [T]
        self.head_weight = _aligned(problem.head_weight[:, 0].contiguous())  # [C, D]
        self.bias = problem.head_bias  # [C] or [B, C]
        self.num_instances = len(problem.ids)
        self.num_items, self.num_classes = len(self.values), len(self.head_weight)
        self.offsets, self.invalid = _safe_offsets(problem.offsets, self.num_items)
        contribution = torch.float64 if self.values.dtype == torch.float64 else torch.float32
        self.contributions = self._new((self.num_items, self.num_classes), contribution)
        self.weight = self._weight()  # [T], NaN marks a bad item
        self.log_probabilities = self._new((self.num_instances, self.num_classes), torch.float64)
        self.tolerance = self._new((self.num_instances,), torch.float64)
        self.runner_up = self._new((self.num_instances,), torch.int64)
        self.positive = self._new((self.num_instances,), torch.int64)
        self.bias_label = self._new((self.num_instances,), torch.int64)

    def _weight(self) -> Tensor:
        """Where the normalised weights go [T]: the result, or workspace."""
        if self.out.weights is not None:
            return self.out.weights[:, 0]
        return self._new((self.num_items,), torch.float64)

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.values.device)

    @cached_property
    def order(self) -> Tensor:
        """Where the orders go [R, T]: the result, or workspace."""
        if self.out.order is not None:
            return self.out.order
        return self._new((len(self.problem.rankings), self.num_items), torch.int64)

    @cached_property
    def keys(self) -> Tensor:
        """Sort keys [R, T]; rows of rankings that need no sort stay unused."""
        return self._new((len(self.problem.rankings), self.num_items), torch.int64)

    def run(self) -> None:
        """Launch everything that is wanted."""
        self._check_given()
        self._original()
        self._singles()
        self._gradients()
        if self._wants_minimal or RankingKind.MINIMAL in self.problem.rankings:
            self._minimal()
        self._rank()
        if self.problem.rankings:
            self._prefixes()

    def _check_given(self) -> None:
        """Mark instances whose given order or scores are unusable; turn scores into keys."""
        problem, place = self.problem, None
        for row, (kind, arg) in enumerate(zip(problem.rankings, problem.ranking_args, strict=True)):
            if kind == RankingKind.GIVEN_ORDER:
                if place is None:
                    place = self._new((self.num_items,), torch.int32)
                given, scratch = problem.orders[arg], place
            elif kind == RankingKind.GIVEN_KEYS:
                given, scratch = problem.keys[arg], self.keys[row]
            else:
                continue
            _kernel("given").check_given(given, self.offsets, scratch, self.invalid)

    def _original(self) -> None:
        """Contributions, weights, label, probabilities, status."""
        out = self.out
        norms = self._new((self.num_items,), torch.float64)
        _kernel("project").project(self.values, self.head_weight, self.contributions, norms)
        head_norm = torch.linalg.vector_norm(self.head_weight, dim=1, dtype=torch.float64).amax()
        _kernel("decide").decide(
            self.attention, self.problem.is_scores, self.contributions, norms, self.offsets,
            self.bias, self.invalid, head_norm, self.weight, out.label, out.status,
            out.probabilities, self.log_probabilities, self.tolerance, self.runner_up,
            self.positive, self.bias_label, out.logits,
        )  # fmt: skip

    def _first(self, kind: RankingKind) -> int | None:
        """The first row of a kind whose rows are all alike."""
        kinds = self.problem.rankings
        return kinds.index(kind) if kind in kinds else None

    def _singles(self) -> None:
        """Single erasures, and the keys of the rankings by them."""
        out = self.out
        results: dict[str, Tensor | None] = {
            "flip": out.single_flip_label,
            "js": out.single_js,
            "kl": out.single_kl,
            "drop": out.single_drop,
        }
        for kind, name in _SINGLE_KEYS.items():
            row = self._first(kind)
            results[name] = None if row is None else self.keys[row]
        _kernel("singles").erase_each(
            self.contributions, self.weight, self.attention, self.problem.is_scores, self.offsets,
            self.bias, out.label, self.log_probabilities, self.tolerance, out.status, results,
        )  # fmt: skip

    def _gradients(self) -> None:
        """Keys of the rankings by attention and gradient."""
        family = {}
        for kind, name in _GRADIENT_KEYS.items():
            row = self._first(kind)
            if row is not None:
                family[name] = self.keys[row]
        _kernel("gradient_keys").gradient_keys(
            self.attention, self.problem.is_scores, self.contributions, self.weight, self.offsets,
            self.out.label, self.out.status, self.log_probabilities, family,
        )  # fmt: skip

    def _rank(self) -> None:
        """All orders: what has keys is sorted, consecutive rows in one launch."""
        problem, out = self.problem, self.out
        kinds, args = problem.rankings, problem.ranking_args
        for begin, end in _runs(
            len(kinds), lambda row: kinds[row] == kinds[row - 1] and args[row] == args[row - 1] + 1
        ):
            if kinds[begin] == RankingKind.RANDOM:
                _kernel("random_keys").random_keys(
                    problem.ids, self.offsets, self.keys[begin:end], problem.seed, args[begin]
                )
        for row, kind in enumerate(kinds):
            first = kinds.index(kind)
            if kind in _GRADIENT_KEYS | _SINGLE_KEYS and row != first:
                self.keys[row].copy_(self.keys[first])
        directly = [kind in _ORDERED_DIRECTLY for kind in kinds]
        for begin, end in _runs(len(kinds), lambda row: directly[row] == directly[row - 1]):
            if not directly[begin]:
                _kernel("sort").sort(
                    self.keys[begin:end], self.offsets, out.status, self.order[begin:end]
                )
        for row, (kind, arg) in enumerate(zip(kinds, args, strict=True)):
            if kind == RankingKind.GIVEN_ORDER:
                _kernel("copy_order").copy_order(
                    problem.orders[arg], self.offsets, out.status, self.order[row]
                )
            elif kind == RankingKind.GREEDY and row != kinds.index(kind):
                self.order[row].copy_(self.order[kinds.index(kind)])
            elif kind == RankingKind.GREEDY:
                _kernel("greedy").greedy_order(
                    self.contributions, self.weight, self.attention, problem.is_scores,
                    self.offsets, self.bias, out.label, out.status, self.order[row],
                )  # fmt: skip
            elif kind == RankingKind.MINIMAL:
                self.order[row].copy_(self.minimal_order)

    def _minimal(self) -> None:
        """The minimal set: its order [T], which rankings may want, and its results."""
        out, label = self.out, self.out.label
        order = out.minimal_order
        if order is None:
            order = self._new((self.num_items,), torch.int64)
        self.minimal_order = order
        classes = self.num_classes
        code = torch.full_like(label, _NEVER * classes + classes)  # [B], size * C + class
        nearest = torch.full_like(label, _NEVER)  # [B]
        step = max(1, min(classes - 1, _MINIMAL_BYTES // (24 * max(1, self.num_items)), 65535))
        rows = None
        for first in range(0, classes - 1, step):
            count = min(step, classes - 1 - first)
            rows = self._minimal_rows(count, first)  # [count, T]
            codes = self._new((count, self.num_instances), torch.int64)
            near = self._new((count, self.num_instances), torch.int32)
            _kernel("minimal_size").minimal_size(
                self.contributions, self.weight, self.attention, self.problem.is_scores, rows,
                self.offsets, self.bias, label, out.status, self.tolerance, codes, near, first,
            )  # fmt: skip
            code = torch.minimum(code, codes.amin(0))
            nearest = torch.minimum(nearest, near.amin(0))
        found = code // classes < _NEVER  # [B]
        usable = (label >= 0) & (self.positive > 0)  # [B]
        by_mass = torch.where(self.bias_label != label, self.positive, -1)  # [B]
        size = torch.where(usable, torch.where(found, code // classes, by_mass), -1)  # [B]
        if rows is not None and classes == 2:  # the only class there is to flip to
            order.copy_(rows[0])
        else:
            pick = torch.where(found, code % classes, self.runner_up)  # [B]
            pick = torch.where(usable, pick, -1) if classes > 1 else torch.full_like(pick, -1)
            order.copy_(self._minimal_rows(1, 0, pick)[0])
        if out.minimal_size is not None:
            out.minimal_size.copy_(size)
        if out.minimal_flip_label is not None:
            _kernel("minimal_label").minimal_label(
                self.contributions, self.weight, self.attention, self.problem.is_scores, order,
                self.offsets, self.bias, label, out.status, size, out.minimal_flip_label,
            )  # fmt: skip
        if self._wants_minimal:
            last = torch.where(found, size, self.positive)  # [B]
            out.status.bitwise_or_((usable & (nearest <= last)) * int(Status.NEAR_TIE))

    def _minimal_rows(self, count: int, first: int, pick: Tensor | None = None) -> Tensor:
        """Orders [count, T] by the margins of the other classes from `first` on, or of `pick`."""
        keys = self._new((count, self.num_items), torch.int64)
        rows = torch.empty_like(keys)
        _kernel("minimal_keys").minimal_keys(
            self.contributions, self.weight, self.attention, self.problem.is_scores, self.offsets,
            self.bias, self.out.label, self.out.status, keys, first, pick,
        )  # fmt: skip
        _kernel("sort").sort(keys, self.offsets, self.out.status, rows)
        return rows

    @property
    def _wants_minimal(self) -> bool:
        out = self.out
        wanted = (out.minimal_size, out.minimal_flip_label, out.minimal_order)
        return any(tensor is not None for tensor in wanted)

    def _prefixes(self) -> None:
        """Every prefix of every order."""
        out = self.out
        curves = {
            "js": out.curve_js,
            "kl": out.curve_kl,
            "label_prob": out.curve_label_prob,
            "mass": out.curve_mass,
            "decision": out.curve_decision,
            "logits": out.curve_logits,
        }
        _kernel("prefixes").erase_prefixes(
            self.contributions, self.weight, self.attention, self.problem.is_scores, self.order,
            self.offsets, self.bias, self.problem.keep, out.label, self.log_probabilities,
            self.tolerance, out.status, out.first_flip, out.flip_label, out.removed_mass, curves,
        )  # fmt: skip


def _runs(count: int, continues: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
    """Stretches `[begin, end)` of `0 … count - 1` whose rows each continue the one before."""
    begin = 0
    for row in range(1, count + 1):
        if row == count or not continues(row):
            yield begin, row
            begin = row


BACKEND = TritonBackend()
