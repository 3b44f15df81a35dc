"""Draws of splits: shares, quotas, and length limits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fastattnerase.data import DataConfig, DataError
from fastattnerase.data.splits import draw_splits


def never(rows: np.ndarray) -> np.ndarray:
    raise AssertionError("no length limit is set")


def draw(config: DataConfig, rows: int, given: list[int] | None = None) -> list[int]:
    labels = ["ab"[row % 2] for row in range(rows)]
    splits = np.array(given or [0] * rows, dtype=np.int64)
    return draw_splits(np.arange(rows), labels, splits, config, never).tolist()


def test_independent_draws_follow_the_shares() -> None:
    config = DataConfig(draw="independent", fractions=(0.8, 0.1, 0.1), seed=1)
    counts = Counter(draw(config, 20_000))
    # Five standard deviations of a binomial with n = 20,000 are 283 for .8 and 212 for .1.
    assert abs(counts[0] - 16_000) < 283
    assert abs(counts[1] - 2_000) < 212
    assert abs(counts[2] - 2_000) < 212


def test_independent_draws_do_not_depend_on_other_rows() -> None:
    config = DataConfig(draw="independent", seed=1)
    assert draw(config, 500)[:100] == draw(config, 100)
    assert draw(DataConfig(draw="independent", seed=2), 500) != draw(config, 500)


def test_independent_draws_keep_given_splits_and_share_out_the_rest() -> None:
    config = DataConfig(draw="independent", fractions=(0.45, 0.05, 0.5), seed=1)
    result = draw(config, 4_000, [0] * 3_000 + [2] * 1_000)
    assert result[3_000:] == [2] * 1_000
    counts = Counter(result[:3_000])
    assert set(counts) == {0, 1}
    assert abs(counts[1] - 300) < 83  # a tenth, five standard deviations


def test_quotas_of_each_class() -> None:
    config = DataConfig(draw="quota", quota=(5, 3, 2), seed=1)
    result = draw(config, 40)
    for label in (0, 1):
        assert Counter(result[label::2]) == {0: 5, 1: 3, 2: 2, -1: 10}
    # Six rows of a class for ten: test has 6 * 2 / 10 of them, dev 6 * 3 / 10, rounded down.
    assert Counter(draw(config, 12)[::2]) == {2: 1, 1: 1, 0: 4}


def test_quotas_of_given_splits() -> None:
    config = DataConfig(draw="quota", quota=(5, 3, 2), seed=1)
    result = draw(config, 60, [0] * 40 + [2] * 20)
    assert Counter(result[:40]) == {0: 10, 1: 6, -1: 24}
    assert Counter(result[40:]) == {2: 4, -1: 16}


def test_long_documents_are_replaced_where_limits_hold() -> None:
    config = DataConfig(
        draw="quota", quota=(6, 2, 3), max_sentences=1, limited_splits=("train", "dev"), seed=1
    )
    rows = 60
    asked: list[int] = []

    def fits(indices: np.ndarray) -> np.ndarray:
        asked.extend(indices.tolist())
        return indices % 3 != 0

    labels = ["ab"[row % 2] for row in range(rows)]
    zeros = np.zeros(rows, dtype=np.int64)
    result = draw_splits(np.arange(rows), labels, zeros, config, fits)
    for label in (0, 1):
        assert Counter(result[label::2].tolist()) == {0: 6, 1: 2, 2: 3, -1: 19}
    assert (np.flatnonzero((result == 0) | (result == 1)) % 3 != 0).all()
    assert sorted(asked) == sorted(set(asked))  # each row is looked at once
    assert len(asked) < 40
    # Test has no limit: it is what it is without one.
    free = draw_splits(
        np.arange(rows), labels, zeros, DataConfig(draw="quota", quota=(6, 2, 3), seed=1), never
    )
    assert (free == 2).tolist() == (result == 2).tolist()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"draw": "quota"}, "quota: given .* needed with draw 'quota'"),
        ({"quota": (1, 1, 1)}, "quota: given .* needed with draw 'quota'"),
        ({"draw": "quota", "quota": (1, -1, 1)}, r"quota: given \(1, -1, 1\)"),
        ({"draw": "other"}, "draw: given 'other'"),
        ({"limited_splits": ("training",)}, r"limited_splits: given \['training'\]"),
        ({"max_sentences": 0}, "max_sentences: given 0"),
        ({"classes": ("a", "a")}, "at least two distinct labels"),
    ],
)
def test_bad_options(values: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataConfig(**values)  # type: ignore[arg-type]


def test_options_survive_json() -> None:
    config = DataConfig(draw="quota", quota=(1, 2, 3), classes=("x", "y"), max_sentences=4)
    assert DataConfig.from_dict(config.to_dict()) == config
