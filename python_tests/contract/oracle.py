"""The engine's contract in float64 and nothing else: erase a set, renormalise, look.

This file is written from the contract alone and shares no code with the package, so that it can
judge the reference backend as well as the fast ones. Everything is for one instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

EMPTY, SINGLE, ZERO_MASS, NON_FINITE, UNDERFLOW, NEAR_TIE, INVALID = (1 << i for i in range(7))
TOLERANCE = 3e-6  # of a compared sum, relative to mass and scale
LITERAL_ITEMS = 48  # up to this length every prefix is a literal erasure of one set
Wide = np.longdouble


@dataclass(frozen=True)
class Points:
    """What is left after each of `P` erasures."""

    valid: np.ndarray  # [P] bool: no bad item survives
    alive: np.ndarray  # [P] bool: some mass survives
    sums: np.ndarray  # [P, C] sum of a (s + b) over the survivors, up to a positive factor
    scale: np.ndarray  # [P] sum of a over the survivors, up to the same factor
    logits: np.ndarray  # [P, C]
    mass: np.ndarray  # [P] surviving share of the original weights

    @staticmethod
    def join(parts: list[Points]) -> Points:
        names = ("valid", "alive", "sums", "scale", "logits", "mass")
        return Points(*(np.stack([getattr(p, name) for p in parts]) for name in names))


@dataclass(frozen=True)
class Instance:
    """One classified input."""

    values: np.ndarray  # [n, H, D] float64
    attention: np.ndarray  # [n, H] float64
    is_scores: bool
    head_weight: np.ndarray  # [C, H, D] float64
    bias: np.ndarray  # [C] float64
    identity: int = 0
    narrow: bool = True  # contributions are float32 numbers: an overflow there is non-finite
    known: dict[object, Points] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def classes(self) -> int:
        return len(self.bias)

    @property
    def heads(self) -> int:
        return self.values.shape[1]

    @cached_property
    def contributions(self) -> np.ndarray:  # [n, H, C]
        with np.errstate(all="ignore"):
            values = self.values.transpose(1, 0, 2)  # [H, n, D]
            return (values @ self.head_weight.transpose(1, 2, 0)).transpose(1, 0, 2)

    @cached_property
    def bad(self) -> np.ndarray:  # [n] bool
        with np.errstate(all="ignore"):
            s = self.contributions.astype(np.float32) if self.narrow else self.contributions
        attention = ~np.isfinite(self.attention)
        if self.is_scores:
            attention &= self.attention != -np.inf
        return ~np.isfinite(s).all((1, 2)) | attention.any(1)

    @cached_property
    def clean(self) -> np.ndarray:  # [n, H, C] contributions with bad items at zero
        return np.where(self.bad[:, None, None], 0.0, self.contributions)

    @cached_property
    def span(self) -> float:
        spans = [0.0]
        if self.is_scores:
            for column in self.attention.T:
                finite = column[np.isfinite(column)]
                if len(finite):
                    spans.append(float(finite.max() - finite.min()))
        return max(spans)

    @cached_property
    def weights(self) -> np.ndarray:  # [n, H] normalised, NaN where the item's own is not finite
        a = np.full(self.attention.shape, np.nan, Wide)
        for h, column in enumerate(self.attention.T):
            own = np.isfinite(column)
            if self.is_scores:
                a[column == -np.inf, h] = 0
                if own.any():
                    e = np.exp(column[own].astype(Wide) - column[own].max())
                    a[own, h] = e / e.sum()
            elif own.any():
                total = column[own].astype(Wide).sum()
                a[own, h] = column[own] / total if total > 0 else 0
        return a

    @cached_property
    def positive(self) -> np.ndarray:  # [n] bool: the item has weight
        if self.is_scores:
            return (self.attention > -np.inf).any(1)
        return (self.attention > 0).any(1)

    @cached_property
    def mass(self) -> np.ndarray:  # [n] the mean weight over the heads
        return np.nan_to_num(self.weights, nan=0.0).mean(1)

    @cached_property
    def bias_bad(self) -> bool:
        return not np.isfinite(self.bias).all()

    @cached_property
    def status(self) -> int:
        """Every flag but NEAR_TIE, which depends on what is compared."""
        flags = EMPTY * (self.n == 0) | SINGLE * (self.n == 1)
        if self.n and not self.positive.any() and not self.bad.any():
            flags |= ZERO_MASS
        if self.bad.any() or self.bias_bad:
            flags |= NON_FINITE
        if self.span > 600:
            flags |= UNDERFLOW
        return flags

    @cached_property
    def norm(self) -> float:
        """The scale of a near-tie per unit of surviving mass."""
        h = np.sqrt((self.values**2).sum((1, 2))).max(initial=0.0)
        w = np.sqrt((self.head_weight**2).sum((1, 2))).max(initial=0.0)
        return float(h * w + np.abs(self.bias).max(initial=0.0))

    @cached_property
    def magnitude(self) -> float:
        """The largest sum of absolute terms of a contribution, and the bias."""
        with np.errstate(all="ignore"):
            terms = np.abs(self.values).transpose(1, 0, 2) @ np.abs(self.head_weight).transpose(
                1, 2, 0
            )
        finite = terms[np.isfinite(terms)]
        return float(finite.max(initial=0.0) + np.abs(self.bias).max(initial=0.0))

    # One set at a time.

    def survive(self, survivors: np.ndarray) -> Points:
        """The state with only `survivors` [m] (positions, in any order) left."""
        survivors = np.sort(np.asarray(survivors, np.int64))
        valid = not (self.bad[survivors].any() or self.bias_bad)
        good = survivors[~self.bad[survivors]]
        z = self.bias.astype(Wide)
        sums, scale, alive = z.copy(), Wide(1), False
        for h in range(self.heads):
            column = self.attention[good, h].astype(Wide)
            if self.is_scores:
                top = column.max(initial=-np.inf)
                a = np.exp(column - top) if top > -np.inf else np.zeros(len(column), Wide)
            else:
                a = column
            total = a.sum()
            if total > 0:
                pooled = (a[:, None] * self.clean[good, h]).sum(0)  # [C]
                z = z + pooled / total
                if self.heads == 1:
                    sums, scale = (a[:, None] * (self.clean[good, h] + self.bias)).sum(0), total
                alive = True
        if self.heads > 1:
            sums = z
        return Points(
            np.bool_(valid), np.bool_(alive), sums, scale, z, np.asarray(self.mass[survivors].sum())
        )

    @cached_property
    def original(self) -> Points:
        return self.survive(np.arange(self.n))

    @cached_property
    def label(self) -> int:
        return self.decide(self.original)

    def decide(self, point: Points) -> int:
        """The class of one state: argmax, lowest on ties, -1 where it is not valid."""
        if not point.valid:
            return -1
        return int(np.argmax(point.sums if point.alive else self.bias))

    # Many sets.

    def prefixes(self, order: np.ndarray, keep: bool = False, literal: bool = False) -> Points:
        """The states of points 0 … n of a ranking."""
        key = (order.tobytes(), keep, literal)
        if key not in self.known:
            self.known[key] = self._prefixes(order, keep, literal)
        return self.known[key]

    def _prefixes(self, order: np.ndarray, keep: bool, literal: bool) -> Points:
        if literal or self.n <= LITERAL_ITEMS or self.status & UNDERFLOW or self.heads > 1:
            cuts = range(self.n + 1)
            return Points.join([self.survive(order[:k] if keep else order[k:]) for k in cuts])
        if keep:
            order = order[::-1]
        bad = self.bad[order]
        a = np.where(bad, 0, self.weights[order, 0])
        tails = _tails(
            np.concatenate([a[:, None], a[:, None] * (self.clean[order, 0] + self.bias)], 1)
        )
        scale, sums = tails[:, 0], tails[:, 1:]
        alive = np.append(_tails((a > 0).astype(np.int64))[:-1] > 0, False)
        with np.errstate(all="ignore"):
            z = np.where(alive[:, None], sums / np.where(alive, scale, 1)[:, None], self.bias)
        valid = (_tails(bad.astype(np.int64)) == 0) & (not self.bias_bad)
        points = Points(valid, alive, sums, scale, z, _tails(self.mass[order]))
        if keep:
            points = Points(*(x[::-1] for x in vars(points).values()))
        return points

    @cached_property
    def without_each(self) -> Points:
        """The states with one item left out, for every item."""
        if self.n <= LITERAL_ITEMS or self.status & UNDERFLOW or self.heads > 1:
            everything = np.arange(self.n)
            if not self.n:
                return Points(*(x[None][:0] for x in vars(self.original).values()))
            return Points.join([self.survive(np.delete(everything, i)) for i in everything])
        a = np.where(self.bad, 0, self.weights[:, 0])
        terms = np.concatenate([a[:, None], a[:, None] * (self.clean[:, 0] + self.bias)], 1)
        others = _tails(terms)[1:] + _tails(terms[::-1])[::-1][:-1]
        count = (a > 0).sum() - (a > 0)
        alive, scale, sums = count > 0, others[:, 0], others[:, 1:]
        with np.errstate(all="ignore"):
            z = np.where(alive[:, None], sums / np.where(alive, scale, 1)[:, None], self.bias)
        valid = (self.bad.sum() - self.bad == 0) & (not self.bias_bad)
        return Points(valid, alive, sums, scale, z, self.mass.sum() - self.mass)

    def decisions(self, points: Points) -> np.ndarray:  # [P]
        inside = np.argmax(points.sums, -1)
        decision = np.where(points.alive, inside, np.argmax(np.nan_to_num(self.bias)))
        return np.where(points.valid, decision, -1)

    def clear(self, points: Points) -> np.ndarray:
        """How far the decision leads every other class, in units of the tolerance: [P]."""
        if self.classes == 1:
            return np.full(len(points.sums), np.inf)
        with np.errstate(all="ignore"):
            gap = np.sort(points.sums.max(1, keepdims=True) - points.sums, 1)[:, 1]
            ratio = gap / (TOLERANCE * points.scale * self.norm)
        return np.where(points.alive, np.nan_to_num(ratio, nan=0.0), np.inf)

    def ratios(self, points: Points) -> np.ndarray:
        """How near to zero the compared sums come, in units of the tolerance: [P], inf if none."""
        with np.errstate(all="ignore"):
            gap = np.abs(points.sums[:, self.label, None] - points.sums)
            gap[:, self.label] = np.inf
            ratio = gap.min(1) / (TOLERANCE * points.scale * self.norm)
        # Without a scale nothing is nearer to zero than a tolerance of zero.
        return np.where(points.alive & (self.norm > 0), ratio, np.inf)

    @property
    def decided(self) -> bool:
        """Whether flips are looked for at all."""
        return not self.status & (EMPTY | ZERO_MASS | NON_FINITE)

    @cached_property
    def minimal(self) -> Minimal:
        """The smallest set whose erasure flips, by the exchange argument of the contract."""
        y, everything = self.label, np.arange(self.n)
        if not self.decided:
            return Minimal(-1, -1, -1, everything[:0], np.inf, np.inf)
        positive = everything[self.positive]
        best, winner, chosen = None, -1, None
        near: list[np.ndarray] = []
        for c in range(self.classes):
            if c == y:
                continue
            order = self.by_margin(c)
            ratio = np.full(len(order), np.inf)
            size = None
            if self.status & UNDERFLOW:
                for k in range(len(order)):
                    point = self.survive(np.setdiff1d(everything, order[:k]))
                    gap = point.sums[y] - point.sums[c]
                    ratio[k] = abs(gap) / (TOLERANCE * point.scale * (self.norm or 1))
                    if k and (gap < 0 or (gap == 0 and c < y)):
                        size = k
                        break
            else:
                gap = _tails(self.margins(c)[order])[:-1]
                scale = _tails(self.weights[order, 0])[:-1]
                ratio = np.asarray(np.abs(gap) / (TOLERANCE * scale * (self.norm or 1)), float)
                met = (gap < 0) | ((gap == 0) & (c < y))
                met[:1] = False
                if met.any():
                    size = int(met.argmax())
                    ratio[size + 1 :] = np.inf
            if not self.norm:
                ratio[:] = np.inf
            near.append(ratio)
            if size is not None and (best is None or size < best):
                best, winner, chosen = size, c, order[:size]
        if np.argmax(self.bias) != y and len(positive) and (best is None or len(positive) < best):
            best, winner, chosen = len(positive), -1, positive
        must = min(
            (float(r[: (best or len(r)) + 1].min(initial=np.inf)) for r in near), default=np.inf
        )
        may = min((float(r.min(initial=np.inf)) for r in near), default=np.inf)
        if best is None:
            return Minimal(-1, -1, -1, everything[:0], must, may)
        after = self.survive(np.setdiff1d(everything, chosen))
        return Minimal(best, self.decide(after), winner, chosen, must, may)

    def margins(self, c: int) -> np.ndarray:  # [n], one head
        y = self.label
        s = self.clean[:, 0].astype(Wide)
        return self.weights[:, 0] * ((s[:, y] + self.bias[y]) - (s[:, c] + self.bias[c]))

    def by_margin(self, c: int) -> np.ndarray:
        """The items of positive weight, largest margin against `c` first, ties by position."""
        y, s = self.label, self.clean[:, 0]
        d = (s[:, y] + self.bias[y]) - (s[:, c] + self.bias[c])
        positive = np.flatnonzero(self.positive)
        if self.status & UNDERFLOW:
            with np.errstate(all="ignore"):
                size = self.attention[:, 0] + np.log(np.abs(d))
            key = [(-np.sign(d[i]), -size[i] * np.sign(d[i]) if d[i] else 0.0, i) for i in positive]
            return np.array([i for *_, i in sorted(key)], np.int64)
        m = self.margins(c)[positive]
        return positive[np.argsort(-m, kind="stable")]

    def minimal_by_search(self) -> int:
        """The smallest flipping set among all subsets of the items."""
        if not self.decided:
            return -1
        everything = np.arange(self.n)
        for size in range(1, self.n + 1):
            for erased in combinations(range(self.n), size):
                if self.decide(self.survive(np.delete(everything, erased))) != self.label:
                    return size
        return -1

    # Rankings.

    def keys(self, name: str) -> np.ndarray | None:  # [n] float64
        """The ranking score of a built-in ranking, None where it is not one number an item."""
        if name == "attention":
            if self.is_scores and self.heads == 1:
                return self.attention[:, 0]
            own = np.isfinite(self.attention)
            return np.where(own, self.weights, self.attention).mean(1).astype(float)
        if name in ("gradient", "product", "renormalized_gradient"):
            if self.status & NON_FINITE:
                return np.full(self.n, np.nan)
            y, z = self.label, self.original.logits
            with np.errstate(all="ignore"):
                odds = np.exp(z - z[y])
            odds[y] = 0
            p_y = 1 / (1 + odds.sum())
            s = self.clean.astype(Wide)
            g = p_y * p_y * ((s[:, :, y, None] - s) @ odds)  # [n, H]
            if name == "gradient":
                return g.sum(1).astype(float)
            if name == "product":
                return (self.weights * g).sum(1).astype(float)
            mean = np.stack([self._mean_of_others(g[:, h], h) for h in range(self.heads)], 1)
            return (self.weights * (g - mean)).sum(1).astype(float)
        if name in ("leave_one_out", "leave_one_out_drop"):
            if self.status & NON_FINITE:
                return np.full(self.n, np.nan)
            _, js, _, prob = divergences(self.original.logits, self.without_each.logits, self.label)
            if self.status & ZERO_MASS:
                return np.zeros(self.n)
            if name == "leave_one_out":
                return js
            return (
                divergences(self.original.logits, self.original.logits[None], self.label)[3] - prob
            )
        return None

    def key_noise(self, name: str, slack: float) -> float:
        """How far contributions off by `slack` move the keys of a ranking."""
        if name == "attention" or self.status & NON_FINITE or not self.positive.any():
            return 0.0
        _, _, _, prob = divergences(self.original.logits, self.original.logits[None], self.label)
        spread = float(prob[0] * (1 - prob[0]))
        heavy = float(np.nan_to_num(self.weights, nan=0.0).max())
        if name == "gradient":
            return 4 * slack * self.heads * spread
        if name in ("product", "renormalized_gradient"):
            return 4 * slack * self.heads * spread * heavy
        leverage = min(1.0, heavy / (1 - heavy)) if heavy < 1 else 1.0
        if name == "leave_one_out_drop":
            return 4 * slack * spread * leverage
        largest = float(np.max(self.keys("leave_one_out"), initial=0.0))
        return 4 * slack * leverage * largest**0.5

    def _mean_of_others(self, g: np.ndarray, h: int) -> np.ndarray:  # [n]
        if not self.status & UNDERFLOW:
            both = np.stack([self.weights[:, h], self.weights[:, h] * g], 1)
            total, sums = (_tails(both)[1:] + _tails(both[::-1])[::-1][:-1]).T
            return np.where(total > 0, sums / np.where(total > 0, total, 1), 0)
        mean = np.zeros(self.n, Wide)
        for i in range(self.n):
            others = np.delete(np.arange(self.n), i)
            a = self._relative(others, h)
            if a.sum() > 0:
                mean[i] = (a * g[others]).sum() / a.sum()
        return mean

    def _relative(self, items: np.ndarray, h: int) -> np.ndarray:
        column = self.attention[items, h].astype(Wide)
        if not self.is_scores:
            return column
        top = column.max(initial=-np.inf)
        return np.exp(column - top) if top > -np.inf else np.zeros(len(column), Wide)

    def random_order(self, seed: int, order: int) -> np.ndarray:
        """The documented generator, with Python's integers."""
        stream = _mix(_mix(_mix(seed + _GAMMA) + order + _GAMMA) + self.identity + _GAMMA)
        keys = [_mix(stream + (i + 1) * _GAMMA) for i in range(self.n)]
        return np.array(sorted(range(self.n), key=lambda i: (-keys[i], i)), np.int64)

    def greedy_excess(self, order: np.ndarray) -> float:
        """How much worse than the best step the worst step of a greedy order is (0 is greedy)."""
        left, worst = list(range(self.n)), 0.0
        rivals = [c for c in range(self.classes) if c != self.label]
        for chosen in order:
            lead = {}
            for i in left:
                z = self.survive(np.array([j for j in left if j != i], np.int64)).logits
                lead[i] = float((z[self.label] - z[rivals]).min(initial=np.inf))
            best = min(lead.values())
            if lead[int(chosen)] != best:
                worst = max(worst, (lead[int(chosen)] - best) / max(map(abs, lead.values())))
            left.remove(int(chosen))
        return worst


@dataclass(frozen=True)
class Minimal:
    size: int
    flip_label: int
    winner: int  # the class of the margins; -1 for the set of everything and for none
    chosen: np.ndarray
    must: float  # smallest ratio of a sum that has to be compared
    may: float  # smallest ratio of a sum that a backend may have compared


_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _tails(x: np.ndarray) -> np.ndarray:
    """Sums over the rows from `k` on, `k = 0 … n`."""
    zero = np.zeros((1, *x.shape[1:]), x.dtype)
    return np.concatenate([np.cumsum(x[::-1], 0)[::-1], zero])


def log_softmax(z: np.ndarray) -> np.ndarray:
    shifted = z - z.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def divergences(
    z0: np.ndarray, z: np.ndarray, label: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities [C], JS [P], KL(new ‖ original) [P] and label probability [P]."""
    with np.errstate(all="ignore"):
        lp, lq = log_softmax(z.astype(Wide)), log_softmax(z0.astype(Wide))
        lq = np.broadcast_to(lq, lp.shape)
        lm = np.logaddexp(lp, lq) - np.log(Wide(2))
        p, q = np.exp(lp), np.exp(lq)
        js = (np.where(p > 0, p * (lp - lm), 0) + np.where(q > 0, q * (lq - lm), 0)).sum(-1) / 2
        kl = np.where(p > 0, p * (lp - lq), 0).sum(-1)
    return (
        q[0].astype(float) if len(q) else np.exp(log_softmax(z0.astype(float))),
        np.clip(js, 0, None).astype(float),
        np.clip(kl, 0, None).astype(float),
        p[:, label].astype(float),
    )


@dataclass(frozen=True)
class Flip:
    """The results of one ranking."""

    first_flip: int
    flip_label: int
    removed_mass: float
    must: float  # smallest ratio of a sum that has to be compared
    may: float


def first_flip(instance: Instance, points: Points, keep: bool) -> Flip:
    """The first flip of one ranking, from the states of its points."""
    if not instance.decided:
        return Flip(-1, -1, float("nan"), np.inf, np.inf)
    y, decisions = instance.label, instance.decisions(points)
    if keep:
        decisions[-1] = y
        hits = np.flatnonzero(decisions[1:] == y)
    else:
        hits = np.flatnonzero(decisions[1:] != y)
    ratios = np.asarray(instance.ratios(points), float)
    k = int(hits[0]) + 1 if len(hits) else -1
    compared = ratios[1 : k + 1] if k > 0 else ratios[1:]
    origin = ratios[-1] if keep else ratios[0]
    must = min(float(compared.min(initial=np.inf)), float(origin))
    may = float(ratios.min(initial=np.inf))
    if k < 0:
        return Flip(-1, -1, float("nan"), must, may)
    label = y if keep else int(decisions[k])
    removed = float(instance.mass.sum() - points.mass[k])
    return Flip(k, label, removed, must, may if keep else must)
