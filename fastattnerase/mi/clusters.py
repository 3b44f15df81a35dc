"""Quantisation: vectors to cluster labels by scikit-learn's k-means, and the number of clusters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.mi.config import CANDIDATES, Algorithm, Search
from fastattnerase.mi.errors import MeasurementError
from fastattnerase.plurals import counted

Labels = NDArray[np.int32]
Vectors = NDArray[Any]  # [n, D], float32 or float64

_SHARE = 5  # the fallback has at most one cluster for this many samples


class Codebook:
    """The centres of one k-means fit; maps vectors to the nearest.

    The fit is on one thread, so that its result depends on the vectors, the options and the seed
    alone. Vectors are divided by a power of two before, so that no square leaves float32.

    Args:
        vectors: `[n, D]` float32 or float64, finite; overwritten.
        clusters: centres asked for, at most `n`; where fewer vectors differ, fewer are used.
        algorithm: `full`: Lloyd's iteration over all vectors. `mini_batch`: over samples, less
            exact and quicker for very many vectors.
        restarts: fits from different k-means++ starts, of which the best is kept.
        seed: of the starts.
        what: the vectors' name in errors.
        option: of the command line, that sets the number of clusters; for errors.

    Raises:
        MeasurementError: fewer vectors than clusters.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.mi import Codebook
        >>> labels = Codebook(np.array([[0.0], [0.1], [9.0]]), 2, seed=0).labels
        >>> bool(labels[0] == labels[1] != labels[2])
        True
    """

    def __init__(
        self,
        vectors: Vectors,
        clusters: int,
        *,
        algorithm: Algorithm = "full",
        restarts: int = 1,
        seed: int = 0,
        what: str = "the sample",
        option: str = "--clusters",
    ) -> None:
        with needs("text"):
            from sklearn.cluster import KMeans, MiniBatchKMeans
        n = len(vectors)
        if clusters < 1:
            raise ValueError(f"clusters: given {clusters}, needed 1 or more")
        if n < clusters:
            raise MeasurementError(
                f"{option[2:].replace('-', '_')}: given {clusters}, needed at most {n}, the "
                f"vectors of {what}; ask for fewer clusters ({option}) or measure more instances"
            )
        largest = float(np.abs(vectors).max(initial=0.0))
        self._scale = 2.0 ** min(126, -math.frexp(largest)[1])
        vectors *= self._scale
        kind = KMeans if algorithm == "full" else MiniBatchKMeans
        options = {"copy_x": False} if algorithm == "full" else {}
        model = kind(clusters, n_init=restarts, random_state=seed, **options)
        with _one_thread():
            model.fit(vectors)
        self._model = model
        self.centres: NDArray[np.float64] = model.cluster_centers_ / self._scale  # [N, D]
        self.labels: Labels = np.asarray(model.labels_, dtype=np.int32)  # [n]

    def assign(self, vectors: Vectors) -> Labels:
        """Find the nearest centre of each vector [m, D], which is overwritten: `[m]`."""
        vectors *= self._scale
        with _one_thread():
            return np.asarray(self._model.predict(vectors), dtype=np.int32)


@contextmanager
def _one_thread() -> Iterator[None]:
    with needs("text"):
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits
    # Threads add their partial sums in the order in which they finish. Fewer distinct vectors
    # than clusters is what the number of occupied clusters reports.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@dataclass(frozen=True)
class Quantised:
    """Cluster labels of all ranks, with one number of clusters.

    Attributes:
        labels: for each rank, `[n_r]`.
        clusters: `N`, as asked for or found.
        passed: whether every centre has at least two samples.
        tried: the numbers of clusters that were fitted, in order.
    """

    labels: list[Labels]
    clusters: int
    passed: bool
    tried: list[int]


def quantise(
    fit: Callable[[int, int], Labels],
    sizes: Sequence[int],
    *,
    clusters: int | Search = "largest",
    candidates: Sequence[int] = CANDIDATES,
    names: Sequence[str] | None = None,
) -> Quantised:
    """Choose one number of clusters for all groups and label them.

    `largest`: the largest candidate that leaves every centre of every group two samples.
    `smallest`: the smallest such candidate, the literal reading of the paper, which is nearly
    always the first. Where none does: the smallest candidate, but at most a fifth of the samples.

    Args:
        fit: `fit(group, N)` labels the samples of a group with `N` clusters; one fit must not
            depend on another.
        sizes: samples of each group.
        clusters: the rule, or the number itself.
        candidates: what the rule chooses from.
        names: of the groups, for errors; `rank 1` and so on by default.

    Returns:
        The labels of every group with the number of clusters that was chosen.

    Raises:
        MeasurementError: fewer samples than clusters; too few samples for two clusters by the
            fallback.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 3.2.1: N = 50 to 200, "the minimal value that can
        ensure each centroid has at least two samples".

    Example:
        >>> import numpy as np
        >>> from fastattnerase.mi import quantise
        >>> chosen = quantise(lambda group, n: np.arange(12) % n, [12], candidates=(2, 6, 8))
        >>> chosen.clusters, chosen.passed
        (6, True)
    """
    fewest = min(sizes)
    group_name = f"rank {sizes.index(fewest) + 1}" if names is None else names[sizes.index(fewest)]
    if isinstance(clusters, int):
        if fewest < clusters:
            raise MeasurementError(
                f"clusters: given {clusters}, needed at most {fewest}, the instances of "
                f"{group_name}; ask for fewer clusters (--clusters) or ranks (--ranks), or measure "
                f"more instances"
            )
        labels = [fit(group, clusters) for group in range(len(sizes))]
        passed = all(_two_each(found, clusters) for found in labels)
        return Quantised(labels, clusters, passed, [clusters])
    tried = []
    order = list(range(len(sizes)))
    for number in sorted(candidates, reverse=clusters == "largest"):
        if 2 * number > fewest:
            continue
        tried.append(number)
        found: dict[int, Labels] = {}
        for group in order:
            found[group] = fit(group, number)
            if not _two_each(found[group], number):
                # The next candidate likely fails here too.
                order.remove(group)
                order.insert(0, group)
                break
        else:
            return Quantised([found[group] for group in range(len(sizes))], number, True, tried)
    number = min(min(candidates), fewest // _SHARE)
    if number < 2:
        raise MeasurementError(
            f"clusters: given {counted(fewest, 'instance')} of {group_name}, needed at least "
            f"{2 * _SHARE} to choose their number; measure more instances or fewer ranks "
            "(--ranks), or give the number of clusters (--clusters)"
        )
    labels = [fit(group, number) for group in range(len(sizes))]
    passed = all(_two_each(found, number) for found in labels)
    return Quantised(labels, number, passed, [*tried, number])


def _two_each(labels: Labels, clusters: int) -> bool:
    """Say whether every cluster has at least two samples."""
    return bool(np.bincount(labels, minlength=clusters).min() >= 2)
