"""What every subset of a small instance's items, or groups of items, gives: the oracle of sweeps
that erase in another way than one by one with renormalisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fastattnerase as fae
from contract.subsets import Small, decided, every_subset

RANKINGS = ["attention", "product", "greedy"]


@dataclass(frozen=True)
class Game:
    """The units that are erased, and the logits of every set of them that is kept.

    Bit i of a row says whether unit i is kept; the last row keeps all.
    """

    mass: np.ndarray  # [n], attention of each unit
    logits: np.ndarray  # [2^n, C]
    terms: np.ndarray  # [n, C], what each unit adds to the pooled logits when all are there
    total: float = 1.0  # what masses are shares of

    @property
    def n(self) -> int:
        return len(self.mass)

    @property
    def label(self) -> int:
        return int(self.logits[-1].argmax())

    @property
    def removed(self) -> np.ndarray:  # [2^n], units of positive mass that are erased
        return (~every_subset(self.n) & (self.mass > 0)).sum(1)


def of_groups(one: Small, ids: np.ndarray) -> Game:
    """Erase the items of each number together, in the order in which the numbers come first."""
    names = list(dict.fromkeys(ids.tolist()))
    member = np.array([ids == name for name in names]).reshape(len(names), one.n)  # [G, n]
    rows = (every_subset(len(names)) @ member.astype(int)) @ 2 ** np.arange(
        one.n
    )  # [2^G], subsets of the items
    share = member.astype(float) * one.weights  # [G, n]
    return Game(share.sum(1), one.logits[rows.astype(int)], share @ one.contributions)


def zeroed(weights: np.ndarray, contributions: np.ndarray, bias: np.ndarray) -> Game:
    """Leave the survivors' weights [n, H] as they are: what each item adds [n, H, C] is added."""
    n = len(weights)
    terms = np.einsum("nh,nhc->nc", weights, contributions)
    totals = weights.sum(0)
    mass = (weights / np.where(totals > 0, totals, 1)).mean(1)
    return Game(mass, every_subset(n) @ terms + bias, terms)


def of_heads(weights: np.ndarray, contributions: np.ndarray, bias: np.ndarray) -> Game:
    """Renormalise each head [n, H] by its own survivors; without mass a head adds nothing."""
    kept = every_subset(len(weights)).astype(float)
    sums = np.einsum("sn,nh,nhc->shc", kept, weights, contributions)
    mass = (kept @ weights)[:, :, None]
    alive = (kept @ (weights > 0))[:, :, None] > 0
    with np.errstate(all="ignore"):
        logits = np.where(alive, sums / mass, 0).sum(1) + bias
    shares = weights / np.where(weights.sum(0) > 0, weights.sum(0), 1)
    return Game(shares.mean(1), logits, np.einsum("nh,nhc->nc", shares, contributions))


def emptied(one: Small, empty: np.ndarray) -> Game:
    """Give `empty` where no mass survives."""
    alive = every_subset(one.n).astype(int) @ (one.weights > 0) > 0
    logits = np.where(alive[:, None], one.logits, empty)
    return Game(one.weights, logits, one.weights[:, None] * one.contributions)


def rows_kept(order: np.ndarray) -> list[int]:
    """The rows of the sets that are left after 0, 1, … units of an order are erased."""
    n = len(order)
    return [2**n - 1 - sum(2 ** int(i) for i in order[:k]) for k in range(n + 1)]


def options(**more: object) -> dict[str, object]:
    """What a sweep is asked for so that `judge` can look at it."""
    curves = ("logits", "decision", "mass", "label_prob", "js", "kl")
    return {"rankings": RANKINGS, "curves": curves, "orders": True, "logits": True, **more}


def judge(game: Game, found: fae.Sweep, b: int, *, minimal: bool = True) -> bool:
    """Compare all results of instance `b` with the game; says whether they are in no doubt."""
    if not decided(found.prefixes.status, b):
        return False
    prefixes, y = found.prefixes, game.label
    assert int(prefixes.label[b]) == y
    lo, hi = int(prefixes.offsets[b]), int(prefixes.offsets[b + 1])
    assert hi - lo == game.n
    scale = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(prefixes.logits[b].numpy(), game.logits[-1], **scale)
    decision = game.logits.argmax(1)
    alive = bool((game.mass > 0).any())
    original = softmax(game.logits[-1])
    for row in range(len(prefixes.rankings)):
        order = prefixes.order[row, lo:hi].numpy()
        assert sorted(order.tolist()) == list(range(game.n))
        _judge_order(game, prefixes.rankings[row], order)
        kept = rows_kept(order)
        hit = [k for k in range(1, game.n + 1) if decision[kept[k]] != y] if alive else []
        assert int(prefixes.first_flip[row, b]) == (hit[0] if hit else -1), prefixes.rankings[row]
        flip_label = int(prefixes.flip_label[row, b])
        assert _leads(game.logits[kept[hit[0]]], flip_label) if hit else flip_label == -1
        points = slice(lo + b, hi + b + 1)
        got = {name: curve[row, points].numpy() for name, curve in prefixes.curves.items()}
        np.testing.assert_allclose(got["logits"], game.logits[kept], **scale)
        left = [game.mass[order[k:]].sum() / game.total for k in range(game.n + 1)]
        np.testing.assert_allclose(got["mass"], left, atol=1e-12)
        if hit:
            removed = float(prefixes.removed_mass[row, b])
            np.testing.assert_allclose(removed, left[0] - left[hit[0]], atol=1e-12)
        p = softmax(game.logits[kept])
        np.testing.assert_allclose(got["label_prob"], p[:, y], atol=1e-9)
        np.testing.assert_allclose(got["js"], js(p, original), atol=1e-6)
        np.testing.assert_allclose(got["kl"], kl(p, original), rtol=2e-6, atol=2e-6)
        assert got["decision"][0] == y
    _judge_singles(game, found, b, alive)
    if minimal:
        _judge_minimal(game, found.minimal, b, alive)
    return True


def _judge_order(game: Game, ranking: str, order: np.ndarray) -> None:
    """The order is one by the ranking's definition, up to the engine's band of near-ties."""
    y, p = game.label, softmax(game.logits[-1])
    scale = 1 + float(np.abs(game.logits).max())
    if ranking == "attention":
        assert (np.diff(game.mass[order]) < 1e-12).all()
    elif ranking == "product":
        keys = p[y] * ((game.terms[:, [y]] - game.terms) @ p)
        assert (np.diff(keys[order]) < 1e-9 * scale).all()
    elif ranking == "greedy":
        lead = np.delete(game.logits[:, [y]] - game.logits, y, 1).min(1)  # [2^n]
        kept = rows_kept(order)
        for k in range(game.n):
            best = min(lead[kept[k] - 2 ** int(i)] for i in order[k:])
            assert lead[kept[k + 1]] <= best + 1e-5 * scale, f"greedy step {k}"


def _judge_singles(game: Game, found: fae.Sweep, b: int, alive: bool) -> None:
    lo = int(found.single.offsets[b])
    without = [2**game.n - 1 - 2**i for i in range(game.n)]
    logits = game.logits[without] if alive else game.logits[[-1] * game.n]
    y, decision = game.label, logits.argmax(1)
    labels = found.single.flip_label[lo : lo + game.n].tolist()
    for i, label in enumerate(labels):
        assert label == -1 if decision[i] == y else label != y and _leads(logits[i], label)
    p, original = softmax(logits), softmax(game.logits[-1])
    drop = found.single.label_prob_drop[lo : lo + game.n].numpy()
    np.testing.assert_allclose(drop, original[y] - p[:, y], atol=1e-9)
    np.testing.assert_allclose(
        found.single.js[lo : lo + game.n].numpy(), js(p, original), atol=1e-6
    )


def _judge_minimal(game: Game, found: fae.MinimalFlipSet, b: int, alive: bool) -> None:
    decision, lo, size = game.logits.argmax(1), int(found.offsets[b]), int(found.size[b])
    flips = (decision != game.label) & (game.removed > 0)
    smallest = int(game.removed[flips].min()) if alive and flips.any() else -1
    assert size == smallest
    order = found.order[lo : lo + game.n].numpy()
    assert sorted(order.tolist()) == list(range(game.n))
    if size > 0:
        left = rows_kept(order)[size]
        assert decision[left] != game.label != int(found.flip_label[b])
        assert _leads(game.logits[left], int(found.flip_label[b]))
        assert (game.mass[order[:size]] > 0).all()
    else:
        assert int(found.flip_label[b]) == -1


def _leads(logits: np.ndarray, label: int) -> bool:
    """Whether a class leads, or is tied with one that does: either may be named after a flip."""
    return label >= 0 and bool(logits[label] > logits.max() - 1e-5 * (1 + np.abs(logits).max()))


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL(p ‖ q) by rows: [K, C] and [C] to [K]."""
    with np.errstate(all="ignore"):
        return np.where(p > 0, p * np.log(p / q), 0).sum(-1)


def js(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence by rows."""
    middle = (p + q) / 2
    return (kl(p, middle) + kl(np.broadcast_to(q, p.shape), middle)) / 2
