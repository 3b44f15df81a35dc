"""Tests of discordant pairs against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from fastattnerase.statistics.paired import compare


def test_nothing_differs() -> None:
    assert compare(0, 0) == (0, 0, 0.0, 1.0, 1.0, True)


@pytest.mark.parametrize(
    ("first", "second", "statistic", "p_sign"),
    [
        (9, 1, 64 / 10 - 15 / 10, 2 * 11 / 1024),  # (8 − 1)² / 10; C(10, 0) + C(10, 1) = 11
        (1, 9, 4.9, 22 / 1024),
        (5, 5, 0.0, 1.0),
        (0, 6, 25 / 6, 2 / 64),
        (1, 0, 0.0, 1.0),
    ],
)
def test_small_counts(first: int, second: int, statistic: float, p_sign: float) -> None:
    test = compare(first, second)
    assert (test.first, test.second) == (first, second)
    assert test.statistic == pytest.approx(statistic)
    assert test.p_sign == pytest.approx(p_sign)
    assert (test.p_mcnemar, test.exact) == (test.p_sign, True)


def test_exact_below_25_pairs() -> None:
    assert [compare(n, 5).exact for n in (0, 19, 20)] == [True, True, False]
    # (|20 − 5| − 1)² / 25 = 7.84 = 2.8²: the normal distribution's two tails beyond 2.8.
    assert compare(20, 5).p_mcnemar == pytest.approx(0.005110, abs=1e-6)
    assert compare(20, 5).p_sign != compare(20, 5).p_mcnemar


def test_the_chi_squared_distribution_has_one_degree_of_freedom() -> None:
    """(|121 − 59| − 1)² / 180 = 20.6722…; known points of the distribution: 3.841459 is p = .05."""
    test = compare(121, 59)
    assert test.statistic == pytest.approx(3721 / 180)
    assert test.p_mcnemar == pytest.approx(5.447e-6, rel=1e-3)
    assert math.erfc(math.sqrt(3.841458820694124 / 2)) == pytest.approx(0.05)


def test_large_counts_neither_overflow_nor_vanish() -> None:
    """For 500,500 of 1,000,000 z = 1 with continuity 0.999: two-sided .3178."""
    test = compare(500_500, 499_500)
    assert test.p_sign == pytest.approx(0.3178, abs=2e-4)
    assert compare(1_000_000, 0).p_sign == 0.0


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="first, second: given -1 and 2, needed 0 or more"):
        compare(-1, 2)
