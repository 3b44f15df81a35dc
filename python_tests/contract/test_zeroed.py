"""Erasing without renormalising, against all subsets, on what every backend projects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fastattnerase as fae
from contract.games import Game, judge, of_groups, options, rows_kept, zeroed
from contract.harness import Runner
from contract.subsets import KINDS, Small, batch_of, draw, share_of
from fastattnerase.problem import BIT
from fastattnerase.status import Status

SLOW = ("cuda", "cuda-emulated", "triton")
GIVEN = 1.75  # what weights are multiplied by: their sum is no matter of course


def games_of(instances: list[Small], scale: float) -> list[Game]:
    return [zeroed(scale * o.weights[:, None], o.contributions[:, None], o.bias) for o in instances]


def scaled(batch: fae.AttentionBatch, scale: float) -> fae.AttentionBatch:
    return batch.with_weights(scale * batch.weights[:, None])


def judge_all(found: fae.Sweep, games: list[Game], kind: str) -> None:
    near = 0
    for b, game in enumerate(games):
        try:
            near += not judge(game, found, b)
        except AssertionError as error:
            raise AssertionError(f"instance {b} of {kind}: {error}") from error
    assert near <= {"tied": 0.75, "degenerate": 0.3}.get(kind, 0.02) * len(games) + 1, near


def run(runner: Runner, kind: str, count: int, classes: int) -> None:
    instances = draw(kind, count, classes, seed=31)
    batch = scaled(batch_of(instances, runner.device), GIVEN)
    found = fae.sweep(batch, **options(renormalize=False, backend=runner.name)).to("cpu")
    judge_all(found, games_of(instances, GIVEN), kind)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_all_subsets(runner: Runner, kind: str, classes: int) -> None:
    run(runner, kind, 20 if runner.name in SLOW else 60, classes)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand(runner: Runner, kind: str) -> None:
    """Of both backends the same code erases; they differ in how they project."""
    if runner.name in ("reference", "cpu-plain"):
        run(runner, kind, share_of(2_500), 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_read_from_its_end(kind: str) -> None:
    """The first k kept give what the rest of the reversed order leaves."""
    instances = draw(kind, 40, 3, seed=5)
    batch = batch_of(instances)
    keep = fae.erase_prefixes(
        batch, "attention", direction="keep", renormalize=False, curves="logits", orders=True
    )
    for b, game in enumerate(games_of(instances, 1.0)):
        lo = int(keep.offsets[b])
        order = keep.order[0, lo : lo + game.n].numpy()
        kept = rows_kept(order[::-1])[::-1]
        points = slice(lo + b, lo + b + game.n + 1)
        logits = keep.curves["logits"][0, points].numpy()
        np.testing.assert_allclose(logits, game.logits[kept], 1e-9, 1e-9)
        same = [k for k in range(1, game.n + 1) if game.logits[kept[k]].argmax() == game.label]
        if not int(keep.status[b]) & (Status.NEAR_TIE | Status.ZERO_MASS):
            assert int(keep.first_flip[0, b]) == (same[0] if same else -1)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("kind", KINDS)
def test_several_heads(backend: str, kind: str) -> None:
    """Heads are added, so that the smallest set is as exact as of one."""
    one, two = (draw(kind, 40, 3, seed=6) for _ in range(2))
    rng = np.random.default_rng(2)
    pairs, games = [], []
    for first, second in zip(one, two, strict=True):
        weights = np.stack([first.weights, rng.permutation(second.weights)], 1)
        contributions = np.stack([first.contributions, rng.permutation(second.contributions)], 1)
        pairs.append((weights, contributions, first.bias))
        games.append(zeroed(*pairs[-1]))
    eye = torch.eye(3).double()
    batch = fae.AttentionBatch(
        torch.from_numpy(np.concatenate([c for _, c, _ in pairs])),
        torch.tensor([0, *(len(w) for w, _, _ in pairs)]).cumsum(0),
        weights=torch.from_numpy(np.concatenate([w for w, _, _ in pairs])),
        head_weight=torch.stack([eye, eye], 1),
        head_bias=torch.from_numpy(np.stack([b for _, _, b in pairs])),
    )
    found = fae.sweep(batch, **options(renormalize=False, backend=backend))
    judge_all(found, games, kind)


def test_groups() -> None:
    instances = draw("random", 30, 3, seed=8)
    rng = np.random.default_rng(1)
    ids = [rng.integers(0, 3, one.n) for one in instances]
    groups = torch.from_numpy(np.concatenate(ids))
    found = fae.sweep(batch_of(instances), **options(groups=groups, renormalize=False))
    for b, (one, own) in enumerate(zip(instances, ids, strict=True)):
        union = of_groups(one, own)  # the masses and what a group adds
        game = zeroed(np.ones((union.n, 1)), union.terms[:, None], one.bias)
        assert judge(Game(union.mass, game.logits, game.terms), found, b)


def greedy_of(game: Game, one_output: bool) -> tuple[list[int], int]:
    """The order by its definition, and the first flip."""
    lead = game.logits[:, 0] if one_output else leads(game).min(1)
    left, order, flip = list(range(game.n)), [], game.n
    while left:
        rest = [sum(2**j for j in left if j != i) for i in left]
        at = int(np.argmin([lead[r] for r in rest]))
        order.append(left.pop(at))
        if lead[rest[at]] < 0:
            flip = min(flip, len(order))
    return order, flip


def leads(game: Game) -> np.ndarray:
    return np.delete(game.logits[:, [game.label]] - game.logits, game.label, 1)


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_greedy_orders(classes: int) -> None:
    instances = draw("random", 40, classes, seed=9)
    batch = batch_of(instances)
    found = fae.greedy_order(batch, renormalize=False)
    short = fae.greedy_order(batch, renormalize=False, until_flip=True, steps=3)
    assert torch.equal(found.removed, batch.lengths)
    assert (found.certain == found.removed).float().mean() > 0.9
    for b, game in enumerate(games_of(instances, 1.0)):
        order, flip = greedy_of(game, classes == 1)
        lo = int(found.offsets[b])
        sure = slice(lo, lo + int(found.certain[b]))
        assert found.order[sure].tolist() == order[: int(found.certain[b])]
        if int(found.certain[b]) == game.n and not int(found.status[b]):
            stop = min(3, flip)
            assert int(short.removed[b]) == stop
            rest = sorted(set(range(game.n)) - set(order[:stop]))
            assert short.order[lo : lo + game.n].tolist() == order[:stop] + rest
    assert fae.greedy_order(batch, renormalize=False, steps=0).removed.tolist() == [0] * 40


def by_hand(**changes: Any) -> fae.AttentionBatch:
    given: dict[str, Any] = {
        "weights": torch.tensor([0.5, 2.0, 1.0]),
        "head_weight": torch.eye(2),
        "head_bias": torch.tensor([1.0, 0.0]),
    }
    values = torch.tensor([[2.0, 0.0], [0.0, 1.5], [1.0, 0.5]])
    return fae.AttentionBatch(values, torch.tensor([0, 3]), **{**given, **changes})


def test_by_hand(runner: Runner) -> None:
    """Items add [1, 0], [0, 3] and [1, 0.5] to the bias [1, 0]: 3 to 3.5, class 1."""
    batch = by_hand().to(runner.device)
    found = fae.sweep(
        batch, ["attention"], renormalize=False, logits=True, weights=True, backend=runner.name
    ).to("cpu")
    assert found.prefixes.label.tolist() == [1]
    torch.testing.assert_close(found.prefixes.logits, torch.tensor([[3.0, 3.5]]))
    assert found.prefixes.first_flip.tolist() == [[1]]  # without item 1 it is [3, 0.5]
    torch.testing.assert_close(found.prefixes.removed_mass, torch.tensor([[2 / 3.5]]).double())
    torch.testing.assert_close(found.prefixes.weights.sum(), torch.tensor(1.0).double())
    # Without item 2 it is [2, 3], without item 0 [2, 3.5].
    assert found.single.flip_label.tolist() == [-1, 0, -1]
    assert found.minimal.size.tolist() == [1]
    assert found.minimal.order.tolist() == [1, 2, 0]
    assert fae.rank(batch, "product", renormalize=False, backend=runner.name).tolist() == [1, 2, 0]


def test_values_and_scores_of_every_type() -> None:
    torch.manual_seed(3)
    values, scores, head = torch.randn(8, 4), torch.randn(8), torch.randn(3, 4)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        batch = fae.AttentionBatch(
            values.to(dtype), torch.tensor([0, 8]), scores=scores, head_weight=head
        )
        found = fae.sweep(batch, "attention", renormalize=False, curves=("logits", "mass"))
        order = fae.rank(batch, "attention")
        terms = scores.double().softmax(0)[:, None] * (values.to(dtype).double() @ head.double().T)
        want = torch.stack([terms[order[k:]].sum(0) for k in range(9)])
        curve = found.prefixes.curves["logits"][0]
        assert curve.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(curve.double(), want, rtol=1e-5, atol=1e-6)


def test_degenerate_instances() -> None:
    """NaN, no items, no mass: as where survivors are renormalised."""
    nan = float("nan")
    values = torch.tensor([[nan, 0.0], [0.0, 3.0], [2.0, 1.0], [2.0, 0.0]])
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 2, 2, 3, 4]), weights=torch.tensor([1.0, 1.0, 0.0, 2.0]),
        head_weight=torch.eye(2), head_bias=torch.tensor([0.0, 1.0]),
    )  # fmt: skip
    asked = {"curves": ("decision", "logits", "js"), "orders": True}
    found, usual = (
        fae.sweep(batch, ["attention", "greedy", "minimal"], renormalize=how, **asked)
        for how in (False, True)
    )
    flags = [Status.NON_FINITE, Status.EMPTY, Status.SINGLE | Status.ZERO_MASS, Status.SINGLE]
    assert found.prefixes.status.tolist() == [int(flag) for flag in flags]
    assert found.prefixes.label.tolist() == [-1, 1, 1, 0]
    assert found.prefixes.curves["decision"][0].tolist() == [-1, 1, 1, 1, 1, 1, 0, 1]
    for name in ("first_flip", "flip_label", "order", "status", "label"):
        assert torch.equal(getattr(found.prefixes, name), getattr(usual.prefixes, name)), name
    assert torch.equal(found.minimal.size, usual.minimal.size)
    assert torch.equal(found.minimal.order, usual.minimal.order)
    assert found.single.js[:2].isnan().all()
    assert found.prefixes.curves["js"][0, :3].isnan().all()
    greedy = fae.greedy_order(batch, renormalize=False)
    assert greedy.removed.tolist() == [-1, -1, 1, 1]
    empty = fae.sweep(batch[:0], ["attention", "greedy"], renormalize=False)
    assert empty.prefixes.first_flip.shape == (2, 0)
    one = by_hand(head_weight=torch.ones(1, 2), head_bias=torch.zeros(1))
    with pytest.warns(UserWarning, match="one output"):
        alone = fae.sweep(one, ["greedy", "minimal", "attention"], renormalize=False)
    assert alone.prefixes.first_flip.tolist() == [[-1], [-1], [-1]]


def test_unchecked_mistakes_are_invalid() -> None:
    batch = by_hand(weights=torch.tensor([0.5, -2.0, 1.0]))
    found = fae.sweep(
        batch, "attention", renormalize=False, curves=("mass", "decision"), validate=False
    )
    assert found.prefixes.status.tolist() == [int(Status.INVALID)]
    assert found.minimal.order.tolist() == [-1, -1, -1]
    assert found.prefixes.curves["decision"].tolist() == [[-1] * 4]
    with pytest.raises(ValueError, match="weights: given -2"):
        fae.sweep(batch, "attention", renormalize=False)
    function = fae.AttentionBatch(
        batch.values, batch.offsets, scores=torch.zeros(3), head=lambda pooled: pooled
    )
    with pytest.raises(ValueError, match="renormalize: given False with a callable head"):
        fae.sweep(function, renormalize=False)


def test_a_batch_changes_no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: whatever else is in the batch, and however many instances are padded at once."""
    batch = batch_of(draw("random", 12, 4, seed=1))
    rankings = ["attention", "greedy", "leave_one_out"]
    whole = fae.sweep(batch, rankings, renormalize=False, curves=("js", "logits"))
    monkeypatch.setattr("fastattnerase.ops.zeroed._BUDGET", 50)
    again = fae.sweep(batch, rankings, renormalize=False, curves=("js", "logits"))

    def same(x: Tensor, y: Tensor) -> None:
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)

    for name in ("js", "logits"):
        same(whole.prefixes.curves[name], again.prefixes.curves[name])
    same(whole.minimal.order, again.minimal.order)
    for b in range(12):
        alone = fae.sweep(batch[b], rankings, renormalize=False, curves=("js", "logits"))
        points = slice(int(batch.offsets[b]) + b, int(batch.offsets[b + 1]) + b + 1)
        for name in ("js", "logits"):
            same(whole.prefixes.curves[name][:, points], alone.prefixes.curves[name])
        same(whole.prefixes.first_flip[:, b : b + 1], alone.prefixes.first_flip)


def operator_arguments() -> tuple[Any, ...]:
    batch = batch_of(draw("random", 4, 3, seed=1))
    B = len(batch)
    terms = batch.weights[:, None] * batch.values
    order = fae.rank(batch, "attention")
    return (
        batch.offsets, torch.zeros(B, dtype=torch.int64), terms, batch.values, batch.weights,
        batch.weights, batch.head_bias, torch.ones(B).double(), torch.stack([order, order]),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_opcheck() -> None:
    args = operator_arguments()
    torch.library.opcheck(torch.ops.fastattnerase.zeroed_greedy.default, (*args, 3, True))
    names = ("curve_logits", "order", "single_js", "minimal_order")
    wants = sum(BIT[name] for name in names)
    torch.library.opcheck(
        torch.ops.fastattnerase.zeroed_sweep.default, (*args, [-1, 7], False, wants),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip
