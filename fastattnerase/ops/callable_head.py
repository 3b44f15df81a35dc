"""The sweep for heads that are any callable: pooled vectors in chunks, mapped by the head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.callable_instance import TEMPORARIES, CallableInstance, CheckedHead
from fastattnerase.ops.library import pooled_prefixes_op, sweep_op
from fastattnerase.ops.own_rankings import keys_of
from fastattnerase.ops.plan import Plan
from fastattnerase.problem import BIT, Outputs, RankingKind, allocate, as_outputs
from fastattnerase.rankings import by_kind, resolve
from fastattnerase.reference.prefixes import CURVES
from fastattnerase.reference.single import Singles
from fastattnerase.status import Status

# Rankings that no head has a part in: the engine orders by them as it stands.
_GIVEN = (RankingKind.GIVEN_ORDER, RankingKind.GIVEN_KEYS)
_HEADLESS = (*_GIVEN, RankingKind.ATTENTION, RankingKind.RANDOM)


def sweep_callable(
    batch: AttentionBatch,
    plan: Plan,
    wants: int,
    seed: int,
    keep: bool,
    backend: str,
    validate: bool,
    max_bytes: int,
) -> Outputs:
    """Do what the sweep operator does, with a head that is any callable."""
    if max_bytes < 1:
        raise ValueError(f"max_bytes: given {max_bytes}, needed 1 or more")
    with torch.inference_mode(False), torch.no_grad(), left_as_found(batch):
        sweep = _CallableSweep(batch, plan, wants, seed, keep, backend, validate, max_bytes)
        return sweep.outputs()


def orders_callable(
    batch: AttentionBatch, plan: Plan, seed: int, backend: str, validate: bool, max_bytes: int
) -> Tensor:
    """Give the orders of a plan's rankings, `[R, T]`; nothing is erased by them.

    Of an instance that is invalid the items in position order.
    """
    with torch.inference_mode(False), torch.no_grad(), left_as_found(batch):
        found = _CallableSweep(batch, plan, BIT["order"], seed, False, backend, validate, max_bytes)
        return found.orders()


@contextmanager
def left_as_found(batch: AttentionBatch) -> Iterator[None]:
    """Put the head in evaluation mode; afterwards its mode and the random state are as before."""
    modules = list(batch.head.modules()) if isinstance(batch.head, nn.Module) else []
    training = [module for module in modules if module.training]
    devices = [batch.device] if batch.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        for module in training:
            module.training = False
        try:
            yield
        finally:
            for module in training:
                module.training = True


class _CallableSweep:
    """One sweep with a callable head; `P = T + B` curve points, `k` erased (or kept) at each."""

    def __init__(
        self,
        batch: AttentionBatch,
        plan: Plan,
        wants: int,
        seed: int,
        keep: bool,
        backend: str,
        validate: bool,
        max_bytes: int,
    ) -> None:
        self.batch, self.plan, self.wants, self.seed, self.keep = batch, plan, wants, seed, keep
        self.backend, self.validate = backend, validate
        self.head = CheckedHead(batch, max_bytes)
        values = batch.packed[0]  # [T, H, D]
        (T, H, D), B, device = values.shape, len(batch), batch.device
        # A head of zeros tells all but the logits, and checks what was given.
        given = [row for row, kind in enumerate(plan.kinds) if kind in _GIVEN]
        headless = self._headless(given, keep=False, validate=validate)
        self.weights = headless.weights  # [T, H], None where not wanted
        self.offsets: list[int] = batch.offsets.tolist()
        self.instance_of_item = batch.instance_of_item  # [T]
        items = torch.arange(T, device=device)
        self.by_position = items - batch.offsets[self.instance_of_item]  # [T]
        self.instance_of_point = torch.repeat_interleave(
            batch.lengths + 1, output_size=T + B
        )  # [P]
        self.starts = batch.offsets[:-1] + torch.arange(B, device=device)  # [B], points with k = 0
        self.k = torch.arange(T + B, device=device) - self.starts[self.instance_of_point]  # [P]
        nothing = torch.zeros(B, H, D, dtype=self.head.real, device=device)
        self.bias = self.head.in_chunks(nothing, torch.arange(B, device=device))  # [B, C]
        self.logits = torch.empty_like(self.bias)  # [B, C]
        for pooled, instances in self._whole():
            self.logits[instances] = self.head(pooled, instances)
        self._judge(headless.status)

    def _judge(self, status: Tensor) -> None:
        """Say what may be decided, from the status [B] without a head and the head's logits."""
        invalid = (status & int(Status.INVALID)) > 0  # [B]
        bad = (status & int(Status.NON_FINITE)) > 0  # [B]
        bad |= ~self.logits.isfinite().all(1) | ~self.bias.isfinite().all(1)
        self.status = status | torch.where(bad & ~invalid, int(Status.NON_FINITE), 0)  # [B]
        self.never = invalid | ~self.bias.isfinite().all(1)  # [B], no point is ever valid
        self.usable = ~bad & ~invalid  # [B]
        no_mass = (status & int(Status.EMPTY | Status.ZERO_MASS)) > 0  # [B]
        self.can_flip = self.usable & ~no_mass  # [B]
        self.label = self.logits.argmax(1).masked_fill(~self.usable, -1)  # [B]
        self.original = self.logits.masked_fill(~self.usable[:, None], torch.nan)  # [B, C]

    def _headless(self, rows: list[int], keep: bool, validate: bool) -> Outputs:
        """Run the operator on rows of the plan with one class and a head of zeros."""
        values, plan = self.batch.packed[0], self.plan
        wants = BIT["order"] | BIT["curve_mass"] | self.wants & BIT["weights"]
        results = sweep_op(
            *self.batch.packed,
            values.new_zeros(1, *values.shape[1:], dtype=self.head.real),
            values.new_zeros(1, dtype=self.head.real),
            self.batch.ids,
            [plan.kinds[row] for row in rows],
            [plan.args[row] for row in rows],
            plan.orders,
            plan.keys,
            self.seed,
            keep,
            wants,
            self.backend,
            validate,
        )
        return as_outputs(results, wants)

    def _pooled(self, order: Tensor, keep: bool) -> Iterator[tuple[slice, Tensor]]:
        """Pool the survivors at all points of an order [T], a chunk of points at a time."""
        for begin in range(0, len(self.k), self.head.chunk):
            count = min(self.head.chunk, len(self.k) - begin)
            pooled = pooled_prefixes_op(
                *self.batch.packed, order, keep, begin, count, self.backend
            )  # [count, H, D]
            yield slice(begin, begin + count), pooled

    def _whole(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Pool whole instances: vectors [m, H, D] and their instances [m], a chunk at a time."""
        for points, pooled in self._pooled(self.by_position, keep=False):
            whole = self.k[points] == 0  # [M]
            instances = self.instance_of_point[points][whole]  # [m], consecutive
            if len(instances):
                yield pooled[whole], instances

    @cached_property
    def gradients(self) -> Tensor:
        """∂d/∂a_i = h_i · ∂d/∂pooled of all items, d = max_c softmax(z)_c: [T, H], float64."""
        values, _, attention, _ = self.batch.packed
        gradients = torch.zeros_like(attention, dtype=torch.float64)  # [T, H]
        block = max(1, self.head.chunk // TEMPORARIES)
        for pooled, instances in self._whole():
            with torch.enable_grad():
                start = pooled.requires_grad_()  # [m, H, D]
                logits = self.head(start, instances)  # [m, C]
            if not logits.requires_grad:
                raise ValueError(
                    "head: given logits without a gradient, needed one with respect to the pooled "
                    "vectors for rankings by gradient"
                )
            (slope,) = torch.autograd.grad(logits, start, _decision_slope(logits.detach()))
            first, last = int(instances[0]), int(instances[-1])
            end = self.offsets[last + 1]
            for i in range(self.offsets[first], end, block):
                items = slice(i, min(i + block, end))
                own = slope[self.instance_of_item[items] - first].double()  # [block, H, D]
                gradients[items] = (values[items].double() * own).sum(-1)
        return gradients

    def _place_rankings(self, wants_singles: bool) -> list[Singles]:
        """Give scores to the rankings that need the head; erase items alone where it is wanted."""
        rankings = {row: resolve(name) for row, name in self.plan.unplaced.items()}
        for row, kind in enumerate(self.plan.kinds):
            if row not in rankings and kind not in _HEADLESS:
                rankings[row] = by_kind(RankingKind(kind))
        keys = self.by_position.new_zeros(len(rankings), len(self.by_position)).double()  # [R', T]
        alone: list[Singles] = []
        if not rankings and not wants_singles:
            return alone
        for b, usable in enumerate(self.usable.tolist()):
            items = slice(self.offsets[b], self.offsets[b + 1])
            instance = CallableInstance(
                self.batch, self.head, b, items, self.logits[b], self.bias[b], usable,
                lambda own: self.gradients[own],
            )  # fmt: skip
            for row, ranking in zip(keys, rankings.values(), strict=True):
                row[items] = keys_of(ranking, instance, b, self.seed, self.validate)
            if wants_singles:
                alone.append(instance.singles)
        for place, row in zip(rankings, keys, strict=True):
            self.plan.place(place, row)
        return alone

    def orders(self) -> Tensor:
        """Order the items by all rankings: `[R, T]`."""
        self._place_rankings(False)
        order = self._headless(list(range(len(self.plan.kinds))), False, validate=False).order
        assert order is not None
        return order.where(order >= 0, self.by_position)

    def outputs(self) -> Outputs:
        """Compute all wanted results."""
        batch, C, R = self.batch, self.bias.shape[1], len(self.plan.kinds)
        results = allocate(batch.packed[0], batch.offsets, C, R, self.wants)
        out = as_outputs(results, self.wants)
        wanted = out.wanted("single_")  # [T] each
        alone = self._place_rankings(bool(wanted))
        if alone:
            for name, tensor in wanted.items():
                tensor.copy_(torch.cat([getattr(each, name) for each in alone]))
        if R:
            headless = self._headless(list(range(R)), self.keep, validate=False)
            other = self._headless(list(range(R)), not self.keep, validate=False)
            assert headless.order is not None
            assert headless.curve_mass is not None
            assert other.curve_mass is not None
            self._judge(headless.status)  # scores that a ranking gave may be NaN
            if out.order is not None:
                out.order.copy_(headless.order)
            if out.curve_mass is not None:
                out.curve_mass.copy_(headless.curve_mass)
            for row, (order, mass) in enumerate(zip(headless.order, other.curve_mass, strict=True)):
                # Invalid instances have no order; their points are written as never valid.
                self._fill_row(out, row, order.where(order >= 0, self.by_position), mass)
        out.label.copy_(self.label)
        out.probabilities.copy_(self.original.softmax(1))
        out.status.copy_(self.status)
        if out.logits is not None:
            out.logits.copy_(self.original)
        if out.weights is not None and self.weights is not None:
            out.weights.copy_(self.weights)
            wanted["weights"] = out.weights
        invalid = (self.status & int(Status.INVALID)) > 0  # [B]
        for tensor in wanted.values():
            tensor[invalid[self.instance_of_item]] = torch.nan if tensor.is_floating_point() else -1
        return out

    def _fill_row(self, out: Outputs, row: int, order: Tensor, other_mass: Tensor) -> None:
        """Map all points of one order and write what is read off them."""
        instance = self.instance_of_point  # [P]
        logits = self.bias[instance].clone()  # [P, C]
        for points, pooled in self._pooled(order, self.keep):
            logits[points] = self.head(pooled, instance[points])
        whole = self.k == (self.batch.lengths[instance] if self.keep else 0)  # [P]
        logits[whole] = self.logits[instance[whole]]
        invalid = ~logits.isfinite().all(1) | self.never[instance]  # [P]
        logits[invalid] = torch.nan
        decision = logits.argmax(1).masked_fill(invalid, -1)  # [P]

        label = self.label[instance]  # [P]
        flips = ((decision == label) == self.keep) & (self.k >= 1) & self.can_flip[instance]  # [P]
        beyond = len(self.k) + 1
        first = torch.full_like(self.label, beyond).scatter_reduce(
            0, instance, self.k.where(flips, beyond), "amin"
        )  # [B]
        never = first == beyond  # [B]
        at = (self.starts + first).masked_fill(never, 0)  # [B]
        out.first_flip[row] = first.masked_fill(never, -1)
        out.flip_label[row] = decision[at].masked_fill(never, -1)
        out.removed_mass[row] = other_mass[at].masked_fill(never, torch.nan)

        for name, tensor in out.wanted("curve_").items():
            if name in CURVES:
                tensor[row] = CURVES[name](logits, self.original[instance], label)
        if out.curve_decision is not None:
            out.curve_decision[row] = decision


def _decision_slope(logits: Tensor) -> Tensor:
    """Compute ∂d/∂z, d = max_c softmax(z)_c, without cancellation: [m, C] to [m, C].

    For the label `p_y Σ_{c≠y} p_c`, for the other classes `−p_y p_c`.
    """
    label = logits.argmax(1, keepdim=True)  # [m, 1]
    ratios = (logits - logits.gather(1, label)).exp()  # [m, C], p_c / p_y
    p_y = 1 / ratios.sum(1, keepdim=True)  # [m, 1]
    others = (ratios * p_y).scatter(1, label, 0)  # [m, C]
    slope = -p_y * others  # [m, C]
    return slope.scatter(1, label, p_y * others.sum(1, keepdim=True))
