"""Bootstrap intervals: known values, undefined samples, seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fastattnerase import threads
from fastattnerase.statistics import bootstrap, resampled, together
from fastattnerase.statistics.bootstrap import Bootstrap, Estimate
from fastattnerase.statistics.resampled import SUMMARY, Means, Summary
from fastattnerase.statistics.together import Later


def test_values_are_those_of_numpy() -> None:
    sample = np.array([4.0, 1.0, np.nan, 3.0, 10.0])
    found = Bootstrap(seed=0, resamples=10).summarise(sample)
    assert tuple(found) == SUMMARY
    assert found["share"].value == 0.8
    assert found["mean"].value == 4.5
    assert [found[q].value for q in ("q1", "median", "q3")] == [2.5, 3.5, 5.5]


@pytest.mark.parametrize("size", [1, 7, 300])
@pytest.mark.parametrize("chunk", [1, 1 << 18])
def test_resamples_are_rows_drawn_with_the_seed(
    size: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each resample drawn row by row, and described by numpy: three columns, some without value."""
    monkeypatch.setattr(bootstrap, "_CHUNK", chunk)
    chance = np.random.default_rng(size)
    sample = np.round(chance.normal(size=(size, 3)), 1)  # some are equal
    sample[chance.random((size, 3)) < 0.4] = np.nan
    sample[0, 0] = 0.3
    rng = np.random.default_rng(5)
    expected: dict[str, list[float]] = {key: [] for key in SUMMARY}
    for _ in range(40):
        pooled = sample[rng.integers(0, size, size)].ravel()
        pooled = pooled[~np.isnan(pooled)]
        expected["share"].append(len(pooled) / sample.size)
        if len(pooled):
            expected["mean"].append(pooled.mean())
            for key, share in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
                expected[key].append(np.quantile(pooled, share))
    found = Bootstrap(seed=5, resamples=40, confidence=0.9).summarise(sample)
    for key, values in expected.items():
        ends = np.percentile(values, [5, 95])
        assert (found[key].low, found[key].high) == pytest.approx(tuple(ends), rel=1e-12)


def test_a_quartile_far_from_the_sample_s_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked for where it is not, a quartile is looked for everywhere: with the same result."""
    sample = np.random.default_rng(0).normal(size=(40, 2))
    found = Bootstrap(seed=1, resamples=60).summarise(sample)
    monkeypatch.setattr(resampled, "_DEVIATIONS", 0)
    assert Bootstrap(seed=1, resamples=60).summarise(sample) == found


@pytest.mark.parametrize("held", [together._HELD, 0])
def test_what_is_wanted_later_is_what_is_wanted_now(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of two sizes, together; and one after another, where as little as that waits."""
    monkeypatch.setattr(together, "_HELD", held)
    sample = np.random.default_rng(0).normal(size=(50, 2))
    few = np.arange(50) < 40
    one = Bootstrap(seed=1, resamples=30)
    expected = [*one.summarise(sample).values(), *one.means(sample[few]), one.ratio(*sample.T)]
    told: list[int] = []
    later = Later(Bootstrap(seed=1, resamples=30, tell=lambda: told.append(1)))
    summary, means = later.summarise(sample), later.of(few).means(sample[few])
    ratio = later.ratio(*sample.T)
    assert len(told) == (0 if held else 3)
    found = [*summary().values(), *means(), ratio()]
    assert len(told) == 3
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.value, mine.low, mine.high) == pytest.approx(
            (theirs.value, theirs.low, theirs.high), rel=1e-12
        )


def test_means_see_the_same_resamples() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    one = Bootstrap(seed=3, resamples=60)
    [first, second] = one.means(rows)
    mean = one.summarise(rows[:, 0])["mean"]
    assert (first.low, first.high) == pytest.approx((mean.low, mean.high), rel=1e-12)
    assert second.low == pytest.approx(one.means(rows[:, 1:])[0].low, rel=1e-12)


def test_resamples_that_are_not_kept_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = np.random.default_rng(0).normal(size=50)
    kept = Bootstrap(seed=1, resamples=30)
    before = [kept.summarise(sample), kept.summarise(sample[:40]), kept.summarise(sample)]
    monkeypatch.setattr(bootstrap, "_KEPT", 0)
    drawn = Bootstrap(seed=1, resamples=30)
    assert [drawn.summarise(each) for each in (sample, sample[:40], sample)] == before


def test_each_sample_is_told_of() -> None:
    told: list[int] = []
    one = Bootstrap(seed=0, resamples=5, tell=lambda: told.append(len(told)))
    one.summarise(np.ones(4))
    one.summarise(np.ones(0))
    one.means(np.ones((4, 3)))
    assert told == [0, 1, 2]


def test_columns_are_pooled_and_rows_stay_together() -> None:
    # Two orders of each instance: resampling rows keeps the mean of each pair, 1 in all.
    sample = np.array([[0.0, 2.0], [1.0, 1.0], [0.5, 1.5]])
    found = Bootstrap(seed=0, resamples=50).summarise(sample)
    assert found["mean"] == Estimate(1.0, 1.0, 1.0)
    assert found["median"].value == 1.0


def test_intervals_agree_with_scipy() -> None:
    sample = np.random.default_rng(1).exponential(size=200)
    ours = Bootstrap(seed=0, resamples=4000).summarise(sample)
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


def test_the_same_seed_gives_the_same_interval_and_another_another() -> None:
    sample = np.random.default_rng(0).normal(size=40)
    first = Bootstrap(seed=7, resamples=200).summarise(sample)
    assert Bootstrap(seed=7, resamples=200).summarise(sample) == first
    assert Bootstrap(seed=8, resamples=200).summarise(sample)["mean"].low != first["mean"].low


@pytest.mark.parametrize("sample", [np.zeros(0), np.zeros((0, 3)), np.full(4, np.nan)])
def test_what_is_undefined_is_none(sample: np.ndarray) -> None:
    found = Bootstrap(seed=0, resamples=10).summarise(sample)
    assert found["median"] == Estimate(None, None, None)
    assert found["share"].value == (None if len(sample) == 0 else 0.0)


def test_a_rare_statistic_has_an_interval_from_the_resamples_that_have_it() -> None:
    sample = np.array([3.0] + [np.nan] * 9)
    assert Bootstrap(seed=0, resamples=200).summarise(sample)["mean"] == Estimate(3.0, 3.0, 3.0)


def test_means_of_columns() -> None:
    found = Bootstrap(seed=0, resamples=100).means(np.array([[1, 0], [1, 1], [1, 0], [1, 1]]))
    assert found[0] == Estimate(1.0, 1.0, 1.0)
    assert found[1].value == 0.5
    assert found[1].low == pytest.approx(0.0, abs=0.26)
    assert Bootstrap(seed=0).means(np.zeros((0, 2))) == [Estimate(None, None, None)] * 2


def test_threads_change_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """More counts than are worked on at a time: several blocks, of which each thread takes some."""
    sample = np.random.default_rng(0).normal(size=(3000, 2))
    assert len(sample) * 2000 > bootstrap._BLOCK

    def found() -> list[list[Estimate]]:
        own = Bootstrap(seed=3, resamples=2000)
        wanted = [Summary(sample), Means(sample)]
        drawn = own.intervals(wanted, len(sample))
        assert own.intervals(wanted, len(sample)) == drawn  # of resamples that were kept
        return drawn

    monkeypatch.setattr(threads, "cores", lambda: 3)
    with_threads = found()
    monkeypatch.setattr(threads, "cores", lambda: 1)
    assert found() == with_threads
