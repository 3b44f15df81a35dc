"""Adversarial attention: the objective, its slack from scratch, what is always admissible."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import fastattnerase as fae
from fastattnerase.attention_tests.adversaries import (
    Adversaries,
    Search,
    adversarial_attention,
    buckets,
    published_limit,
    published_search,
)

LENGTHS = (4, 1, 7, 0, 5)


def layer(seed: int = 0, classes: int = 2, *, callable_head: bool = False) -> fae.AttentionBatch:
    """Instances with peaked attention and outputs that depend on it."""
    draw = torch.Generator().manual_seed(seed)
    total = sum(LENGTHS)
    weight = torch.randn(classes, 3, generator=draw)
    bias = torch.randn(classes, generator=draw)

    def head(pooled: Tensor) -> Tensor:
        return torch.tanh(pooled) @ weight.to(pooled).T + bias.to(pooled)

    given = {"head": head} if callable_head else {"head_weight": weight, "head_bias": bias}
    return fae.AttentionBatch(
        torch.randn(total, 3, generator=draw),
        torch.tensor([0, *np.cumsum(LENGTHS)]),
        scores=2 * torch.randn(total, generator=draw),
        ids=torch.tensor([10, 11, 12, 13, 14]),
        **given,  # type: ignore[arg-type]
    )


def from_scratch(batch: fae.AttentionBatch, row: int, weights: np.ndarray) -> np.ndarray:
    """The probabilities of an instance under rows of weights, in float64."""
    start, end = batch.offsets[row : row + 2].tolist()
    values = batch.values[start:end].double().reshape(end - start, -1).numpy()
    a = weights.astype(np.float64)
    pooled = torch.from_numpy(a / a.sum(-1, keepdims=True) @ values)
    if batch.head is None:
        weight, bias = (part.double() for part in batch.linear_head)
        logits = pooled @ weight[:, 0].T + bias
    else:
        logits = batch.head(pooled.float()).double()
    return logits.softmax(-1).numpy()


def own_weights(batch: fae.AttentionBatch, row: int) -> np.ndarray:
    start, end = batch.offsets[row : row + 2].tolist()
    assert batch.scores is not None
    return batch.scores[start:end].double().softmax(0).numpy()


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    middle = (p + q) / 2
    return sum(float(np.sum(one[one > 0] * np.log(one[one > 0] / middle[one > 0]))) / 2
               for one in (p, q))  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("callable_head", [False, True])
def test_what_is_reported_is_what_the_weights_give_from_scratch(
    classes: int, callable_head: bool
) -> None:
    batch = layer(classes=classes, callable_head=callable_head)
    found = adversarial_attention(batch, Search(steps=60))
    assert [one.weights.shape for one in found] == [(5, n) for n in LENGTHS]
    for row, one in enumerate(found):
        if not LENGTHS[row]:
            continue
        own = own_weights(batch, row)
        target = from_scratch(batch, row, own[None])[0]
        for k in range(5):
            adversary = one.weights[k].astype(np.float64)
            adversary /= adversary.sum()
            moved = np.abs(from_scratch(batch, row, one.weights)[k] - target).sum() / 2
            # A callable head of float32 gives float32.
            assert one.tvd[k] == pytest.approx(moved, abs=1e-6 if callable_head else 1e-12)
            assert one.jsd[k] == pytest.approx(divergence(adversary, own), abs=1e-12)
            assert 0 <= one.jsd[k] <= math.log(2)
        for limit in (0.01, 0.05):
            best = one.best(limit)
            admissible = [k for k in range(5) if one.tvd[k] <= limit]
            assert (best == -1) == (not admissible or one.jsd[admissible].max() == 0)
            if best >= 0:
                assert one.tvd[best] <= limit
                assert one.jsd[best] == max(one.jsd[admissible])


def test_the_own_attention_is_always_admissible() -> None:
    nothing = Adversaries(np.ones((2, 1), np.float32), np.array([0.5, 0.6]), np.array([0.2, 0.3]))
    assert nothing.best(0.05) == -1
    assert nothing.best(0.2) == 0
    assert nothing.best(0.3) == 1
    # The same weights as one's own are no adversary.
    same = Adversaries(np.ones((1, 1), np.float32), np.array([0.0]), np.array([0.0]))
    assert same.best(0.05) == -1


def objective(
    logits: Tensor, own: Tensor, values: Tensor, weight: Tensor, bias: Tensor, search: Search
) -> Tensor:
    """The published objective of one instance, term by term: logits [K, n], values [n, D]."""

    def jsd(p: Tensor, q: Tensor) -> Tensor:
        middle = (p + q) / 2
        return ((p * (p / middle).log()).sum() + (q * (q / middle).log()).sum()) / 2

    def output(weights: Tensor) -> Tensor:
        return (weight @ (weights @ values) + bias).softmax(0)

    a, target = logits.softmax(1), output(own)
    total = torch.zeros(())
    for k in range(len(a)):
        moved = (output(a[k]) - target).abs().sum() / 2
        total = total - jsd(a[k], own) + search.strength * (moved - search.slack).relu()
        for other in range(k + 1, len(a)):
            total = total - search.pair_weight * jsd(a[k], a[other])
    return total


@pytest.mark.parametrize("callable_head", [False, True])
def test_the_steps_are_adam_s_on_the_objective(callable_head: bool) -> None:
    """Against torch's derivative of the objective, instance by instance."""
    batch = layer(3, callable_head=callable_head)
    search = Search(count=3, steps=8, slack=0.02, strength=40.0, pair_weight=0.3)
    found = adversarial_attention(batch, search)
    if callable_head:
        assert not np.allclose(found[0].weights, adversarial_attention(layer(3), search)[0].weights)
        return
    weight, bias = batch.linear_head
    for row, n in enumerate(LENGTHS):
        if not n:
            continue
        start = int(batch.offsets[row])
        noise = np.random.default_rng([0, 10 + row]).normal(0.0, 3.0, (3, n))
        logits = torch.from_numpy(noise).float().requires_grad_()
        optimiser = torch.optim.Adam([logits], lr=0.01, amsgrad=True)
        own = torch.from_numpy(own_weights(batch, row)).float()
        values = batch.values[start : start + n].flatten(1)
        for _ in range(8):
            optimiser.zero_grad()
            objective(logits, own, values, weight[:, 0], bias, search).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        np.testing.assert_allclose(
            found[row].weights, logits.softmax(1).detach().numpy(), rtol=0, atol=2e-4
        )


def test_other_instances_change_nothing() -> None:
    batch = layer()
    together = adversarial_attention(batch, Search(steps=5))
    start, end = batch.offsets[2:4].tolist()
    assert batch.scores is not None
    alone = fae.AttentionBatch(
        batch.values[start:end].reshape(end - start, -1),
        torch.tensor([0, end - start]),
        scores=batch.scores[start:end],
        head_weight=batch.linear_head[0][:, 0],
        head_bias=batch.linear_head[1],
        ids=torch.tensor([12]),
    )
    [found] = adversarial_attention(alone, Search(steps=5))
    np.testing.assert_allclose(found.weights, together[2].weights, rtol=0, atol=1e-6)
    [other] = adversarial_attention(alone, Search(steps=5, seed=1))
    assert not np.allclose(found.weights, other.weights, atol=1e-3)


def test_by_hand_two_items_with_the_same_value() -> None:
    """The output cannot move, so all weight goes away from the item that has it."""
    batch = fae.AttentionBatch(
        torch.ones(2, 1),
        torch.tensor([0, 2]),
        weights=torch.tensor([1.0, 0.0]),
        head_weight=torch.tensor([[0.0], [2.0]]),
    )
    [found] = adversarial_attention(batch, Search(steps=900))
    assert found.tvd.max() < 1e-7
    assert found.weights[found.best(0.05)][1] > 0.99
    assert found.jsd.max() == pytest.approx(math.log(2), abs=0.02)


def test_published_settings() -> None:
    assert published_search("code", one_logit=True) == Search()
    assert published_search("code", one_logit=False) == Search(strength=1000.0, slack=0.005)
    paper = published_search("paper", one_logit=False, query=True, count=5)
    assert (paper.slack, paper.strength, paper.pair_weight) == (0.05, 500.0, 1 / 20)
    assert published_search("paper", one_logit=True, count=1).pair_weight == 0.0
    limits = [published_limit(rule, query=q) for rule in ("code", "paper") for q in (False, True)]
    assert limits == [0.05, 0.05, 0.01, 0.05]


def test_buckets_hold_every_instance_once_and_similar_lengths() -> None:
    lengths = [int(n) for n in np.random.default_rng(0).integers(0, 3000, 300)]
    found = list(buckets(lengths))
    assert sorted(itertools.chain(*found)) == list(range(300))
    for bucket in found:
        own = [lengths[i] for i in bucket]
        assert len(own) == 1 or max(own) <= max(1.25 * min(own), 1)
        assert len(own) == 1 or max(own) * len(own) <= 8192


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 0}, "count: given 0, needed at least 1"),
        ({"steps": 0}, "steps: given 0, needed at least 1"),
        ({"slack": -1.0}, "slack: given -1.0, needed a number from 0"),
        ({"strength": math.inf}, "strength: given inf, needed a number from 0"),
        ({"seed": -1}, "seed: given -1, needed at least 0"),
    ],
)
def test_bad_settings(given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Search(**given)  # type: ignore[arg-type]
    several = fae.AttentionBatch(
        torch.ones(2, 2, 1),
        torch.tensor([0, 2]),
        scores=torch.ones(2, 2),
        head_weight=torch.ones(2, 2, 1),
    )
    with pytest.raises(ValueError, match="given 2 attention heads, needed one"):
        adversarial_attention(several, Search())
