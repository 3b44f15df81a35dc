"""Erasing groups of items, against every union of groups, on every backend that sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract.games import judge, of_groups, options
from contract.harness import Runner
from contract.subsets import KINDS, batch_of, draw, share_of
from fastattnerase.status import Status

SLOW = ("cuda", "cuda-emulated", "triton")


def run(runner: Runner, kind: str, count: int, classes: int) -> None:
    instances = draw(kind, count, classes, seed=21)
    rng = np.random.default_rng(3)
    ids = [rng.integers(-1, max(1, one.n // 2), one.n) for one in instances]
    groups = torch.from_numpy(np.concatenate(ids)).to(runner.device)
    batch = batch_of(instances, runner.device)
    found = fae.sweep(batch, **options(groups=groups, backend=runner.name)).to("cpu")
    near = 0
    for b, (one, own) in enumerate(zip(instances, ids, strict=True)):
        try:
            near += not judge(of_groups(one, own), found, b)
        except AssertionError as error:
            raise AssertionError(f"instance {b} of {kind}: {error}") from None
    assert near <= {"tied": 0.75, "degenerate": 0.3}.get(kind, 0.02) * count + 1, near


@pytest.mark.parametrize("kind", KINDS)
def test_all_unions(runner: Runner, kind: str) -> None:
    run(runner, kind, 40 if runner.name in SLOW else 100, 3)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand(runner: Runner, kind: str) -> None:
    if runner.name in ("reference", "cpu-plain"):
        run(runner, kind, share_of(2_500), 3)


def by_hand(device: str = "cpu", **changes: Any) -> fae.AttentionBatch:
    """Two instances, 4 and 2 items, of two classes."""
    given = {
        "weights": torch.tensor([0.4, 0.1, 0.3, 0.2, 0.0, 0.0], device=device),
        "head_weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]], device=device),
    }
    values = [[3.0, 0.0], [0.0, 4.0], [0.0, 1.0], [0.0, 2.0], [1.0, 5.0], [3.0, 1.0]]
    given |= changes
    offsets = torch.tensor([0, 4, 6], device=device)
    return fae.AttentionBatch(torch.tensor(values, device=device), offsets, **given)


IDS = [9, -5, 9, 0, 9, 9]


def test_by_hand(runner: Runner) -> None:
    """Groups {0, 2}, {1}, {3} weigh 0.7, 0.1, 0.2; alone they give [12/7, 3/7], [0, 4], [0, 2]."""
    ids = torch.tensor(IDS, device=runner.device)
    batch = by_hand(runner.device)
    found = fae.sweep(batch, ["attention"], groups=ids, backend=runner.name).to("cpu")
    prefixes = found.prefixes
    # z = [1.2, 1.1]; without the first group [0, 8/3], without {1} [4/3, 7/9], {3} [1.5, 7/8].
    assert prefixes.label.tolist() == [0, 0]
    assert prefixes.first_flip.tolist() == [[1, -1]]
    assert prefixes.status.tolist() == [0, int(Status.SINGLE | Status.ZERO_MASS)]
    torch.testing.assert_close(prefixes.removed_mass[0, 0], torch.tensor(0.7).double())
    assert prefixes.fraction[0, 0] == 1 / 3
    assert found.single.flip.tolist() == [True, False, False, False]
    assert found.minimal.size.tolist() == [1, -1]
    groups = found.minimal.groups
    assert groups.ids.tolist() == [9, -5, 0, 9]
    assert groups.offsets.tolist() == found.minimal.offsets.tolist() == [0, 3, 4]
    assert groups.of_item.tolist() == [0, 1, 0, 2, 3, 3]
    assert groups.items.tolist() == [0, 2, 1, 3, 4, 5]
    assert groups.sizes.tolist() == [2, 1, 1, 2]
    chosen = groups.first(found.minimal.order, found.minimal.size)
    assert chosen.tolist() == [True, False, True, False, False, False]
    assert groups.spread(groups.ids).tolist() == IDS
    table = found.single.to_pandas()
    assert table["group"].tolist() == [9, -5, 0, 9]
    assert table["position"].tolist() == [0, 1, 2, 0]
    assert found.to_pandas()["n"].tolist() == [3, 1]


def test_greedy_orders_and_ranks() -> None:
    batch, ids = by_hand(), torch.tensor(IDS)
    for backend in ("reference", "cpu"):
        found = fae.greedy_order(batch, groups=ids, until_flip=True, backend=backend)
        assert found.order.tolist() == [0, 1, 2, 0]
        assert found.removed.tolist() == [1, 1]
        assert found.groups.ids.tolist() == [9, -5, 0, 9]
    assert fae.rank(batch, "attention", groups=ids).tolist() == [0, 2, 1, 0]
    # The items' scores are summed over groups: 1 + 3, 5, 4.5; groups' own are taken as they are.
    scores = torch.tensor([1.0, 5.0, 3.0, 4.5, 0.0, 0.0])
    assert fae.rank(batch, scores, groups=ids).tolist() == [1, 2, 0, 0]
    assert fae.rank(batch, torch.tensor([6.0, 5.0, 4.5, 0.0]), groups=ids).tolist() == [0, 1, 2, 0]
    order = torch.tensor([2, 0, 1, 0])
    assert fae.rank(batch, order, groups=ids).tolist() == [2, 0, 1, 0]
    kept = fae.erase_prefixes(batch, order, groups=ids, direction="keep")
    assert kept.first_flip.tolist() == [[2, -1]]


def test_items_alone_are_what_they_were(runner: Runner) -> None:
    instances = draw("random", 20, 3, seed=4)
    batch = batch_of(instances, runner.device)
    whole = fae.sweep(batch, ["random", "gradient"], backend=runner.name)
    ids = torch.arange(batch.num_items, device=runner.device).flip(0)
    alone = fae.sweep(batch, ["random", "gradient"], groups=ids, backend=runner.name)
    for name in ("label", "first_flip", "flip_label", "removed_mass", "status"):
        pair = getattr(whole.prefixes, name), getattr(alone.prefixes, name)
        torch.testing.assert_close(*pair, rtol=0, atol=0, equal_nan=True, msg=name)
    assert torch.equal(whole.minimal.order, alone.minimal.order)


def test_scores_of_any_magnitude() -> None:
    """Weights of which one is e^-900 of another: the groups' are as far apart, and exact."""
    scores = torch.tensor([0.0, -1.0, -900.0, -901.0, -900.5, float("-inf")], dtype=torch.float64)
    batch = by_hand(weights=None, scores=scores)
    batch, _ = fae.group_items(batch, torch.tensor([1, 1, 2, 2, 3, 3]))
    share = 1 / (1 + np.exp(-1))
    expected = [-np.log(share), -900 - np.log(share), -900.5]
    np.testing.assert_allclose(batch.scores.numpy(), expected, rtol=1e-15)
    want = [[3 * share, 4 * (1 - share)], [0, share + 2 * (1 - share)], [1, 5]]
    np.testing.assert_allclose(batch.values.numpy(), want, rtol=1e-6)
    found = fae.sweep(batch, ["attention"])
    assert found.prefixes.status.tolist() == [int(Status.UNDERFLOW), int(Status.SINGLE)]
    # Without the first group [0, 1.73] is left; of the second instance nothing, and zero is a tie.
    assert found.prefixes.first_flip.tolist() == [[1, 1]]


def test_several_heads_and_functions() -> None:
    torch.manual_seed(2)
    values, weights = torch.randn(9, 2, 3).double(), torch.rand(9, 2).double()
    offsets, ids = torch.tensor([0, 5, 9]), torch.tensor([1, 2, 1, 2, 3, 4, 4, 4, 1])
    W, b = torch.randn(3, 2, 3).double(), torch.randn(3).double()
    linear = fae.AttentionBatch(values, offsets, weights=weights, head_weight=W, head_bias=b)
    function = fae.AttentionBatch(
        values, offsets, weights=weights, head=lambda pooled: pooled.flatten(1) @ W.flatten(1).T + b
    )
    # Group 1 of the first instance is items 0 and 2: without it items 1, 3 and 4 are left.
    rest = [1, 3, 4]
    share = weights[rest] / weights[rest].sum(0)
    expected = torch.einsum("nh,nhd,chd->c", share, values[rest], W) + b
    for batch in (linear, function):
        found = fae.erase_prefixes(
            batch, torch.tensor([0, 1, 2, 0, 1]), curves="logits", groups=ids
        )
        torch.testing.assert_close(found.curves["logits"][0, 1].double(), expected)
        assert found.groups.ids.tolist() == [1, 2, 3, 4, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_values_are_averaged_in_float64(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values, scores = torch.randn(300, 5).to(dtype), torch.randn(300)
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 300]), scores=scores, head_weight=torch.eye(5)
    )
    grouped, _ = fae.group_items(batch, torch.zeros(300, dtype=torch.int64))
    assert grouped.values.dtype == torch.float32
    want = scores.double().softmax(0) @ values.double()
    torch.testing.assert_close(grouped.values[0].double(), want, rtol=1e-6, atol=1e-7)


def test_what_is_not_finite_stays_in_its_group() -> None:
    values = torch.tensor([[1.0, 0.0], [float("nan"), 0.0], [0.0, 1.0]])
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 3]), weights=torch.tensor([0.5, 0.0, 0.5]),
        head_weight=torch.eye(2),
    )  # fmt: skip
    ids = torch.tensor([3, 3, 4])
    found = fae.erase_prefixes(batch, torch.tensor([0, 1]), curves="decision", groups=ids)
    assert found.status.tolist() == [int(Status.NON_FINITE)]
    assert found.curves["decision"].tolist() == [[-1, 1, 0]]


def test_a_block_of_features_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    batch = fae.AttentionBatch(
        torch.randn(50, 7), torch.tensor([0, 50]), scores=torch.randn(50), head_weight=torch.eye(7)
    )
    ids = torch.randint(0, 9, (50,))
    whole, _ = fae.group_items(batch, ids)
    monkeypatch.setattr("fastattnerase.ops.groups._BLOCK_BYTES", 50 * 8 * 3)
    parts, _ = fae.group_items(batch, ids)
    assert torch.equal(whole.values, parts.values)


def test_no_items_and_no_instances() -> None:
    batch, none = by_hand(), torch.zeros(0, dtype=torch.int64)
    found = fae.sweep(batch[:0], ["attention"], groups=none)
    assert found.prefixes.first_flip.shape == (1, 0)
    empty = fae.AttentionBatch(
        torch.zeros(1, 2), torch.tensor([0, 0, 1]), scores=torch.zeros(1), head_weight=torch.eye(2)
    )
    found = fae.sweep(empty, ["attention"], groups=none.new_zeros(1))
    assert found.prefixes.status.tolist() == [int(Status.EMPTY), int(Status.SINGLE)]


def test_mistakes() -> None:
    batch, ids = by_hand(), torch.tensor(IDS)
    with pytest.raises(TypeError, match=r"groups: given torch.float32, needed torch.int64"):
        fae.group_items(batch, ids.float())
    with pytest.raises(ValueError, match=r"groups: given \[5\], needed \[6\], one for each item$"):
        fae.group_items(batch, ids[1:])
    with pytest.raises(ValueError, match=r"groups: given \[2, 4\], needed \[6\].*groups\[mask"):
        fae.sweep(batch, groups=torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"rankings: given an order \[6\] of items, needed one of"):
        fae.rank(batch, torch.tensor([0, 1, 2, 3, 0, 1]), groups=ids)
    with pytest.raises(TypeError, match="batch: given list, needed an AttentionBatch"):
        fae.group_items([], ids)
    negative = by_hand(weights=torch.tensor([0.4, 0.1, -0.3, 0.2, 0.0, 0.0]))
    with pytest.raises(ValueError, match=r"weights: given -0\.3"):
        fae.sweep(negative, groups=ids)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_opcheck() -> None:
    for batch in (by_hand(), by_hand(weights=None, scores=torch.arange(6.0))):
        torch.library.opcheck(
            torch.ops.fastattnerase.group.default, (*batch.packed, torch.tensor(IDS))
        )


@pytest.mark.filterwarnings("ignore")
def test_compiled() -> None:
    torch._dynamo.reset()

    def sizes(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        batch = fae.AttentionBatch(
            values, torch.tensor([0, 4, 6]), weights=torch.ones(6), head_weight=torch.eye(2)
        )
        return fae.minimal_flip_set(batch, groups=ids).size

    ids = torch.tensor(IDS)
    values = by_hand().values
    compiled = torch.compile(sizes, backend="aot_eager")
    assert torch.equal(compiled(values, ids), sizes(values, ids))
