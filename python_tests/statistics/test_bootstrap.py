"""Bootstrap intervals: known values, undefined samples, seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fastattnerase.statistics.bootstrap import SUMMARY, Estimate, means, summarise


def test_values_are_those_of_numpy() -> None:
    sample = np.array([4.0, 1.0, np.nan, 3.0, 10.0])
    found = summarise(sample, name="x", seed=0, resamples=10)
    assert tuple(found) == SUMMARY
    assert found["share"].value == 0.8
    assert found["mean"].value == 4.5
    assert [found[q].value for q in ("q1", "median", "q3")] == [2.5, 3.5, 5.5]


def test_quartiles_of_a_resample_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One resample, drawn by hand: rows 2, 0, 2, 2 of four with two columns."""

    class Drawn:
        def integers(self, low: int, high: int, size: int) -> np.ndarray:
            assert (low, high, size) == (0, 4, 4)
            return np.array([2, 0, 2, 2])

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Drawn())
    sample = np.array([[5.0, np.nan], [9.0, 9.0], [1.0, 4.0], [np.nan, np.nan]])
    found = summarise(sample, name="x", seed=0, resamples=1)
    pooled = np.array([5.0, 1.0, 4.0, 1.0, 4.0, 1.0, 4.0])
    assert found["share"].low == 7 / 8
    assert found["mean"].low == pytest.approx(pooled.mean())
    quartiles = [found[key].low for key in ("q1", "median", "q3")]
    assert quartiles == np.quantile(pooled, [0.25, 0.5, 0.75]).tolist()


def test_columns_are_pooled_and_rows_stay_together() -> None:
    # Two orders of each instance: resampling rows keeps the mean of each pair, 1 in all.
    sample = np.array([[0.0, 2.0], [1.0, 1.0], [0.5, 1.5]])
    found = summarise(sample, name="x", seed=0, resamples=50)
    assert found["mean"] == Estimate(1.0, 1.0, 1.0)
    assert found["median"].value == 1.0


def test_intervals_agree_with_scipy() -> None:
    sample = np.random.default_rng(1).exponential(size=200)
    ours = summarise(sample, name="x", seed=0, resamples=4000)
    for key, statistic in (("mean", np.mean), ("median", np.median)):
        theirs = stats.bootstrap(
            (sample,),
            statistic,
            n_resamples=4000,
            method="percentile",
            rng=np.random.default_rng(2),
        ).confidence_interval
        assert ours[key].low == pytest.approx(theirs.low, abs=0.04)
        assert ours[key].high == pytest.approx(theirs.high, abs=0.04)


def test_the_same_seed_gives_the_same_interval_and_another_name_another() -> None:
    sample = np.random.default_rng(0).normal(size=40)
    first = summarise(sample, name="x", seed=7, resamples=200)
    assert summarise(sample, name="x", seed=7, resamples=200) == first
    assert summarise(sample, name="y", seed=7, resamples=200)["mean"].low != first["mean"].low
    assert summarise(sample, name="x", seed=8, resamples=200)["mean"].low != first["mean"].low


@pytest.mark.parametrize("sample", [np.zeros(0), np.zeros((0, 3)), np.full(4, np.nan)])
def test_what_is_undefined_is_none(sample: np.ndarray) -> None:
    found = summarise(sample, name="x", seed=0, resamples=10)
    assert found["median"] == Estimate(None, None, None)
    assert found["share"].value == (None if len(sample) == 0 else 0.0)


def test_a_rare_statistic_has_an_interval_from_the_resamples_that_have_it() -> None:
    sample = np.array([3.0] + [np.nan] * 9)
    assert summarise(sample, name="x", seed=0, resamples=200)["mean"] == Estimate(3.0, 3.0, 3.0)


def test_means_of_columns() -> None:
    found = means(np.array([[1, 0], [1, 1], [1, 0], [1, 1]]), name="x", seed=0, resamples=100)
    assert found[0] == Estimate(1.0, 1.0, 1.0)
    assert found[1].value == 0.5
    assert found[1].low == pytest.approx(0.0, abs=0.26)
    assert means(np.zeros((0, 2)), name="x", seed=0) == [Estimate(None, None, None)] * 2
