"""Flipping sets of several attention heads, with their bounds, against all subsets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract.games import Game, of_heads, rows_kept
from contract.subsets import KINDS, decided, draw, share_of
from fastattnerase.reference.heads import Heads, smallest_flip
from fastattnerase.status import Status

BACKENDS = ("reference", "cpu")


def draw_heads(
    kind: str, count: int, classes: int, heads: int
) -> tuple[fae.AttentionBatch, list[Game]]:
    """Instances with several heads, and what every subset gives."""
    rng = np.random.default_rng([heads, classes])
    found = []
    for one in draw(kind, count, classes, seed=41):
        weights = np.stack([rng.permutation(one.weights) for _ in range(heads)], 1)
        contributions = np.stack([rng.permutation(one.contributions) for _ in range(heads)], 1)
        found.append((weights.reshape(one.n, heads), contributions, one.bias))
    eye = torch.eye(classes).double()
    batch = fae.AttentionBatch(
        torch.from_numpy(np.concatenate([c for _, c, _ in found])),
        torch.tensor([0, *(len(w) for w, _, _ in found)]).cumsum(0),
        weights=torch.from_numpy(np.concatenate([w for w, _, _ in found])),
        head_weight=torch.stack([eye] * heads, 1),
        head_bias=torch.from_numpy(np.stack([b for _, _, b in found])),
    )
    return batch, [of_heads(*one) for one in found]


def smallest(game: Game) -> int:
    """Items of positive weight of the smallest set that flips, -1 where none does."""
    flips = (game.logits.argmax(1) != game.label) & (game.removed > 0)
    return int(game.removed[flips].min()) if flips.any() else -1


def judge(game: Game, found: fae.MinimalFlipSet, b: int) -> bool | None:
    """Whether the set is proved smallest; None where something is in doubt."""
    if not decided(found.status, b):
        return None
    best, size, bound = smallest(game), int(found.size[b]), int(found.lower_bound[b])
    assert int(found.label[b]) == game.label
    order = found.order[int(found.offsets[b]) : int(found.offsets[b + 1])].numpy()
    assert sorted(order.tolist()) == list(range(game.n))
    if best < 0:
        assert size == -1
        assert bound != 0
        return bound == -1
    assert 1 <= bound <= best
    assert best <= size
    left = rows_kept(order)[size]
    assert game.logits[left].argmax() != game.label
    assert game.logits[left][int(found.flip_label[b])] > game.logits[left].max() - 1e-6
    assert bool(found.optimal[b]) == (size == bound)
    return size == bound


def run(backend: str, kind: str, count: int, classes: int, heads: int) -> None:
    batch, games = draw_heads(kind, count, classes, heads)
    found = fae.minimal_flip_set(batch, backend=backend)
    verdicts = []
    for b, game in enumerate(games):
        try:
            verdicts.append(judge(game, found, b))
        except AssertionError as error:
            raise AssertionError(f"instance {b} of {kind}: {error}") from error
    proved = [v for v in verdicts if v is not None]
    assert all(proved)  # of so few items all sets can be tried
    assert len(proved) > {"tied": 0.25, "degenerate": 0.6}.get(kind, 0.97) * count


@pytest.mark.parametrize(("classes", "heads"), [(2, 2), (4, 3)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_all_subsets(backend: str, kind: str, classes: int, heads: int) -> None:
    run(backend, kind, 30, classes, heads)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_ten_thousand(backend: str, kind: str) -> None:
    """Both backends search in the same code, on contributions of their own."""
    run(backend, kind, share_of(2_500), 3, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_one_head_is_exact(kind: str) -> None:
    """The search finds what the sort does, and its bound never passes it."""
    batch, games = draw_heads(kind, 60, 3, 1)
    exact = fae.minimal_flip_set(batch)
    assert torch.equal(exact.size, exact.lower_bound)
    assert torch.equal(exact.optimal, exact.size > 0)
    same = 0
    for b, game in enumerate(games):
        if not decided(exact.status, b) or not game.n or not (game.mass > 0).any():
            same += 1
            continue
        items = slice(int(batch.offsets[b]), int(batch.offsets[b + 1]))
        one = Heads(batch.weights[items], batch.values[items], batch.head_bias[b], game.label, 1e-9)
        found = smallest_flip(one)
        size, best = len(found.chosen) or -1, int(exact.size[b])
        assert (best < 0) == (size < 0)
        assert best <= size
        assert found.lower_bound <= best or best < 0
        same += size == best
    assert same > 54


def test_by_hand() -> None:
    """Two heads of three items: head 0 weighs .5, .25, .25, head 1 .25, .25, .5.

    Of class 0 head 0 sees 2, 1, 0 and head 1 sees 1, 0, 1; class 1 gets 1.5 whatever is there.
    """
    values = torch.tensor([[[2.0], [1.0]], [[1.0], [0.0]], [[0.0], [1.0]]])
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 3]),
        weights=torch.tensor([[0.5, 0.25], [0.25, 0.25], [0.25, 0.5]]),
        head_weight=torch.tensor([[[1.0], [1.0]], [[0.0], [0.0]]]),
        head_bias=torch.tensor([0.0, 1.5]),
    )  # fmt: skip
    # z = 1.25 + 0.75 = 2; without item 0 it is 0.5 + 2/3, below 1.5.
    for backend in BACKENDS:
        found = fae.minimal_flip_set(batch, backend=backend)
        assert found.size.tolist() == found.lower_bound.tolist() == [1]
        assert found.order.tolist() == [0, 1, 2]
        assert found.flip_label.tolist() == [1]
        assert found.optimal.tolist() == [True]
        table = found.to_pandas()
        assert table[["lower_bound", "optimal"]].to_numpy().tolist() == [[1, True]]
    grouped = fae.minimal_flip_set(batch, groups=torch.tensor([4, 2, 4]))
    assert grouped.size.tolist() == [1]
    assert grouped.groups.first(grouped.order, grouped.size).tolist() == [True, False, True]


def test_longer_instances() -> None:
    """Sets and bounds of 200 items of 4 heads; what is found flips in the engine as well."""
    torch.manual_seed(0)
    batch = fae.AttentionBatch(
        torch.randn(400, 4, 3), torch.tensor([0, 200, 400]), scores=torch.randn(400, 4),
        head_weight=torch.randn(2, 4, 3),
    )  # fmt: skip
    found = fae.minimal_flip_set(batch)
    assert (found.lower_bound >= 1).all()
    assert (found.lower_bound <= found.size).all()
    assert (found.size - found.lower_bound <= 2).all()
    swept = fae.erase_prefixes(batch, found.order, curves="decision")
    for b in range(2):
        at = int(swept.curve_offsets[b]) + int(found.size[b])
        assert int(swept.curves["decision"][0, at]) == int(found.flip_label[b])
    greedy = fae.erase_prefixes(batch, "greedy").first_flip[0]
    assert (found.size <= greedy).all()


def test_degenerate_instances() -> None:
    nan = float("nan")
    values = torch.ones(5, 2, 2)
    values[0] = nan
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 2, 2, 3, 5]),
        scores=torch.tensor([[0.0, 0.0]] * 3 + [[0.0, 0.0], [-900.0, 0.0]]),
        head_weight=torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.5]]]),
    )  # fmt: skip
    found = fae.minimal_flip_set(batch)
    flags = [Status.NON_FINITE, Status.EMPTY, Status.SINGLE, Status.UNDERFLOW]
    assert found.status.tolist() == [int(flag) for flag in flags]
    assert found.size.tolist() == found.lower_bound.tolist() == [-1, -1, -1, -1]
    assert not found.optimal.any()
    with pytest.raises(ValueError, match="weights: given -1"):
        fae.minimal_flip_set(batch.with_weights(-torch.ones(5, 2)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_opcheck() -> None:
    batch, _ = draw_heads("random", 3, 3, 2)
    args = (
        batch.offsets, torch.zeros(3, dtype=torch.int64), batch.weights, batch.values,
        batch.head_bias, torch.zeros(3, dtype=torch.int64), torch.zeros(3).double(),
    )  # fmt: skip
    torch.library.opcheck(torch.ops.fastattnerase.flip_sets.default, args)
