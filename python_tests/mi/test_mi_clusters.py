"""Codebooks, and the rule that chooses one number of clusters for all ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fastattnerase.mi import Codebook, MeasurementError, mutual_information, quantise
from fastattnerase.mi.clusters import Algorithm


def blobs(n: int, centres: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points near `centres` corners, float32, with the corner of each."""
    rng = np.random.default_rng(seed)
    corner = np.arange(n) % centres
    points = rng.standard_normal((n, width)) * 0.01 + 5 * np.eye(centres, width)[corner]
    return points.astype(np.float32), corner


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return len({*zip(a.tolist(), b.tolist(), strict=True)}) == len(set(a)) == len(set(b))


@pytest.mark.parametrize("algorithm", ["full", "mini_batch"])
def test_separate_groups_are_found(algorithm: Algorithm) -> None:
    points, corner = blobs(60, 4, 6)
    book = Codebook(points.copy(), 4, algorithm=algorithm, restarts=5, seed=1)
    assert same_partition(book.labels, corner)
    assert book.assign(points.copy()).tolist() == book.labels.tolist()
    assert book.assign(5 * np.eye(4, 6, dtype=np.float32)).tolist() == book.labels[:4].tolist()
    mean = np.stack([points[corner == c].mean(axis=0) for c in range(4)])
    assert book.centres[book.labels[:4]] == pytest.approx(mean, abs=0.02)


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-10, 1e10, 1e36])
def test_scale_does_not_matter(scale: float) -> None:
    points, corner = blobs(60, 4, 6)
    scaled = (points.astype(np.float64) * scale).astype(np.float32)
    book = Codebook(scaled.copy(), 4, restarts=5, seed=1)
    assert same_partition(book.labels, corner)
    assert np.isfinite(book.centres).all()
    assert book.centres[book.labels[0]] == pytest.approx(
        points[corner == 0].mean(axis=0) * scale, rel=0.2, abs=0.02 * scale
    )


def test_wide_vectors() -> None:
    points, corner = blobs(40, 3, 4096)
    assert same_partition(Codebook(points, 3, restarts=5).labels, corner)


def test_threads_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((1500, 16)).astype(np.float32)
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            found.append(Codebook(points.copy(), 50, seed=7))
    assert found[0].labels.tolist() == found[1].labels.tolist() == found[2].labels.tolist()
    assert found[0].centres.tolist() == found[1].centres.tolist() == found[2].centres.tolist()
    assert Codebook(points.copy(), 50, seed=8).labels.tolist() != found[0].labels.tolist()


def test_equal_rows_are_one_cluster_and_carry_no_information() -> None:
    labels = Codebook(np.full((10, 4), 2.5, dtype=np.float32), 3).labels
    assert len(set(labels.tolist())) == 1
    assert mutual_information(labels, np.arange(10) % 2).plug_in == 0
    assert len(set(Codebook(np.zeros((10, 4)), 3).labels.tolist())) == 1


def test_fewer_vectors_than_clusters() -> None:
    with pytest.raises(MeasurementError) as raised:
        Codebook(np.zeros((3, 2)), 5, what="rank 7")
    assert "clusters: given 5, needed at most 3, the vectors of rank 7; ask for fewer" in str(
        raised.value
    )
    with pytest.raises(ValueError, match="clusters: given 0"):
        Codebook(np.zeros((3, 2)), 0)


# --- the rule ---------------------------------------------------------------------------------


def even_up_to(limits: list[int], size: int, calls: list[tuple[int, int]]) -> Callable:
    """Fits of even clusters up to `limits[group]` centres, with a singleton beyond."""

    def fit(group: int, clusters: int) -> np.ndarray:
        calls.append((group, clusters))
        if clusters <= limits[group]:
            return np.arange(size) % clusters
        return np.concatenate([np.arange(size - 1) % (clusters - 1), [clusters - 1]])

    return fit


def test_the_largest_number_that_suits_every_rank() -> None:
    calls: list[tuple[int, int]] = []
    found = quantise(even_up_to([200, 120, 180], 1000, calls), [1000] * 3)
    assert (found.clusters, found.passed, found.tried) == (100, True, [200, 150, 100])
    assert [int(labels.max()) + 1 for labels in found.labels] == [100] * 3
    # 200 fails at the second rank, which is then tried first.
    assert calls == [(0, 200), (1, 200), (1, 150), (1, 100), (0, 100), (2, 100)]


def test_the_smallest_number_that_suits_every_rank() -> None:
    found = quantise(even_up_to([200, 120], 1000, []), [1000] * 2, clusters="smallest")
    assert (found.clusters, found.passed, found.tried) == (50, True, [50])


def test_numbers_that_cannot_have_two_samples_each_are_not_tried() -> None:
    found = quantise(even_up_to([200, 200], 160, []), [160, 1000])
    assert (found.clusters, found.tried) == (75, [75])


@pytest.mark.parametrize(("size", "clusters"), [(1000, 50), (249, 49), (250, 50), (12, 2)])
def test_the_fallback_is_the_smallest_number_but_a_fifth_of_the_samples(
    size: int, clusters: int
) -> None:
    found = quantise(even_up_to([1], size, []), [size])
    assert (found.clusters, found.passed) == (clusters, False)
    assert np.bincount(found.labels[0]).min() == 1
    fine = quantise(even_up_to([49], size, []), [size])
    assert fine.passed == (clusters <= 49)


def test_a_given_number_is_taken() -> None:
    found = quantise(even_up_to([9, 3], 20, []), [20, 20], clusters=4)
    assert (found.clusters, found.passed, found.tried) == (4, False, [4])
    assert quantise(even_up_to([9, 9], 20, []), [20, 20], clusters=4).passed
    with pytest.raises(MeasurementError) as raised:
        quantise(even_up_to([9, 9], 20, []), [20, 3], clusters=5)
    assert "clusters: given 5, needed at most 3, the instances of rank 2" in str(raised.value)


def test_too_few_samples_for_the_rule() -> None:
    with pytest.raises(MeasurementError) as raised:
        quantise(even_up_to([9], 9, []), [9])
    assert "clusters: given 9 instances of rank 1, needed at least 10" in str(raised.value)


def test_an_empty_centre_does_not_have_two_samples() -> None:
    found = quantise(lambda group, clusters: np.arange(400) % 3, [400])
    assert not found.passed
    assert found.tried == [200, 150, 100, 75, 50, 50]
