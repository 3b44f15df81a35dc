"""Flipping sets of several attention heads: small ones by search, and how small none can be.

The margin over a rival is `Σ_h N_h / Z_h + β`, with `N_h = Σ_S a_h m_h` and `Z_h = Σ_S a_h` over
survivors `S`: a sum of ratios, of which no sort finds the least. A set is found by greedy removal
and by sorting what items add near a set at hand; what any removal of `k` items can reach is bounded
by each head's own best and, tighter, on boxes of the heads' masses. Few sets are all tried.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

# To rule out a number of items: numbers of all sets or boxes at a time, the most boxes, how often
# they are halved, and steps towards the best bound of each.
_NUMBERS = 2**19
_BOXES = 256
_DEPTH = 12
_STEPS = 6


@dataclass
class FlipSet:
    """A set that flips, and a number of items below which none does."""

    chosen: list[int]  # positions, empty where none was found
    flip_label: int  # -1 where none was found
    lower_bound: int  # -1 where it is proved that none flips
    near_tie: bool


class Heads:
    """One instance. Axes: `n` items, `H` heads, `K` rivals of the label, `M` sets or boxes."""

    def __init__(
        self, weights: Tensor, contributions: Tensor, bias: Tensor, label: int, slack: float
    ) -> None:
        self.weights = weights  # [n, H], float64, 0 or more
        self.contributions = contributions  # [n, H, C], float64
        self.bias, self.label, self.slack = bias, label, slack  # [C]
        self.rivals = [c for c in range(len(bias)) if c != label]
        own = contributions[:, :, label, None]  # [n, H, 1]
        self.margins = (own - contributions[:, :, self.rivals]).permute(2, 0, 1)  # [K, n, H]
        self.lead = bias[label] - bias[self.rivals]  # [K]
        self.wins = torch.tensor([c < label for c in self.rivals])  # [K], on ties
        self.positive = (weights > 0).any(1)  # [n]
        self.total = int(self.positive.sum())

    def leads(self, kept: Tensor) -> Tensor:
        """Compute the label's margin over each rival with some items kept: [M, n] to [M, K]."""
        weights = kept.double()[:, :, None] * self.weights  # [M, n, H]
        mass = weights.sum(1)  # [M, H]
        sums = torch.einsum("mnh,knh->mkh", weights, self.margins)  # [M, K, H]
        return self.lead + _ratio(sums, mass[:, None]).sum(2)

    def flips(self, leads: Tensor) -> Tensor:
        """Say which leads [M, K] are lost, to some rival: [M]."""
        return ((leads < 0) | (leads == 0) & self.wins).any(1)

    def near(self, kept: Tensor) -> bool:
        """Say whether a lead of some sets [M, n] that have mass is a near-tie."""
        return bool((self.leads(kept).abs() < self.slack)[kept.any(1)].any())

    def greedy(self) -> tuple[Tensor, bool, bool]:
        """Remove for each rival what lowers its margin most, until some set flips.

        Returns the items in that order [K, k], whether the last step flips, and whether some lead
        was a near-tie.
        """
        kept = self.positive.repeat(len(self.rivals), 1)  # [K, n]
        gone = list[Tensor]()
        found = near = False
        while len(gone) < self.total and not found:
            weights = kept[:, :, None] * self.weights  # [K, n, H]
            both = torch.cat([weights, weights * self.margins], 2)  # [K, n, 2H]
            before = torch.cat([torch.zeros_like(both[:, :1]), both[:, :-1].cumsum(1)], 1)
            after = torch.cat([both[:, 1:].flip(1).cumsum(1).flip(1), before[:, :1]], 1)
            mass, sums = (before + after).chunk(2, 2)  # [K, n, H], without each item
            left = _ratio(sums, mass).sum(2).masked_fill(~kept, torch.inf)  # [K, n]
            gone.append(left.argmin(1, keepdim=True))
            kept = kept.scatter(1, gone[-1], False)
            found = bool(self.flips(self.leads(kept)).any())
            near |= self.near(kept)
        return torch.cat(gone, 1), found, near

    def without(self, gone: Tensor) -> Tensor:
        """Mark what is kept where items [M, k] are removed: [M, n]."""
        return self.positive.repeat(len(gone), 1).scatter(1, gone, False)

    def sorted_sets(self, k: int, starts: Tensor) -> Tensor:
        """Improve a set for each rival by sorting what items add near it: [K, n] kept to [K, n]."""
        kept = starts
        best, least = kept, torch.full((len(kept),), torch.inf, dtype=torch.float64)
        for _ in range(10):
            weights = kept[:, :, None] * self.weights  # [K, n, H]
            mass = weights.sum(1, keepdim=True)  # [K, 1, H]
            mean = _ratio((weights * self.margins).sum(1, keepdim=True), mass)  # [K, 1, H]
            lead = self.lead + mean.sum((1, 2))  # [K]
            better = lead < least
            if not bool(better.any()):
                break
            best = torch.where(better[:, None], kept, best)
            least = torch.minimum(least, lead)
            adds = _ratio(self.weights * (self.margins - mean), mass).sum(2)  # [K, n]
            gone = adds.masked_fill(~self.positive, -torch.inf).topk(k, 1).indices  # [K, k]
            kept = self.without(gone)
        return best

    def every_set(self, k: int) -> Tensor | None:
        """List what is kept where any `k` items are removed, if they are few: [M, n]."""
        count = math.comb(self.total, k)
        if count * self.weights.numel() > _NUMBERS:
            return None
        places = self.positive.nonzero()[:, 0]  # [total]
        # torch.combinations lays out total^k numbers first, too many where nearly all are removed.
        sets = list(itertools.combinations(places.tolist(), k))
        return self.without(torch.tensor(sets, dtype=torch.int64).view(count, k))

    def none_of(self, k: int) -> bool:
        """Prove that no removal of `k` items or fewer flips; False where that is not known."""
        return all(self._none_for(rival, k) for rival in range(len(self.rivals)))

    def _none_for(self, rival: int, k: int) -> bool:
        """Prove that the margin over a rival stays."""
        weights, margins, beta = self.weights, self.margins[rival], float(self.lead[rival])
        means = [_least_mean(w, m, k) for w, m in zip(weights.T, margins.T, strict=True)]  # H
        if beta + float(torch.stack(means).sum()) > self.slack:
            return True
        # Where a head's survivors weigh between `low` and `high`, an item of margin m adds at least
        # the lesser of a (m - t) / low and a (m - t) / high beside t, whatever t is.
        low = weights.sort(0).values[: max(0, len(weights) - k)].sum(0)[None]  # [M, H]
        high = weights.sum(0)[None]  # [1, H]
        if bool((low <= 1e-6 * high).any()):  # rounding would be no smaller than the tolerance
            return False
        t = _ratio((weights * margins).sum(0), weights.sum(0))[None]  # [1, H]
        boxes = min(_BOXES, max(8, _NUMBERS // weights.numel()))
        for _ in range(_DEPTH):
            bound, t = self._best_bound(margins, beta, k, low, high, t)  # [M], [M, H]
            # A set that is kept and weighs what the box says is a set that flips, or nearly.
            open_boxes = bound <= self.slack  # [M]
            low, high, t = low[open_boxes], high[open_boxes], t[open_boxes].repeat(2, 1)
            if not len(low):
                return True
            if 2 * len(low) > boxes:
                return False
            widest = (high / low).argmax(1, keepdim=True)  # [M, 1]
            middle = (low * high).sqrt()
            low, high = (
                torch.cat([low, low.scatter(1, widest, middle.gather(1, widest))]),
                torch.cat([high.scatter(1, widest, middle.gather(1, widest)), high]),
            )
        return False

    def _best_bound(
        self, margins: Tensor, beta: float, k: int, low: Tensor, high: Tensor, t: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Bound the margin from below where survivors weigh `low` to `high` [M, H]: [M].

        Every `t` [M, H] gives a bound; from the given one some subgradient steps go up, of the
        length that would bring it above zero. Returns the best of each box and its `t`.
        """
        best, best_t = torch.full((len(low),), -torch.inf, dtype=torch.float64), t
        for _ in range(_STEPS):
            apart = self.weights * (margins - t[:, None])  # [M, n, H]
            below, above = apart / low[:, None], apart / high[:, None]
            least = torch.minimum(below, above).sum(2)  # [M, n]
            gone = least.topk(min(k, least.shape[1]), 1)
            removed = gone.values.clamp(min=0).sum(1)  # [M]
            bound = beta + t.sum(1) + least.sum(1) - removed  # [M]
            better = bound > best
            best = torch.where(better, bound, best)
            best_t = torch.where(better[:, None], t, best_t)
            if bool((best > self.slack).all()):
                break
            divisor = torch.where(below < above, low[:, None], high[:, None])  # [M, n, H]
            share = self.weights / divisor
            lost = share.gather(1, gone.indices[:, :, None].expand(-1, -1, share.shape[2]))
            lost = (lost * (gone.values > 0)[:, :, None]).sum(1)
            slope = 1 - (share.sum(1) - lost)  # [M, H]
            length = (2 * self.slack - bound).clamp(min=0) / slope.square().sum(1).clamp(min=1e-30)
            t = t + length[:, None] * slope
        return best, best_t


def _ratio(sums: Tensor, mass: Tensor) -> Tensor:
    """Divide, 0 where there is no mass."""
    return torch.where(mass > 0, sums / mass, torch.zeros_like(sums))


def _least_mean(weights: Tensor, margins: Tensor, k: int) -> Tensor:
    """Find the least weighted mean with `k` items removed or fewer: [n] and [n] to a number.

    Dinkelbach's iteration over the sets of a size; removing the largest member never raises a mean,
    so that as few are kept as may be. A head that can lose all its mass can come to zero as well.
    """
    weights, margins = weights[weights > 0], margins[weights > 0]
    n = len(weights)
    if not n:
        return weights.new_zeros(())
    kept = max(1, n - k)
    mean = weights.new_tensor(torch.inf)
    least = (weights * margins).sum() / weights.sum()
    while bool(least < mean):
        mean = least
        chosen = (weights * (margins - mean)).topk(kept, largest=False).indices
        least = (weights[chosen] * margins[chosen]).sum() / weights[chosen].sum()
    # Where the kept may weigh next to nothing, rounding of the rest hides what they reach.
    rounding = 4 * n * torch.finfo(torch.float64).eps * (weights * margins).abs().amax()
    mean = torch.minimum(mean, least) - rounding / weights.sort().values[:kept].sum()
    mean = torch.maximum(mean, margins.amin())
    return torch.minimum(mean, torch.zeros_like(mean)) if k >= n else mean


def smallest_flip(one: Heads) -> FlipSet:
    """Search a small set that flips, and prove how small none can be."""
    if not one.rivals or not one.total:
        return FlipSet([], -1, -1, False)
    path, found, near = one.greedy()  # [K, k]
    sets = one.without(path)  # [K, n]
    kept = sets[int(one.flips(one.leads(sets)).long().argmax())]  # [n]
    most = path.shape[1] if found else one.total + 1
    # The largest number of items of which it is proved that they do not suffice.
    none, some = 0, most
    while none + 1 < some:
        middle = (none + some) // 2
        none, some = (middle, some) if one.none_of(middle) else (none, middle)
    for k in range(none + 1, most):
        sets = one.sorted_sets(k, one.without(path[:, :k]))
        every = one.every_set(k)
        if every is not None:
            sets = torch.cat([sets, every])
            near |= one.near(every)
        own = one.flips(one.leads(sets))  # [M]
        if bool(own.any()):
            kept, found = sets[int(own.long().argmax())], True
            break
        if every is not None and none == k - 1:
            none = k
    leads = one.leads(kept[None])  # [1, K]
    if not found:
        return FlipSet([], -1, -1 if none == one.total else none + 1, near)
    near |= one.near(kept[None])
    full = torch.zeros(len(one.bias), dtype=torch.float64)  # the label's lead over itself is 0
    full[one.rivals] = leads[0]
    chosen = (one.positive & ~kept).nonzero()[:, 0].tolist()
    return FlipSet(chosen, int(full.argmin()), none + 1, near)
