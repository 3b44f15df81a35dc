"""Weights of attention, and divergences of distributions, against numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import fastattnerase as fae
from fastattnerase.statistics.attention import (
    attention_weights,
    divergences_from_uniform,
    entropies,
    entropy,
    head_weights,
    js_divergence,
    kl_divergence,
    sums_of,
)


@pytest.mark.parametrize(
    ("scores", "weights", "expected"),
    [
        ([0.0, math.log(3.0), -math.inf], None, [0.25, 0.75, 0.0]),
        ([1e4, 1e4, 0.0], None, [0.5, 0.5, 0.0]),
        ([-math.inf] * 3, None, [0.0, 0.0, 0.0]),
        (None, [1.0, 2.0, 1.0], [0.25, 0.5, 0.25]),
        (None, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    ],
)
def test_weights_of_scores_and_of_weights(
    scores: list[float] | None, weights: list[float] | None, expected: list[float]
) -> None:
    batch = fae.AttentionBatch(
        torch.zeros(3, 1),
        torch.tensor([0, 0, 3]),
        scores=None if scores is None else torch.tensor(scores),
        weights=None if weights is None else torch.tensor(weights),
        head_weight=torch.ones(2, 1),
        head_bias=torch.zeros(2),
    )
    np.testing.assert_allclose(attention_weights(batch), expected, rtol=1e-7)


def test_heads_have_weights_of_their_own_and_an_item_has_their_mean() -> None:
    scores = torch.tensor([[0.0, 1.0], [math.log(3.0), 1.0], [7.0, -math.inf]])  # [T, H]
    batch = fae.AttentionBatch(
        torch.zeros(3, 2, 1),
        torch.tensor([0, 2, 3]),
        scores=scores,
        head_weight=torch.ones(2, 2, 1),
    )
    expected = [[0.25, 0.5], [0.75, 0.5], [1.0, 0.0]]
    np.testing.assert_allclose(head_weights(batch), expected, rtol=1e-7)
    np.testing.assert_allclose(attention_weights(batch), [0.375, 0.625, 0.5], rtol=1e-7)


def test_divergences_from_uniform_of_each_instance() -> None:
    weights = np.array([0.5, 0.3, 0.2, 0.25, 0.25, 0.25, 0.25, 1.0])
    kl, js = divergences_from_uniform(weights, np.array([0, 3, 3, 7, 8]))
    third = 1 / 3
    middle = [(a + third) / 2 for a in (0.5, 0.3, 0.2)]
    own = sum(a * math.log(a * 3) for a in (0.5, 0.3, 0.2))
    both = sum(
        a * math.log(a / m) / 2 + third * math.log(third / m) / 2
        for a, m in zip((0.5, 0.3, 0.2), middle, strict=True)
    )
    np.testing.assert_allclose(kl, [own, math.nan, 0.0, 0.0], rtol=1e-14)
    np.testing.assert_allclose(js, [both, math.nan, 0.0, 0.0], rtol=1e-14)
    none, _ = divergences_from_uniform(np.zeros(0), np.zeros(1, dtype=np.int64))
    assert none.shape == (0,)


def test_sums_add_up_in_order_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    lengths = [0, 1, 7, 0, 130, 1000, 0]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = rng.normal(size=offsets[-1]) * 10.0 ** rng.integers(-9, 9, offsets[-1])
    expected = []
    for begin, end in pairwise(offsets):
        total = 0.0
        for value in values[begin:end]:
            total += value
        expected.append(total)
    assert sums_of(values, offsets).tolist() == expected
    values[3] = np.nan
    assert np.isnan(sums_of(values, offsets)).tolist() == [False] * 2 + [True] + [False] * 4


P = torch.tensor([0.1, 0.9], dtype=torch.float64)
Q = torch.tensor([0.4, 0.6], dtype=torch.float64)


def test_divergences_of_two_distributions() -> None:
    kl = 0.1 * math.log(1 / 4) + 0.9 * math.log(3 / 2)
    assert kl_divergence(P.log(), Q.log()) == pytest.approx(kl, rel=1e-12)
    halves = (
        0.1 * math.log(0.1 / 0.25), 0.9 * math.log(0.9 / 0.75),
        0.4 * math.log(0.4 / 0.25), 0.6 * math.log(0.6 / 0.75),
    )  # fmt: skip
    assert js_divergence(P.log(), Q.log()) == pytest.approx(sum(halves) / 2, rel=1e-12)
    assert js_divergence(P.log(), Q.log()) == js_divergence(Q.log(), P.log())
    assert js_divergence(P.log(), P.log()) == 0.0


def test_probabilities_that_underflow_count_as_their_logarithms_say() -> None:
    one, other = torch.tensor([0.0, -900.0]), torch.tensor([-900.0, 0.0])
    assert kl_divergence(one, other) == 900.0
    assert js_divergence(one, other) == pytest.approx(math.log(2), abs=1e-15)
    assert entropy(one) == 0.0


def test_entropy() -> None:
    assert entropy(torch.full((8,), -math.log(8))) == pytest.approx(math.log(8), rel=1e-6)
    assert entropy(P.log()) == pytest.approx(-0.1 * math.log(0.1) - 0.9 * math.log(0.9), rel=1e-12)


def test_entropies_of_rows_are_those_of_each() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]])
    expected = [0.0, 1.5 * math.log(2), math.log(3)]
    np.testing.assert_allclose(entropies(rows), expected, atol=1e-15)
    assert math.copysign(1, entropies(rows)[0]) == 1  # no -0
