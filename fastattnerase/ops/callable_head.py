"""The sweep for heads that are any callable: pooled vectors in chunks, mapped by the head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.library import pooled_prefixes_op, sweep_op
from fastattnerase.ops.plan import Plan
from fastattnerase.problem import BIT, Outputs, RankingKind, allocate, as_outputs
from fastattnerase.reference.divergence import js_divergence, kl_divergence
from fastattnerase.reference.instance import UNDERFLOW_SPAN, average, softmax_over_finite
from fastattnerase.reference.sums import scaled_sums_over_others, sums_over_others
from fastattnerase.status import Status

_GRADIENT_KINDS = (
    RankingKind.GRADIENT,
    RankingKind.PRODUCT,
    RankingKind.RENORMALIZED_GRADIENT,
)
# Sums in float64 hold their block of features about this many times, in bytes a float32 value's.
_TEMPORARIES = 8


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
    with torch.inference_mode(False), torch.no_grad(), _left_as_found(batch):
        work = _Work(batch, plan, seed, keep, backend, validate, max_bytes)
        return work.outputs(wants)


@contextmanager
def _left_as_found(batch: AttentionBatch) -> Iterator[None]:
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


class _Work:
    """One sweep with a callable head; `P = T + B` curve points, `k` erased (or kept) at each."""

    def __init__(
        self,
        batch: AttentionBatch,
        plan: Plan,
        seed: int,
        keep: bool,
        backend: str,
        validate: bool,
        max_bytes: int,
    ) -> None:
        self.batch, self.plan, self.seed, self.keep = batch, plan, seed, keep
        self.backend = backend
        T, H, D = batch._values.shape
        B, device = len(batch), batch.device
        self.real = torch.float64 if batch._values.dtype == torch.float64 else torch.float32
        self.chunk = max(1, max_bytes // max(1, H * D * self.real.itemsize))  # pooled vectors
        # A head of zeros tells all but the logits, and checks what was given.
        given = [k in (RankingKind.GIVEN_ORDER, RankingKind.GIVEN_KEYS) for k in plan.kinds]
        rows = [row for row, is_given in enumerate(given) if is_given]
        self.status = self._headless(
            [plan.kinds[row] for row in rows],
            [plan.args[row] for row in rows],
            plan.orders,
            plan.keys,
            False,
            validate,
        ).status  # [B]
        self.offsets: list[int] = batch.offsets.tolist()
        self.instance_of_item = batch.instance_of_item  # [T]
        items = torch.arange(T, device=device)
        self.by_position = items - batch.offsets[self.instance_of_item]  # [T]
        self.instance_of_point = torch.repeat_interleave(
            batch.lengths + 1, output_size=T + B
        )  # [P]
        self.starts = batch.offsets[:-1] + torch.arange(B, device=device)  # [B], points with k = 0
        self.k = torch.arange(T + B, device=device) - self.starts[self.instance_of_point]  # [P]

        self.bias = self._map_all(
            torch.zeros(B, H, D, dtype=self.real, device=device), torch.arange(B, device=device)
        )  # [B, C]
        self.logits, self.slopes = self._original()  # [B, C], [T, H]
        invalid = (self.status & int(Status.INVALID)) > 0  # [B]
        bad = (self.status & int(Status.NON_FINITE)) > 0  # [B]
        bad |= ~self.logits.isfinite().all(1) | ~self.bias.isfinite().all(1)
        self.status |= torch.where(bad & ~invalid, int(Status.NON_FINITE), 0)
        self.never = invalid | ~self.bias.isfinite().all(1)  # [B], no point is ever valid
        self.usable = ~bad & ~invalid  # [B]
        no_mass = (self.status & int(Status.EMPTY | Status.ZERO_MASS)) > 0  # [B]
        self.can_flip = self.usable & ~no_mass  # [B]
        self.label = self.logits.argmax(1).masked_fill(~self.usable, -1)  # [B]
        self.original = self.logits.masked_fill(~self.usable[:, None], torch.nan)  # [B, C]
        self._singles: tuple[Tensor, Tensor, Tensor] | None = None

    def _headless(
        self,
        kinds: list[int],
        args: list[int],
        orders: list[Tensor],
        keys: list[Tensor],
        keep: bool,
        validate: bool,
    ) -> Outputs:
        """Run the operator with one class and a head of zeros, for orders and masses."""
        batch = self.batch
        wants = BIT["order"] | BIT["curve_mass"]
        results = sweep_op(
            batch._values,
            batch.offsets,
            batch._attention,
            batch.is_scores,
            batch._values.new_zeros(1, *batch._values.shape[1:], dtype=self.real),
            batch._values.new_zeros(1, dtype=self.real),
            batch.ids,
            kinds,
            args,
            orders,
            keys,
            self.seed,
            keep,
            wants,
            self.backend,
            validate,
        )
        return as_outputs(results, wants)

    def _orders_and_masses(
        self,
        kinds: list[int],
        args: list[int],
        orders: list[Tensor],
        keys: list[Tensor],
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        """The orders [R, T] and the survivors' mass at every point [R, P]."""
        out = self._headless(kinds, args, orders, keys, keep, False)
        assert out.order is not None
        assert out.curve_mass is not None
        return out.order, out.curve_mass

    def _map(self, pooled: Tensor, instance: Tensor) -> Tensor:
        """The head's logits of pooled vectors [M, H, D] of instances [M]: [M, C], float64.

        NaN where the pooled vector is not finite.
        """
        assert self.batch.head is not None
        given = pooled if self.batch._several else pooled[:, 0]
        logits = self.batch.head(given, self.batch._rows[instance])
        M = len(pooled)
        if not isinstance(logits, Tensor):
            raise TypeError(f"head: returned {type(logits).__name__}, needed a tensor [{M}, C]")
        if logits.ndim != 2 or logits.shape[0] != M or logits.shape[1] == 0:
            raise ValueError(
                f"head: returned {list(logits.shape)} for {M} pooled vectors, needed [{M}, C]"
            )
        if not logits.is_floating_point():
            raise TypeError(f"head: returned {logits.dtype}, needed a float type")
        if logits.device != pooled.device:
            raise ValueError(f"head: returned on {logits.device}, needed on {pooled.device}")
        finite = pooled.detach().isfinite().flatten(1).all(1)  # [M]
        return logits.double().masked_fill(~finite[:, None], torch.nan)

    def _map_all(self, pooled: Tensor, instance: Tensor) -> Tensor:
        """`_map`, a chunk at a time."""
        begins = range(0, max(1, len(pooled)), self.chunk)
        return torch.cat(
            [self._map(pooled[i : i + self.chunk], instance[i : i + self.chunk]) for i in begins]
        )

    def _pooled(self, order: Tensor, keep: bool) -> Iterator[tuple[slice, Tensor]]:
        """Pooled vectors of all points of an order [T], a chunk of points at a time."""
        batch, P = self.batch, len(self.k)
        for begin in range(0, P, self.chunk):
            count = min(self.chunk, P - begin)
            yield (
                slice(begin, begin + count),
                pooled_prefixes_op(
                    batch._values,
                    batch.offsets,
                    batch._attention,
                    batch.is_scores,
                    order,
                    keep,
                    begin,
                    count,
                    self.backend,
                ),
            )

    def _original(self) -> tuple[Tensor, Tensor]:
        """Logits [B, C] of whole instances, and ∂d/∂a [T, H] where a ranking needs it."""
        wants_gradient = any(kind in _GRADIENT_KINDS for kind in self.plan.kinds)
        logits = torch.empty_like(self.bias)  # [B, C]
        slopes = torch.zeros_like(self.batch._attention, dtype=torch.float64)  # [T, H]
        for points, pooled in self._pooled(self.by_position, keep=False):
            whole = self.k[points] == 0  # [M]
            instance = self.instance_of_point[points][whole]  # [m], consecutive
            if not len(instance):
                continue
            if not wants_gradient:
                logits[instance] = self._checked_classes(self._map(pooled[whole], instance))
                continue
            with torch.enable_grad():
                start = pooled[whole].requires_grad_()  # [m, H, D]
                mapped = self._checked_classes(self._map(start, instance))  # [m, C]
            if not mapped.requires_grad:
                raise ValueError(
                    "head: its logits carry no gradient to the pooled vectors, which the "
                    "gradient rankings need"
                )
            logits[instance] = mapped.detach()
            (slope,) = torch.autograd.grad(mapped, start, _decision_slope(mapped.detach()))
            self._project(slopes, slope, int(instance[0]), int(instance[-1]))
        return logits, slopes

    def _checked_classes(self, logits: Tensor) -> Tensor:
        """Refuse a head whose number of classes changes from call to call."""
        if logits.shape[1] != self.bias.shape[1]:
            raise ValueError(
                f"head: returned {logits.shape[1]} classes after {self.bias.shape[1]}, needed the "
                "same number at every call"
            )
        return logits

    def _project(self, slopes: Tensor, slope: Tensor, first: int, last: int) -> None:
        """∂d/∂a_i = h_i · ∂d/∂pooled for the items of instances `first` to `last`: into [T, H]."""
        begin, end = self.offsets[first], self.offsets[last + 1]
        block = max(1, self.chunk // _TEMPORARIES)
        for i in range(begin, end, block):
            items = slice(i, min(i + block, end))
            own = slope[self.instance_of_item[items] - first].double()  # [m, H, D]
            slopes[items] = (self.batch._values[items].double() * own).sum(-1)

    def _sums_over_others(self, items: Tensor, h: int, terms: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sums of `terms` [m, K] over `items` [m] of an instance but one: [m, K], [m]."""
        attention = self.batch._attention[items, h].double()  # [m]
        weights, bad = softmax_over_finite(attention[:, None], self.batch.is_scores)  # [m, 1]
        scores = attention.masked_fill(bad[:, 0], -torch.inf)  # [m]
        finite = scores[scores > -torch.inf]
        spans = self.batch.is_scores and len(finite) > 0
        if spans and float(finite.max() - finite.min()) > UNDERFLOW_SPAN:
            return scaled_sums_over_others(scores, terms)
        return sums_over_others(weights[:, 0], terms)

    def _logits_without(self, b: int, items: Tensor) -> Tensor:
        """Logits over `items` [m] (rows of the batch) of an instance but one, for each: [m, C].

        The sums run over a block of features at a time, so that memory stays within the limit.
        """
        H, D = self.batch._values.shape[1:]
        m = len(items)
        width = max(1, self.chunk * D // (_TEMPORARIES * m))
        parts = []
        for begin in range(0, m, self.chunk):
            rows = slice(begin, begin + self.chunk)
            pooled = self.batch._values.new_empty(len(items[rows]), H, D, dtype=self.real)
            for h in range(H):
                for d in range(0, D, width):
                    terms = self.batch._values[items, h, d : d + width].double()  # [m, width]
                    mean = average(*self._sums_over_others(items, h, terms))  # [m, width]
                    pooled[:, h, d : d + width] = mean[rows].to(self.real)
            parts.append(self._map(pooled, torch.full_like(items[rows], b)))
        return torch.cat(parts)

    def _items(self, b: int) -> Tensor:
        """Rows of an instance's items: [n]."""
        return torch.arange(self.offsets[b], self.offsets[b + 1], device=self.batch.device)

    def singles(self) -> tuple[Tensor, Tensor, Tensor]:
        """Label after the flip, JS and drop of the label's probability for every item: [T] each."""
        if self._singles is None:
            usable = self.usable[self.instance_of_item]  # [T]
            js = torch.zeros(len(usable), dtype=torch.float64, device=self.batch.device)
            js.masked_fill_(~usable, torch.nan)
            flip_label, drop = torch.full_like(self.by_position, -1), js.clone()
            for b in self.can_flip.nonzero()[:, 0].tolist():
                items, y = self._items(b), int(self.label[b])
                logits = self._logits_without(b, items)  # [n, C]
                decision = logits.argmax(1)  # [n]
                flip_label[items] = decision.masked_fill(decision == y, -1)
                js[items] = js_divergence(logits, self.logits[b])
                drop[items] = self.logits[b].softmax(0)[y] - logits.softmax(1)[:, y]
            self._singles = flip_label, js, drop
        return self._singles

    def _greedy(self) -> Tensor:
        """At each step the item whose erasure leaves the smallest min_{c≠y} (z_y − z_c): [T]."""
        order = self.by_position.clone()
        if self.bias.shape[1] == 1:
            return order
        for b in self.usable.nonzero()[:, 0].tolist():
            left, y, taken = self._items(b), int(self.label[b]), []
            while len(left):
                logits = self._logits_without(b, left)  # [m, C]
                lead = logits[:, y, None] - logits  # [m, C]
                lead[:, y] = torch.inf
                step = int(lead.amin(1).argmin())
                taken.append(left[step])
                left = torch.cat([left[:step], left[step + 1 :]])
            if taken:
                order[self._items(b)] = self.by_position[torch.stack(taken)]
        return order

    def _keys(self, kind: int) -> Tensor:
        """Ranking scores of a ranking that needs the head: [T], float64."""
        if kind == RankingKind.LEAVE_ONE_OUT:
            return self.singles()[1]
        if kind == RankingKind.LEAVE_ONE_OUT_DROP:
            return self.singles()[2]
        if kind == RankingKind.GRADIENT:
            return self.slopes.sum(1)
        attention = self.batch._attention.double()  # [T, H]
        keys = torch.zeros(len(attention), dtype=torch.float64, device=self.batch.device)
        for b in self.can_flip.nonzero()[:, 0].tolist():
            items = self._items(b)
            weights, _ = softmax_over_finite(attention[items], self.batch.is_scores)  # [n, H]
            slopes = self.slopes[items]  # [n, H]
            if kind == RankingKind.RENORMALIZED_GRADIENT:
                slopes = slopes - torch.cat(
                    [
                        average(*self._sums_over_others(items, h, slopes[:, h, None]))
                        for h in range(slopes.shape[1])
                    ],
                    dim=1,
                )
            keys[items] = (weights * slopes).sum(1)
        return keys

    def _rows(self) -> tuple[list[int], list[int], list[Tensor], list[Tensor]]:
        """The plan with every ranking that needs the head replaced by scores or an order."""
        kinds, args = [], []
        orders, keys = list(self.plan.orders), list(self.plan.keys)
        headless = (
            RankingKind.ATTENTION,
            RankingKind.RANDOM,
            RankingKind.GIVEN_ORDER,
            RankingKind.GIVEN_KEYS,
        )
        for kind, arg in zip(self.plan.kinds, self.plan.args, strict=True):
            if kind in headless:
                kinds.append(kind)
                args.append(arg)
            elif kind == RankingKind.GREEDY:
                kinds.append(int(RankingKind.GIVEN_ORDER))
                args.append(len(orders))
                orders.append(self._greedy())
            else:
                kinds.append(int(RankingKind.GIVEN_KEYS))
                args.append(len(keys))
                usable = self.usable[self.instance_of_item]  # [T]
                keys.append(self._keys(kind).masked_fill(~usable, 0))  # by position
        return kinds, args, orders, keys

    def outputs(self, wants: int) -> Outputs:
        """All wanted results."""
        kinds, args, orders, keys = self._rows()
        batch, C, R = self.batch, self.bias.shape[1], len(kinds)
        out = as_outputs(allocate(batch._values, batch.offsets, C, R, wants), wants)
        out.label.copy_(self.label)
        out.probabilities.copy_(self.original.softmax(1))
        out.status.copy_(self.status)
        if out.logits is not None:
            out.logits.copy_(self.original)
        if R:
            order, mass = self._orders_and_masses(kinds, args, orders, keys, self.keep)
            _, other_mass = self._orders_and_masses(kinds, args, orders, keys, not self.keep)
            if out.order is not None:
                out.order.copy_(order)
            if out.curve_mass is not None:
                out.curve_mass.copy_(mass)
            for row in range(R):
                # Invalid instances have no order; their points are written as never valid.
                usable_order = order[row].where(order[row] >= 0, self.by_position)  # [T]
                self._fill_row(out, row, usable_order, other_mass[row])
        if out.single_js is not None:
            assert out.single_flip_label is not None
            assert out.single_drop is not None
            for target, values in zip(
                (out.single_flip_label, out.single_js, out.single_drop), self.singles(), strict=True
            ):
                target.copy_(values)
        return out

    def _fill_row(self, out: Outputs, row: int, order: Tensor, other_mass: Tensor) -> None:
        """Map all points of one order and write what is read off them."""
        instance = self.instance_of_point  # [P]
        logits = self.bias[instance].clone()  # [P, C]
        for points, pooled in self._pooled(order, self.keep):
            logits[points] = self._checked_classes(self._map(pooled, instance[points]))
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

        original = self.original[instance]  # [P, C]
        if out.curve_js is not None:
            out.curve_js[row] = js_divergence(logits, original)
        if out.curve_kl is not None:
            out.curve_kl[row] = kl_divergence(logits, original)
        if out.curve_label_prob is not None:
            probability = logits.softmax(1).gather(1, label.clamp(min=0)[:, None])[:, 0]  # [P]
            out.curve_label_prob[row] = probability.masked_fill(label < 0, torch.nan)
        if out.curve_decision is not None:
            out.curve_decision[row] = decision
        if out.curve_logits is not None:
            out.curve_logits[row] = logits


def _decision_slope(logits: Tensor) -> Tensor:
    """∂d/∂z of d = max_c softmax(z)_c without cancellation: [m, C] to [m, C].

    For the label `p_y Σ_{c≠y} p_c`, for the other classes `−p_y p_c`.
    """
    label = logits.argmax(1, keepdim=True)  # [m, 1]
    ratios = (logits - logits.gather(1, label)).exp()  # [m, C], p_c / p_y
    p_y = 1 / ratios.sum(1, keepdim=True)  # [m, 1]
    others = (ratios * p_y).scatter(1, label, 0)  # [m, C]
    slope = -p_y * others  # [m, C]
    return slope.scatter(1, label, p_y * others.sum(1, keepdim=True))
