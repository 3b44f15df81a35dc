"""Mutual information against hand-worked numbers, sums in plain Python, and its bias."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from fastattnerase.mi import entropy, mutual_information, shuffled_information
from fastattnerase.statistics.information import shuffles_of


def test_hand_worked_table() -> None:
    # Pairs (0,0) x 3, (0,1) x 1, (1,1) x 4: p = 3/8, 1/8, 1/2; margins 1/2, 1/2 and 3/8, 5/8.
    x = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    y = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    found = mutual_information(x, y)
    expected = (
        3 / 8 * math.log((3 / 8) / (1 / 2 * 3 / 8))
        + 1 / 8 * math.log((1 / 8) / (1 / 2 * 5 / 8))
        + 1 / 2 * math.log((1 / 2) / (1 / 2 * 5 / 8))
    )
    assert found.plug_in == pytest.approx(expected, abs=1e-15)
    # H(y) - H(y | x), from a table of binary entropies: 0.661563 - 0.562335 / 2
    assert found.plug_in == pytest.approx(0.380396, abs=1e-6)
    # Two labels each and three pairs: (2 + 2 - 3 - 1) / 16 = 0.
    assert found.miller_madow == found.plug_in
    assert found.bias == 1 / 16
    assert found.x_entropy == pytest.approx(math.log(2), abs=1e-15)
    assert found.bound == found.y_entropy < found.x_entropy
    assert found.instances == 8


def by_definition(x: list[int], y: list[int]) -> float:
    n = len(x)
    of_x, of_y, of_both = Counter(x), Counter(y), Counter(zip(x, y, strict=True))
    return sum(c / n * math.log(c * n / (of_x[a] * of_y[b])) for (a, b), c in of_both.items())


def corrected_entropy(labels: list[object]) -> float:
    counts = Counter(labels)
    n = len(labels)
    plain = -sum(c / n * math.log(c / n) for c in counts.values())
    return plain + (len(counts) - 1) / (2 * n)


@pytest.mark.parametrize("seed", range(30))
def test_random_labels_against_plain_python_and_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, x_labels, y_labels = rng.integers(1, 60), rng.integers(1, 12), rng.integers(1, 7)
    x = rng.integers(0, x_labels, n)
    y = np.where(rng.random(n) < 0.5, x % y_labels, rng.integers(0, y_labels, n))
    found = mutual_information(x, y)
    assert found.plug_in == pytest.approx(by_definition(x.tolist(), y.tolist()), abs=1e-12)
    assert 0 <= found.plug_in <= found.bound == min(found.x_entropy, found.y_entropy)
    parts = [corrected_entropy(labels) for labels in (x.tolist(), y.tolist())]
    joint = corrected_entropy(list(zip(x.tolist(), y.tolist(), strict=True)))
    assert found.miller_madow == pytest.approx(sum(parts) - joint, abs=1e-12)
    assert mutual_information(y, x).plug_in == pytest.approx(found.plug_in, abs=1e-12)


def test_the_bounds_are_reached_exactly() -> None:
    same = np.repeat(np.arange(7), [1, 2, 3, 5, 8, 13, 21])
    assert mutual_information(same, same).plug_in == mutual_information(same, same).bound
    grid = np.arange(21)
    assert mutual_information(grid % 3, grid % 7).plug_in == 0


def test_few_mixed_samples_stay_at_zero_where_the_correction_overshoots() -> None:
    x, y = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    found = mutual_information(x, y)
    assert found.plug_in == 0
    # (3 + 2 - 6 - 1) / 12
    assert found.miller_madow == pytest.approx(-1 / 6, abs=1e-15)


def test_independent_labels_lie_within_the_interval_of_the_bias_formula() -> None:
    rng = np.random.default_rng(0)
    n, x_labels, y_labels = 1725, 50, 5
    x, y = rng.integers(0, x_labels, n), rng.integers(0, y_labels, n)
    found = mutual_information(x, y)
    # 2n I is about chi-squared with 196 degrees of freedom: mean 196, standard deviation 19.8.
    assert found.bias == pytest.approx(196 / (2 * n), abs=1e-15)
    spread = math.sqrt(2 * 196) / (2 * n)
    assert abs(found.plug_in - found.bias) < 4 * spread
    control = shuffled_information(x, shuffles_of(y, 200, 0))
    assert abs(control.mean() - found.bias) < 4 * spread / math.sqrt(200) + 0.05 * found.bias
    assert control.std() == pytest.approx(spread, rel=0.25)
    assert abs(found.miller_madow) < 4 * spread


def test_shuffles_keep_the_labels_and_depend_on_the_seed_alone() -> None:
    y = np.array([0, 0, 1, 2, 2, 2])
    orders = shuffles_of(y, 40, 3)
    assert orders.shape == (40, 6)
    assert (np.sort(orders, axis=1) == y).all()
    assert (orders == shuffles_of(y, 40, 3)).all()
    assert (orders != shuffles_of(y, 40, 4)).any()
    assert len({tuple(row) for row in orders.tolist()}) > 10


def test_entropy_of_counts() -> None:
    assert entropy(np.array([1, 1, 2])) == pytest.approx(1.5 * math.log(2), abs=1e-15)
    assert entropy(np.array([4])) == 0


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([0, 1], [0, 1, 1], "x, y: given 2 and 3 labels"),
        ([0, -1], [0, 1], "x: given the label -1"),
        ([0, 1], [0.5, 1.0], "y: given float64 [2], needed integers"),
    ],
)
def test_wrong_labels_are_named(x: list[int], y: list[float], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        mutual_information(np.array(x), np.array(y))
    assert message in str(raised.value)
    with pytest.raises(ValueError, match=r"x: given int64 \[0\]"):
        mutual_information(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
