"""Rank correlations against their definition pair by pair, against SciPy, and at their edges."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from fastattnerase.mi import kendall_tau, weighted_tau
from fastattnerase.statistics.correlation import PairWeight, weighted_taus

PAIRS: tuple[PairWeight, ...] = ("product", "sum")


def by_definition(x: list[float], y: list[float], w: list[float], pairs: str) -> float:
    agreement, x_weight, y_weight = [], [], []
    for i, j in combinations(range(len(x)), 2):
        weight = w[i] * w[j] if pairs == "product" else w[i] + w[j]
        x_sign = (x[i] > x[j]) - (x[i] < x[j])
        y_sign = (y[i] > y[j]) - (y[i] < y[j])
        agreement.append(weight * x_sign * y_sign)
        x_weight.append(weight * abs(x_sign))
        y_weight.append(weight * abs(y_sign))
    return math.fsum(agreement) / math.sqrt(math.fsum(x_weight) * math.fsum(y_weight))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_random_vectors_against_brute_force(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 25))
    if ties:
        x, y = (rng.integers(0, 4, k).astype(float) for _ in range(2))
        x[:2], y[:2] = [0, 9], [9, 0]  # neither is constant
    else:
        x, y = rng.standard_normal((2, k))
    w = np.exp(rng.normal(0, 2, k))
    for pairs in PAIRS:
        found = weighted_tau(x, y, w, pairs=pairs).value
        assert found == pytest.approx(
            by_definition(x.tolist(), y.tolist(), w.tolist(), pairs), abs=1e-12
        )
        scipy = stats.weightedtau(
            x, y, rank=False, weigher=lambda r: w[r], additive=pairs == "sum"
        ).statistic
        assert found == pytest.approx(scipy, abs=1e-9)
    assert kendall_tau(x, y).value == pytest.approx(
        by_definition(x.tolist(), y.tolist(), [1.0] * k, "product"), abs=1e-12
    )


@pytest.mark.parametrize("skew", [1e-6, 1e-12, 1e-18, 1e-100])
def test_one_dominant_weight_costs_no_digits(skew: float) -> None:
    rng = np.random.default_rng(1)
    w = np.sort(rng.random(15))[::-1]
    w[1:] *= skew
    x = rng.integers(0, 6, 15).astype(float)
    x[5] = x[0]  # a tie with the dominant one, which subtraction from a total would cancel
    y = w.copy()
    expected = by_definition(x.tolist(), y.tolist(), w.tolist(), "product")
    assert weighted_tau(x, y, w).value == pytest.approx(expected, abs=1e-12)


def test_hand_worked() -> None:
    # Pairs (0,1) agrees, (0,2) agrees, (1,2) does not; weights 0.5, 0.3, 0.2.
    x, w = [3.0, 1.0, 2.0], [0.5, 0.3, 0.2]
    assert weighted_tau(x, w, w).value == pytest.approx((0.15 + 0.10 - 0.06) / 0.31)
    assert weighted_tau(x, w, w, pairs="sum").value == pytest.approx((0.8 + 0.7 - 0.5) / 2.0)
    assert kendall_tau(x, w).value == pytest.approx(1 / 3)
    assert weighted_tau([1.0, 2.0, 3.0], w, w).value == pytest.approx(-1)
    assert weighted_tau([9.0, 8.0, 7.0], w, w, pairs="sum").value == pytest.approx(1)


def test_equal_weights_give_tau_b_and_scaling_weights_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 5, (2, 40)).astype(float)
    plain = kendall_tau(x, y)
    for pairs in PAIRS:
        assert weighted_tau(x, y, np.full(40, 0.025), pairs=pairs).value == pytest.approx(
            plain.value, abs=1e-12
        )
        w = rng.random(40)
        assert weighted_tau(x, y, w, pairs=pairs).value == pytest.approx(
            weighted_tau(x, y, 1e-200 * w, pairs=pairs).value, abs=1e-12
        )
    scipy = stats.kendalltau(x, y)
    assert (plain.value, plain.p_value) == (scipy.statistic, scipy.pvalue)


def test_many_rows_at_once_are_the_rows_one_by_one() -> None:
    rng = np.random.default_rng(6)
    xs = rng.integers(0, 5, (9, 12)).astype(float)
    xs[4] = 2.0  # undefined
    y, w = rng.random((2, 12))
    for pairs in PAIRS:
        found = weighted_taus(xs, y, w, pairs=pairs)
        one_by_one = [weighted_tau(x, y, w, pairs=pairs).value for x in xs]
        assert one_by_one[4] is None
        assert np.isnan(found[4])
        kept = [i for i in range(9) if i != 4]
        assert found[kept] == pytest.approx([one_by_one[i] for i in kept], abs=1e-13)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([], [], "0 pairs of numbers, needed at least 2"),
        ([1.0], [2.0], "1 pair of numbers, needed at least 2"),
        ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], "x is constant"),
        ([1.0, 2.0], [0.5, 0.5], "y is constant"),
    ],
)
def test_undefined_has_a_reason(x: list[float], y: list[float], reason: str) -> None:
    for found in (kendall_tau(x, y), weighted_tau(x, y, [0.5] * len(x))):
        assert (found.value, found.reason, found.p_value) == (None, reason, None)


def test_no_weight_is_undefined() -> None:
    found = weighted_tau([1.0, 2.0, 2.0], [3.0, 2.0, 1.0], [0.0, 0.5, 0.5])
    assert (found.value, found.reason) == (None, "no pair that is not tied has weight")
    assert weighted_tau([1.0, 2.0], [1.0, 2.0], [0.0, 0.0], pairs="sum").value is None


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="y: given nan at 1, needed finite numbers"):
        kendall_tau([1.0, 3.0], [1.0, float("nan")])
    with pytest.raises(ValueError, match="weights: given inf at 0"):
        weighted_tau([1.0, 3.0], [1.0, 2.0], [float("inf"), 1.0])
    with pytest.raises(ValueError, match=r"weights: given -1.0 at 1, needed 0 or more"):
        weighted_tau([1.0, 3.0], [1.0, 2.0], [1.0, -1.0])
    with pytest.raises(ValueError, match=r"x, y: given \[2, 3\] numbers"):
        kendall_tau([1.0, 3.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"x: given \[1, 2\], needed \[k\]"):
        kendall_tau([[1.0, 3.0]], [1.0, 2.0])
    with pytest.raises(ValueError, match="pairs: given 'mean', needed product or sum"):
        weighted_tau([1.0, 3.0], [1.0, 2.0], [1.0, 1.0], pairs="mean")  # type: ignore[arg-type]
