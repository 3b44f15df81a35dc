"""Erasing without renormalising: what an item adds is taken away, the rest stays as it is.

The logits of the survivors `S` are `Σ_S t_i + b` with the terms `t_i = a_i W h_i`. Plain torch in
float64, several instances at a time in padded form, on any device. Sums over survivors run from the
tail of the order, one item after the other, so that they depend on the instance alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fastattnerase.exact_problems import GreedyOutputs
from fastattnerase.problem import RESULTS, Outputs, RankingKind
from fastattnerase.reference.instance import NEAR_TIE_TOLERANCE
from fastattnerase.reference.prefixes import CURVES
from fastattnerase.status import Status

# Rankings that depend on how erasing is done, or on the logits; the others' orders are given.
ADDITIVE = (
    RankingKind.GRADIENT,
    RankingKind.PRODUCT,
    RankingKind.LEAVE_ONE_OUT,
    RankingKind.LEAVE_ONE_OUT_DROP,
    RankingKind.GREEDY,
    RankingKind.MINIMAL,
)
_UNDECIDED = int(Status.EMPTY | Status.ZERO_MASS | Status.NON_FINITE | Status.INVALID)


@dataclass(frozen=True)
class Terms:
    """What items add to the logits. Axes: `T` items, `B` instances, `C` classes, `R` rankings."""

    offsets: Tensor  # [B + 1], int64
    status: Tensor  # [B], int64, without near-ties
    terms: Tensor  # [T, C], weights as they are given
    slopes: Tensor  # [T, C], derivatives of the logits by the weight
    amount: Tensor  # [T], weight as it is given, the sum over heads
    mass: Tensor  # [T], share of the instance's attention, the mean over heads
    bias: Tensor  # [B, C]
    reach: Tensor  # [B], the largest contribution that the items' lengths allow
    orders: Tensor  # [R, T], int64; of rankings in `ADDITIVE` anything


def chunks(offsets: Tensor, width: int, budget: int) -> list[slice]:
    """Divide instances into runs whose padded form has at most `budget` numbers, or one each."""
    lengths = offsets.diff().tolist()
    found, begin, longest = [], 0, 0
    for b, n in enumerate(lengths):
        most = max(longest, n)
        if b > begin and (b + 1 - begin) * (most + 1) * width > budget:
            found.append(slice(begin, b))
            begin, most = b, n
        longest = most
    if len(lengths):
        found.append(slice(begin, len(lengths)))
    return found


def _divergences(logits: Tensor, original: Tensor) -> tuple[Tensor, Tensor]:
    """Compute JS and KL as `divergence.py` does: [K, C] twice to [K] twice.

    On a CPU the vector forms of exponentials round other than the scalar ones that are left for the
    last numbers of a tensor; with a stride all take the scalar ones, so that no number depends on
    where it stands.
    """
    log_q, log_p = logits.log_softmax(1), original.log_softmax(1)  # [K, C]
    apart = torch.stack([log_p, log_q], 2)  # [K, C, 2]
    log_p, log_q = apart[:, :, 0], apart[:, :, 1]
    log_m = log_p.logaddexp(log_q) - math.log(2)  # [K, C]
    p, q = log_p.exp(), log_q.exp()
    js = (p * (log_p - log_m) + q * (log_q - log_m)).sum(1) / 2
    return js.clamp(0, math.log(2)), (q * (log_q - log_p)).sum(1).clamp(min=0)


class Chunk:
    """Some instances in padded form. Axes: `B` of them, `N` items of the longest, `C` classes."""

    def __init__(self, given: Terms, rows: slice) -> None:
        offsets = given.offsets[rows.start : rows.stop + 1]
        self.first, self.length = offsets[:-1], offsets.diff()  # [B], [B]
        N = max(1, int(self.length.max()))
        places = torch.arange(N, device=offsets.device)  # [N]
        self.places = places.expand(len(self.first), N)  # [B, N]
        self.real = places < self.length[:, None]  # [B, N]
        T = len(given.terms)
        self.items = (self.first[:, None] + places).clamp(max=max(0, T - 1))  # [B, N]
        self.status = given.status[rows]  # [B]
        self.bias = given.bias[rows]  # [B, C]
        self.C = self.bias.shape[1]
        terms = self._padded(given.terms)  # [B, N, C]
        self.slopes = self._padded(given.slopes)  # [B, N, C]
        self.bad = ~(terms.isfinite() & self.slopes.isfinite()).all(2)  # [B, N]
        self.terms = terms.masked_fill(self.bad[:, :, None], 0)
        self.amount = self._padded(given.amount).nan_to_num(0, 0)  # [B, N]
        self.mass = self._padded(given.mass)  # [B, N]
        self.positive = self.mass > 0  # [B, N]
        self.slack = NEAR_TIE_TOLERANCE * given.reach[rows]  # [B]
        self.bias_slack = NEAR_TIE_TOLERANCE * self.bias.abs().amax(1).nan_to_num(0, 0, 0)  # [B]
        self.finite = (self.status & int(Status.NON_FINITE | Status.INVALID)) == 0  # [B]
        self.decided = (self.status & _UNDECIDED) == 0  # [B]
        self.near = torch.zeros_like(self.decided)  # [B], filled as sums are compared

        self.logits = self.bias + self.terms.cumsum(1)[:, -1]  # [B, C]
        label = self.logits.nan_to_num().argmax(1)  # [B]
        self.label = label.masked_fill(~self.finite, -1)
        self.own = label[:, None]  # [B, 1]
        self.margins = self.terms.gather(2, self.own[:, None].expand(-1, N, 1)) - self.terms
        self.lead = self.bias.gather(1, self.own) - self.bias  # [B, C], of the label without items
        self.at_start = self.margins.cumsum(1)[:, -1] + self.lead  # [B, C]
        self._judge(self.at_start[:, None], self.amount.cumsum(1)[:, -1:], None)

    def _padded(self, per_item: Tensor) -> Tensor:
        """Lay out what items have, zero where there is none."""
        if not len(per_item):
            return per_item.new_zeros(*self.items.shape, *per_item.shape[1:])
        padded = per_item[self.items]  # [B, N, …]
        real = self.real if padded.ndim == 2 else self.real[:, :, None]
        return padded.where(real, 0)

    def _judge(self, leads: Tensor, amount: Tensor, counts: Tensor | None) -> None:
        """Note near-ties of leads [B, K, C] over survivors that weigh [B, K], where `counts`."""
        rivals = leads.scatter(2, self.own[:, None].expand(-1, leads.shape[1], 1), torch.inf)
        self._judge_rival(rivals.abs().amin(2), amount, counts)

    def _judge_rival(self, lead: Tensor, amount: Tensor, counts: Tensor | None) -> None:
        """Note near-ties of the lead [B, K] over a rival."""
        slack = self.slack[:, None] * amount + self.bias_slack[:, None]  # [B, K]
        near = (lead.abs() < slack) & (amount > 0)
        if counts is not None:
            near &= counts
        self.near |= near.any(1) & self.decided

    def tails(self, per_item: Tensor, order: Tensor, keep: bool = False) -> Tensor:
        """Sum what survivors have [B, N, …] at every point of an order [B, N]: [B, N + 1, …]."""
        wide = per_item.ndim == 3
        index = order[:, :, None].expand(-1, -1, per_item.shape[2]) if wide else order
        ordered = per_item.gather(1, index)  # [B, N, …]
        none = torch.zeros_like(ordered[:, :1])
        if keep:
            return torch.cat([none, ordered.cumsum(1)], 1)
        return torch.cat([ordered.flip(1).cumsum(1).flip(1), none], 1)

    def descending(self, keys: Tensor) -> Tensor:
        """Order items by descending keys [B, N], ties by position, padding last: [B, N]."""
        return keys.masked_fill(~self.real, -torch.inf).argsort(dim=1, descending=True, stable=True)

    def decide(self, leads: Tensor) -> Tensor:
        """Find the class with the least lead [B, K, C] of the label, the lowest on ties."""
        return leads.argmin(2)

    @cached_property
    def alone(self) -> tuple[Tensor, Tensor]:
        """Leads and logits without each item: [B, N, C] both."""

        def others(per_item: Tensor) -> Tensor:
            before = torch.cat([torch.zeros_like(per_item[:, :1]), per_item[:, :-1].cumsum(1)], 1)
            return before + self.tails(per_item, self.places)[:, 1:]

        leads = others(self.margins) + self.lead[:, None]  # [B, N, C]
        self._judge(leads, others(self.amount), self.real)
        return leads, others(self.terms) + self.bias[:, None]

    def singles(self) -> dict[str, Tensor]:
        """Erase every item alone: results [B, N] by name."""
        leads, logits = self.alone
        logits = torch.where(self.decided[:, None, None], logits, self.original[:, None])
        decision = self.decide(leads)  # [B, N]
        flips = (decision != self.own) & self.decided[:, None]
        original = self.original[:, None].expand_as(logits).flatten(0, 1)
        js, kl = _divergences(logits.flatten(0, 1), original)  # [B N] both
        return {
            "flip_label": decision.masked_fill(~flips, -1),
            "js": js.view(decision.shape),
            "kl": kl.view(decision.shape),
            "drop": self._probability(self.original)[:, None] - self._probability(logits),
        }

    @property
    def original(self) -> Tensor:
        """The original logits [B, C], NaN where something is not finite."""
        return self.logits.masked_fill(~self.finite[:, None], torch.nan)

    def _probability(self, logits: Tensor) -> Tensor:
        """Find the label's probability under logits [B, …, C]: [B, …]."""
        own = self.own if logits.ndim == 2 else self.own[:, None].expand(-1, logits.shape[1], 1)
        return logits.softmax(-1).gather(-1, own)[..., 0]

    def order_of(self, kind: RankingKind) -> Tensor:
        """Order the items by a ranking that depends on how they are erased: [B, N]."""
        if kind == RankingKind.MINIMAL:
            return self.minimal[2]
        if kind == RankingKind.GREEDY:
            order = self.greedy(self.places.shape[1])[0] if self.C > 1 else self.places
        else:
            order = self.descending(self._keys(kind))
        return order.where(self.finite[:, None], self.places)

    def _keys(self, kind: RankingKind) -> Tensor:
        """Compute ranking scores [B, N]."""
        if kind in (RankingKind.LEAVE_ONE_OUT, RankingKind.LEAVE_ONE_OUT_DROP):
            name = "js" if kind == RankingKind.LEAVE_ONE_OUT else "drop"
            return self.singles()[name].nan_to_num()
        p = (self.logits - self.logits.gather(1, self.own)).softmax(1)  # [B, C]
        of = self.slopes if kind == RankingKind.GRADIENT else self.terms
        difference = of.gather(2, self.own[:, None].expand(-1, of.shape[1], 1)) - of  # [B, N, C]
        keys = p.gather(1, self.own) * (difference * p[:, None]).sum(2)  # [B, N]
        return keys.nan_to_num()

    def greedy(self, steps: int) -> tuple[Tensor, Tensor]:
        """Take the item that leaves the least lead over any rival, or the least of one output.

        Returns the order [B, N], the rest after `steps` by position, and which steps [B, N] are
        near-ties: the next best item leaves nearly as little. With one rival it is a sort, else a
        pass over the items a step.
        """
        if self.C > 2:
            return self._greedy_by_steps(min(steps, self.places.shape[1]))
        per_item = self.margins.sum(2) if self.C == 2 else self.terms[:, :, 0]  # [B, N]
        order = self.descending(per_item)
        ordered = per_item.gather(1, order)  # [B, N]
        slack = self.slack[:, None] * self.tails(self.amount, order) + self.bias_slack[:, None]
        near = torch.zeros_like(self.real)
        near[:, :-1] = (ordered[:, :-1] - ordered[:, 1:]) < slack[:, :-2]
        near[:, :-1] &= self.real[:, 1:]
        left = torch.arange(order.shape[1], device=order.device) >= steps  # [N]
        rest = order.masked_fill(~left, -1).sort(dim=1).values  # by position
        return order.where(~left, rest), near

    def _greedy_by_steps(self, steps: int) -> tuple[Tensor, Tensor]:
        """Do as `greedy` where the nearest rival may change from step to step."""
        N = self.places.shape[1]
        near = torch.zeros_like(self.real)
        left = self.real.clone()
        rank = self.places.clone()
        # Leads are lowered step by step: a second float64 keeps what rounding drops.
        leads, rest = self.at_start.clone(), torch.zeros_like(self.at_start)
        amount = self.amount.cumsum(1)[:, -1]  # [B]
        for step in range(steps):
            after = (leads[:, None] - self.margins) + rest[:, None]  # [B, N, C]
            after = after.scatter(2, self.own[:, None].expand(-1, N, 1), torch.inf)
            least = after.amin(2).masked_fill(~left, torch.inf)  # [B, N]
            best = least.argmin(1, keepdim=True)  # [B, 1]
            slack = self.slack * amount + self.bias_slack  # [B]
            others = least.scatter(1, best, torch.inf).amin(1)  # [B]
            near[:, step] = others - least.gather(1, best)[:, 0] < slack
            # Where none is left the place of the step, which is padding, stands for it.
            best = best.where(left.any(1, keepdim=True), step)
            rank = rank.scatter(1, best, step - N)
            gone = self.margins.gather(1, best[:, :, None].expand(-1, 1, self.C))[:, 0]  # [B, C]
            lowered = leads - gone
            shift = lowered - leads
            rest = rest + ((leads - (lowered - shift)) + (-gone - shift))
            leads = lowered
            amount = (amount - self.amount.gather(1, best)[:, 0]).clamp(min=0)
            left = left.scatter(1, best, False)
        return rank.argsort(dim=1, stable=True), near

    @cached_property
    def minimal(self) -> tuple[Tensor, Tensor, Tensor]:
        """Find the smallest set that flips: size [B], label [B], order [B, N].

        For a rival the largest margins go first; its own sum starts from the bias.
        """
        N, never = self.places.shape[1], self.places.shape[1] + 1
        size = torch.full_like(self.label, never)
        order = self.places
        k = torch.arange(N + 1, device=size.device)  # [N + 1]
        pick = self.at_start.scatter(1, self.own, torch.inf).argmin(1)  # [B], the runner-up
        tails = []
        for c in range(self.C):
            margin = self.margins[:, :, c]  # [B, N]
            own_order = self.descending(margin.masked_fill(~self.positive, -torch.inf))
            lead = self.tails(margin, own_order) + self.lead[:, c, None]  # [B, N + 1]
            wins = c < self.own  # [B, 1]
            flips = ((lead < 0) | (lead == 0) & wins) & (k >= 1) & (k <= self.length[:, None])
            flips &= (self.own != c) & self.decided[:, None]
            found = torch.where(flips, k, never).amin(1)  # [B]
            order = torch.where(((pick == c) & (size == never))[:, None], own_order, order)
            order = torch.where((found < size)[:, None], own_order, order)
            size = torch.minimum(size, found)
            tails.append((c, lead, self.tails(self.amount, own_order)))
        last = torch.where(size < never, size, self.positive.sum(1))  # [B]
        for c, lead, amount in tails:
            self._judge_rival(lead, amount, (k <= last[:, None]) & (self.own != c))
        alone = self.C == 1
        by_mass = self.descending(self.positive.double())
        order = torch.where(self.decided[:, None] & (not alone), order, by_mass)
        order = torch.where(self.finite[:, None], order, self.places)
        leads = self.tails(self.margins, order) + self.lead[:, None]  # [B, N + 1, C]
        at = size.clamp(max=N)[:, None]  # [B, 1]
        label = self.decide(leads).gather(1, at)[:, 0]
        none = size == never
        return size.masked_fill(none, -1), label.masked_fill(none, -1), order


def zeroed_sweep(given: Terms, kinds: list[int], keep: bool, out: Outputs, budget: int) -> None:
    """Fill every wanted result of a sweep that does not renormalise."""
    minimal, alone = out.wanted("minimal_"), out.wanted("single_")
    for rows in chunks(given.offsets, given.terms.shape[1], budget):
        chunk = Chunk(given, rows)
        own = chunk.items[chunk.real]  # rows of the items
        out.label[rows] = chunk.label
        out.probabilities[rows] = chunk.original.softmax(1)
        if out.logits is not None:
            out.logits[rows] = chunk.original
        for row, kind in enumerate(kinds):
            if kind in ADDITIVE:
                order = chunk.order_of(RankingKind(kind))
            else:
                order = chunk._padded(given.orders[row]).where(chunk.real, chunk.places)
                order = order.where(order >= 0, chunk.places)  # of invalid instances there is none
            if out.order is not None:
                out.order[row, own] = order[chunk.real]
            _prefixes(chunk, order, row, rows, keep, out)
        if alone:
            found = chunk.singles()
            for name, tensor in alone.items():
                tensor[own] = found[name][chunk.real].to(tensor.dtype)
        if minimal:
            for name, found_set in zip(("size", "flip_label", "order"), chunk.minimal, strict=True):
                if name in minimal:
                    at = own if name == "order" else rows
                    minimal[name][at] = found_set[chunk.real] if name == "order" else found_set
        out.status[rows] = chunk.status | chunk.near * int(Status.NEAR_TIE)
    for b in (given.status & int(Status.INVALID)).nonzero()[:, 0].tolist():
        _fill_invalid(given.offsets, out, b)


def _fill_invalid(offsets: Tensor, out: Outputs, b: int) -> None:
    """Write -1 and NaN wherever an instance without meaning has a result."""
    items = slice(int(offsets[b]), int(offsets[b + 1]))
    for line in RESULTS:
        tensor = getattr(out, line.name)
        if tensor is not None and line.name != "status":
            tensor[line.place(b, items)] = -1 if line.dtype == "integer" else torch.nan


def _prefixes(chunk: Chunk, order: Tensor, row: int, rows: slice, keep: bool, out: Outputs) -> None:
    """Erase, or keep, every prefix of an order [B, N] and write what is read off it."""
    N = order.shape[1]
    k = torch.arange(N + 1, device=order.device)  # [N + 1]
    there = k <= chunk.length[:, None]  # [B, N + 1]
    leads = chunk.tails(chunk.margins, order, keep) + chunk.lead[:, None]  # [B, N + 1, C]
    logits = chunk.tails(chunk.terms, order, keep) + chunk.bias[:, None]  # [B, N + 1, C]
    mass = chunk.tails(chunk.mass, order, keep)  # [B, N + 1]
    whole = k == (chunk.length[:, None] if keep else 0)  # [B, N + 1]
    decision = chunk.decide(leads)  # [B, N + 1]
    decision = torch.where(chunk.finite[:, None], decision, logits.nan_to_num().argmax(2))
    decision = decision.where(~(whole & chunk.finite[:, None]), chunk.own)
    logits = torch.where((whole & chunk.finite[:, None])[:, :, None], chunk.logits[:, None], logits)
    wrong = chunk.tails(chunk.bad.double(), order, keep) > 0  # [B, N + 1]
    wrong |= ~chunk.bias.isfinite().all(1, keepdim=True)
    wrong |= (chunk.status & int(Status.INVALID) != 0)[:, None]
    decision = decision.masked_fill(wrong, -1)
    logits = logits.masked_fill(wrong[:, :, None], torch.nan)

    flips = ((decision == chunk.own) == keep) & (k >= 1) & there & chunk.decided[:, None]
    first = torch.where(flips, k, N + 1).amin(1)  # [B]
    never = first > N
    amount = chunk.tails(chunk.amount, order, keep)  # [B, N + 1]
    chunk._judge(leads, amount, there & (k <= first[:, None]))
    at = first.clamp(max=N)[:, None]  # [B, 1]
    out.first_flip[row, rows] = first.masked_fill(never, -1)
    out.flip_label[row, rows] = decision.gather(1, at)[:, 0].masked_fill(never, -1)
    removed = chunk.tails(chunk.mass, order, not keep).gather(1, at)[:, 0]
    out.removed_mass[row, rows] = removed.masked_fill(never, torch.nan)

    instances = torch.arange(rows.start, rows.stop, device=order.device)
    points = ((chunk.first + instances)[:, None] + k)[there]  # rows of the curves
    original = chunk.original[:, None].expand_as(logits)[there]  # [P', C]
    label = chunk.label[:, None].expand_as(there)[there]  # [P']
    if out.curve_js is not None or out.curve_kl is not None:
        js, kl = _divergences(logits[there], original)  # [P'] both
    for name, tensor in out.wanted("curve_").items():
        if name in ("js", "kl"):
            tensor[row, points] = (js if name == "js" else kl).to(tensor.dtype)
        elif name in CURVES:
            tensor[row, points] = CURVES[name](logits[there], original, label).to(tensor.dtype)
        else:
            tensor[row, points] = (mass if name == "mass" else decision)[there]


def zeroed_greedy(
    given: Terms, steps: int, until_flip: bool, out: GreedyOutputs, budget: int
) -> tuple[Tensor, Tensor]:
    """Fill the greedy orders, and give the labels and statuses [B]."""
    label, status = given.status.clone(), given.status.clone()
    for rows in chunks(given.offsets, given.terms.shape[1], budget):
        chunk = Chunk(given, rows)
        N = chunk.places.shape[1]
        order, near = chunk.greedy(N if steps < 0 else steps)
        k = torch.arange(N + 1, device=order.device)  # [N + 1]
        removed = chunk.length.clamp(max=N if steps < 0 else steps)  # [B]
        if until_flip:
            if chunk.C == 1:
                flips = (chunk.tails(chunk.terms, order) + chunk.bias[:, None])[:, :, 0] < 0
            else:
                leads = chunk.tails(chunk.margins, order) + chunk.lead[:, None]  # [B, N + 1, C]
                flips = chunk.decide(leads) != chunk.own
            removed = torch.minimum(removed, torch.where(flips & (k >= 1), k, N + 1).amin(1))
        certain = torch.where(near, k[:-1], N + 1).amin(1)  # [B]
        rest = order.masked_fill(k[:-1] < removed[:, None], -1).sort(dim=1).values
        order = order.where(k[:-1] < removed[:, None], rest)
        there = chunk.finite & (chunk.length > 0)  # [B]
        order = order.where(there[:, None], chunk.places)
        out.order[chunk.items[chunk.real]] = order[chunk.real]
        out.removed[rows] = removed.masked_fill(~there, -1)
        out.certain[rows] = torch.minimum(certain, removed).masked_fill(~there, -1)
        label[rows] = chunk.label
        status[rows] = chunk.status | chunk.near * int(Status.NEAR_TIE)
    return label, status
