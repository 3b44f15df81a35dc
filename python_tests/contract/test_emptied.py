"""Logits of nothing other than the bias, against all subsets, on every backend that sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract.games import emptied, judge, options
from contract.harness import Runner
from contract.subsets import KINDS, batch_of, draw, share_of
from fastattnerase.status import Status

SLOW = ("cuda", "cuda-emulated", "triton")


def run(runner: Runner, kind: str, count: int, classes: int) -> None:
    instances = draw(kind, count, classes, seed=51)
    rng = np.random.default_rng(4)
    empty = rng.normal(size=(count, classes))
    if kind == "tied":
        empty = rng.integers(-1, 2, (count, classes)).astype(float)
    given = torch.from_numpy(empty).to(runner.device)
    batch = batch_of(instances, runner.device)
    found = fae.sweep(batch, **options(empty=given, backend=runner.name)).to("cpu")
    near = 0
    for b, one in enumerate(instances):
        try:
            near += not judge(emptied(one, empty[b]), found, b)
        except AssertionError as error:
            raise AssertionError(f"instance {b} of {kind}: {error}") from error
    assert near <= {"tied": 0.75, "degenerate": 0.3}.get(kind, 0.02) * count + 1, near


@pytest.mark.parametrize("kind", KINDS)
def test_all_subsets(runner: Runner, kind: str) -> None:
    run(runner, kind, 40 if runner.name in SLOW else 100, 3)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand(runner: Runner, kind: str) -> None:
    if runner.name in ("reference", "cpu-plain"):
        run(runner, kind, share_of(2_500), 3)


def by_hand(**changes: Any) -> fae.AttentionBatch:
    given: dict[str, Any] = {
        "weights": torch.tensor([0.6, 0.3, 0.1, 0.0]),
        "head_weight": torch.eye(2),
        "head_bias": torch.tensor([1.0, 0.0]),
    }
    values = torch.tensor([[0.0, 0.0], [0.5, 1.0], [2.0, 1.0], [1.0, 0.0]])
    return fae.AttentionBatch(values, torch.tensor([0, 3, 4]), **{**given, **changes})


def test_by_hand(runner: Runner) -> None:
    """Every item gives class 0; nothing gives class 1 where that is said, else class 0."""
    batch = by_hand().to(runner.device)
    empty = torch.tensor([0.0, 2.0], device=runner.device)
    asked = {"curves": ("logits",), "backend": runner.name}
    usual = fae.sweep(batch, ["attention", "random"], **asked).to("cpu")
    found = fae.sweep(batch, ["attention", "random"], empty=empty, **asked).to("cpu")
    assert usual.prefixes.first_flip[0].tolist() == [-1, -1]
    assert found.prefixes.first_flip[0].tolist() == [3, -1]
    assert usual.minimal.size.tolist() == [-1, -1]
    assert found.minimal.size.tolist() == [3, -1]
    assert found.minimal.flip_label.tolist() == [1, -1]
    # An instance without mass is all empty.
    assert found.prefixes.label.tolist() == [0, 1]
    assert found.prefixes.status.tolist() == [0, int(Status.SINGLE | Status.ZERO_MASS)]
    last = [3, 4, 5]  # nothing of the first instance, and all of the second
    assert found.prefixes.curves["logits"][0, last].tolist() == [[0.0, 2.0]] * 3
    torch.testing.assert_close(
        found.prefixes.curves["logits"][:, :3], usual.prefixes.curves["logits"][:, :3]
    )
    each = fae.sweep(batch, (), empty=empty.expand(2, 2), backend=runner.name).to("cpu")
    assert torch.equal(each.minimal.size, found.minimal.size)


def test_rankings_stay_what_they_are() -> None:
    """But for those that may erase all: the product of a shifted instance would be another."""
    batch = batch_of(draw("random", 30, 3, seed=3))
    empty = torch.tensor([3.0, -2.0, 0.0]).double()
    names = ["attention", "gradient", "product", "renormalized_gradient", "random"]
    for name in names:
        assert torch.equal(fae.rank(batch, name), fae.rank(batch, name, empty=empty)), name
    scores = torch.rand(batch.num_items)
    assert torch.equal(fae.rank(batch, scores), fae.rank(batch, scores, empty=empty))
    greedy = fae.greedy_order(batch, empty=empty, until_flip=True)
    swept = fae.erase_prefixes(batch, "greedy", empty=empty)
    sure = swept.status == 0
    first = torch.where(swept.first_flip[0] < 0, batch.lengths, swept.first_flip[0])
    assert torch.equal(greedy.removed[sure], first[sure])


def test_shapley_values_are_counted_from_there() -> None:
    """Item 0 alone gives a lead of 1, item 1 one of 0, both 1/2; item 2 weighs nothing.

    From 0 item 1 has -1/4, less than item 2; from -1 it has 1/4.
    """
    batch = fae.AttentionBatch(
        torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 3]),
        weights=torch.tensor([0.5, 0.5, 0.0]), head_weight=torch.eye(2),
    )  # fmt: skip
    assert fae.rank(batch, "shapley").tolist() == [0, 2, 1]
    assert fae.rank(batch, "shapley", empty=torch.tensor([-1.0, 0.0])).tolist() == [0, 1, 2]


def test_near_ties_are_flagged_as_widely() -> None:
    """Values much longer than what they contribute: rounding of their products stays covered."""
    values = torch.tensor([[1000.0, 0.001], [1000.0, 0.0015]])
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 2]), weights=torch.ones(2),
        head_weight=torch.tensor([[0.0, 0.0], [0.0, 1.0]]),
    )  # fmt: skip
    usual = fae.erase_prefixes(batch, "attention")
    other = fae.erase_prefixes(batch, "attention", empty=torch.zeros(2))
    assert usual.status.tolist() == other.status.tolist() == [int(Status.NEAR_TIE)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"empty": "zero"}, "empty: given 'zero', needed 'bias' or logits"),
        ({"empty": torch.zeros(3)}, r"empty: given \[3\], needed 'bias', \[2\] or \[2, 2\]"),
        ({"empty": torch.tensor([0.0, torch.nan])}, "empty: given logits that are not finite"),
        (
            {"empty": torch.zeros(2), "renormalize": False},
            "empty: given logits with renormalize=False, where the bias is",
        ),
    ],
)
def test_mistakes(given: dict[str, Any], message: str) -> None:
    for call in (fae.sweep, fae.minimal_flip_set, fae.erase_each, fae.greedy_order):
        with pytest.raises(ValueError, match=message):
            call(by_hand(), **given)


def test_where_it_is_refused() -> None:
    function = by_hand(head_weight=None, head_bias=None, head=lambda pooled: pooled)
    with pytest.raises(ValueError, match="empty: given logits with a callable head"):
        fae.sweep(function, empty=torch.zeros(2))
    heads = fae.AttentionBatch(
        torch.ones(2, 2, 3), torch.tensor([0, 2]), scores=torch.ones(2, 2),
        head_weight=torch.ones(2, 2, 3),
    )  # fmt: skip
    with pytest.raises(ValueError, match="empty: given logits with 2 attention heads"):
        fae.minimal_flip_set(heads, empty=torch.zeros(2))
