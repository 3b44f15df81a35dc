"""Sums over the rows of resamples."""

from __future__ import annotations

import numpy as np
import pytest

from fastattnerase.statistics.sums import Sums


@pytest.mark.parametrize("largest", [1, 1000, 2**40])  # the last beyond single precision
def test_sums_of_whole_numbers_are_exact(largest: int) -> None:
    chance = np.random.default_rng(0)
    columns = chance.integers(-largest, largest + 1, (50, 7))
    columns[:, 4] = columns[:, 1]
    counts = chance.integers(0, 4, (9, 50)).astype(np.uint8)
    found = Sums(columns.astype(np.float64)).of(counts)
    assert found.tolist() == (counts.astype(np.int64) @ columns).tolist()


def test_columns_keep_their_places_and_alike_ones_have_one_sum() -> None:
    chance = np.random.default_rng(1)
    columns = chance.random((30, 6))
    columns[:, 2] = 1.0
    columns[:, 5] = columns[:, 0]
    counts = chance.integers(0, 3, (8, 30)).astype(np.uint8)
    found = Sums(columns).of(counts)
    assert found[:, 5].tolist() == found[:, 0].tolist()
    assert found[:, 2].tolist() == counts.sum(axis=1).tolist()
    assert np.allclose(found, counts.astype(np.float64) @ columns, rtol=1e-13, atol=0)


def test_matrices_side_by_side_are_one() -> None:
    chance = np.random.default_rng(2)
    first, second = chance.random((20, 3)), chance.integers(0, 9, (20, 2)).astype(np.float64)
    counts = chance.integers(0, 3, (4, 20)).astype(np.uint8)
    together = Sums(np.concatenate([first, second], axis=1)).of(counts)
    assert Sums(first, second).of(counts).tolist() == together.tolist()


def test_no_columns() -> None:
    assert Sums(np.zeros((3, 0))).of(np.ones((2, 3), dtype=np.uint8)).shape == (2, 0)
