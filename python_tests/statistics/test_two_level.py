"""The bootstrap of seeds and instances: enumerated, analytic, drawn row by row, one seed."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from fastattnerase.statistics import bootstrap
from fastattnerase.statistics.bootstrap import Bootstrap, Estimate
from fastattnerase.statistics.resampled import SUMMARY, between
from fastattnerase.statistics.two_level import SeedBootstrap, SeedSpread, spread

INF = math.inf


def _means(two: SeedBootstrap, sample: np.ndarray) -> np.ndarray:
    """Draw the resamples and give the mean of each."""
    blocks = list(two._blocks(len(sample)))
    counts = np.concatenate([block.counts() for block in blocks]).astype(np.float64)
    return np.asarray(counts @ sample / counts.sum(axis=1))


def test_two_seeds_of_two_instances_enumerated() -> None:
    """Seeds (0, 1) and (2, 6): 4 pairs of seeds times 16 draws of instances, all as likely."""
    seeds = [(0.0, 1.0), (2.0, 6.0)]
    exact = Counter(
        (a + b + c + d) / 4
        for first, second in itertools.product(seeds, repeat=2)
        for a, b, c, d in itertools.product(first, first, second, second)
    )
    assert sum(exact.values()) == 64
    drawn = _means(SeedBootstrap((2, 2), seed=0, resamples=64_000), np.array([0.0, 1.0, 2.0, 6.0]))
    found = Counter(drawn.tolist())
    assert found.keys() == exact.keys()
    for mean, count in exact.items():
        # Five standard errors of a count.
        error = 5 * math.sqrt(1000 * count * (1 - count / 64))
        assert abs(found[mean] - 1000 * count) < error
    # Of 64 the 4th and the 61st are the ends of the middle 90 %.
    values = sorted(exact.elements())
    [estimate] = SeedBootstrap((2, 2), seed=1, resamples=20_000, confidence=0.9).means(
        np.array([[0.0], [1.0], [2.0], [6.0]])
    )
    assert estimate == Estimate(2.25, values[3], values[60])


def test_variance_of_the_mean_of_a_balanced_design() -> None:
    """Given the sample: (b + w / n) / S. Over samples of a normal design with variances σ_b², σ_w²:
    its expectation, ((σ_b² + σ_w²/n)(S − 1)/S + σ_w² (n − 1)/n²) / S."""
    seeds, n, between_seeds, within = 4, 6, 0.5, 2.0
    chance = np.random.default_rng(0)
    expected = (between_seeds + within / n) * (seeds - 1) / seeds + within * (n - 1) / n**2
    expected /= seeds
    variances = []
    for repeat in range(300):
        seed_means = chance.normal(0, math.sqrt(between_seeds), (seeds, 1))
        sample = seed_means + chance.normal(0, math.sqrt(within), (seeds, n))
        b, w = sample.mean(axis=1).var(), sample.var(axis=1).mean()
        variances.append((b + w / n) / seeds)
        if repeat < 3:
            two = SeedBootstrap((n,) * seeds, seed=repeat, resamples=40_000)
            assert _means(two, sample.ravel()).var() == pytest.approx(variances[-1], rel=0.04)
    error = np.std(variances) / math.sqrt(len(variances))
    assert abs(np.mean(variances) - expected) < 4 * error


@pytest.mark.parametrize("sizes", [(3, 3), (1, 4, 2), (40, 25, 30)])
@pytest.mark.parametrize("chunk", [1, 1 << 18])
def test_resamples_are_drawn_with_the_seed(
    sizes: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each resample drawn row by row and described by numpy: two columns, some without value."""
    monkeypatch.setattr(bootstrap, "_CHUNK", chunk)
    chance = np.random.default_rng(sum(sizes))
    sample = np.round(chance.normal(size=(sum(sizes), 2)), 1)
    sample[chance.random(sample.shape) < 0.3] = np.nan
    sample[0, 0] = 0.3
    rng = np.random.default_rng(5)
    drawn = rng.integers(0, len(sizes), (40, len(sizes)))
    begins = np.cumsum([0, *sizes])
    expected: dict[str, list[float]] = {key: [] for key in SUMMARY}
    for seeds in drawn:
        rows = np.concatenate(
            [begins[seed] + rng.integers(0, np.full(sizes[seed], sizes[seed])) for seed in seeds]
        )
        pooled = sample[rows].ravel()
        known = pooled[~np.isnan(pooled)]
        expected["share"].append(len(known) / len(pooled))
        if len(known):
            expected["mean"].append(known.mean())
            for key, share in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
                expected[key].append(np.quantile(known, share))
    found = SeedBootstrap(sizes, seed=5, resamples=40, confidence=0.9).summarise(sample)
    for key, values in expected.items():
        ends = np.percentile(values, [5, 95])
        assert (found[key].low, found[key].high) == pytest.approx(tuple(ends), rel=1e-12)


def test_one_seed_is_the_plain_bootstrap() -> None:
    sample = np.random.default_rng(0).normal(size=(30, 2))
    one, plain = SeedBootstrap((30,), seed=3, resamples=60), Bootstrap(seed=3, resamples=60)
    assert one.summarise(sample) == plain.summarise(sample)
    assert one.means(sample) == plain.means(sample)


def test_seeds_that_differ_widen_the_interval() -> None:
    apart = np.repeat([0.0, 1.0, 2.0], 50)
    # Of 27 draws of three seeds one takes the first alone, and one the last.
    two = SeedBootstrap((50,) * 3, seed=0, resamples=2000, confidence=0.94).summarise(apart)["mean"]
    one = Bootstrap(seed=0, resamples=500).summarise(apart)["mean"]
    assert two == Estimate(1.0, 0.0, 2.0)
    assert one.low is not None
    assert one.low > 0.8


def test_a_median_counts_what_is_infinite() -> None:
    found = SeedBootstrap((5,), seed=0, resamples=300).summarise(
        np.array([0.1, 0.2, 0.4, INF, INF])
    )
    assert found["median"].value == 0.4
    assert (found["median"].low, found["median"].high) == (0.1, INF)
    assert found["mean"].value == INF
    most = SeedBootstrap((4,), seed=0, resamples=50).summarise(np.array([0.1, INF, INF, INF]))
    assert most["median"].value == INF
    low = Bootstrap(seed=0, resamples=50).summarise(np.array([-INF, -INF, 1.0]))
    assert (low["mean"].value, low["median"].value) == (-INF, -INF)


def test_between_two_values() -> None:
    low = np.array([1.0, 1.0, -INF, -INF, -INF, INF, 2.0])
    high = np.array([2.0, INF, 3.0, INF, INF, INF, INF])
    share = np.array([0.25, 0.5, 0.5, 0.4, 0.5, 0.5, 0.0])
    assert between(low, high, share).tolist() == [1.25, INF, -INF, -INF, INF, INF, 2.0]


def test_a_difference_resamples_both_together() -> None:
    first = np.array([1.0, 2.0, 5.0, INF, 9.0, 4.0])
    two = SeedBootstrap((3, 3), seed=0, resamples=199)
    moved = two.difference(first + 0.5, first)  # the same in every resample
    assert (moved.estimate.value, moved.estimate.high) == (0.5, 0.5)
    assert moved.estimate.low in (0.0, 0.5)  # 0 where both medians are infinite
    assert two.difference(first, first).p == 1.0
    assert two.difference(first, first).estimate == Estimate(0.0, 0.0, 0.0)
    never = two.difference(np.full(6, INF), np.ones(6))
    assert (never.estimate, never.p) == (Estimate(INF, INF, INF), 0.01)  # 2 / 200
    assert two.difference(np.ones(6), np.full(6, INF)).estimate.value == -INF
    undefined = two.difference(np.full(6, np.nan), np.ones(6))
    assert (undefined.estimate, undefined.p) == (Estimate(None, None, None), None)


def test_the_level_counts_the_resamples_on_the_other_side() -> None:
    sample = np.array([1.0, 1.0, 1.0, 0.0])
    two = SeedBootstrap((2, 2), seed=4, resamples=399)
    shares = _means(two, sample)
    fewer = min((shares <= 0.5).sum(), (shares >= 0.5).sum())
    found = two.against(sample, 0.5)
    assert found.estimate.value == 0.75
    assert found.p == pytest.approx(2 * (fewer + 1) / 400)


def test_spread_over_seeds() -> None:
    assert spread([0.5]) == SeedSpread(1, 0.5, None, 0.5, 0.5)
    assert spread([0.2, 0.4, 0.9]).sd == pytest.approx(math.sqrt(0.13))
    assert spread([1.0, INF]) == SeedSpread(2, INF, None, 1.0, INF)
    with pytest.raises(ValueError, match="values: given none"):
        spread([])


def test_a_part_of_the_rows_keeps_their_seeds() -> None:
    whole = SeedBootstrap((3, 2, 4), seed=0, resamples=30)
    rows = np.array([1, 0, 1, 0, 0, 1, 1, 1, 0], dtype=bool)
    part = whole.of(rows)
    assert part.sizes == (2, 3)  # the second seed has none
    sample = np.arange(9.0)
    assert part.means(sample[rows, None]) == SeedBootstrap((2, 3), seed=0, resamples=30).means(
        sample[rows, None]
    )
    assert whole.of(np.zeros(9, dtype=bool)).means(np.zeros((0, 1))) == [Estimate(None, None, None)]
    with pytest.raises(ValueError, match="sample: given 4 rows, needed those of"):
        part.summarise(sample[:4])
