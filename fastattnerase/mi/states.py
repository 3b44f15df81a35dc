"""Cluster labels of the states in every rank, with a codebook of each rank or of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.mi.clusters import Codebook, Labels, Quantised, quantise
from fastattnerase.mi.config import Config
from fastattnerase.mi.grouping import RankedStates


def quantise_states(
    ranked: RankedStates,
    k: int,
    used: NDArray[np.bool_],
    config: Config,
    report: Callable[[int, int], None],
) -> Quantised:
    """Label the states of the used instances in every rank."""
    sizes = [int(np.count_nonzero(used & (ranked.lengths >= rank))) for rank in range(1, k + 1)]

    def states(group_: int) -> NDArray[np.float32]:
        found = ranked.states(group_ + 1)
        chosen = used[ranked.instances(group_ + 1)]
        return found if chosen.all() else found[chosen]

    options: dict[str, Any] = {"algorithm": config.algorithm, "restarts": config.restarts}

    if config.codebook == "rank":

        def fit(group_: int, clusters: int) -> Labels:
            seed = _seed(config.seed, group_ + 1, clusters)
            return Codebook(
                states(group_), clusters, seed=seed, what=f"rank {group_ + 1}", **options
            ).labels

        told = _tell(fit, k, config, report)
        return quantise(told, sizes, clusters=config.clusters, candidates=config.candidates)

    share = -(-config.codebook_samples // len(sizes))

    def fit_shared(group_: int, clusters: int) -> Labels:
        rng = np.random.default_rng([config.seed, clusters])
        sample = np.concatenate(
            [
                states(r)[np.sort(rng.choice(n, min(n, share), replace=False))]
                for r, n in enumerate(sizes)
            ]
        )
        seed = _seed(config.seed, 0, clusters)
        book = Codebook(
            sample, clusters, seed=seed, what="the sample for the shared codebook", **options
        )
        return np.concatenate([book.assign(states(r)) for r in range(len(sizes))])

    together = quantise(
        _tell(fit_shared, 1, config, report),
        [sum(sizes)],
        clusters=config.clusters,
        candidates=config.candidates,
        names=["the union of all ranks"],
    )
    labels = np.split(together.labels[0], np.cumsum(sizes)[:-1])
    return Quantised(labels, together.clusters, together.passed, together.tried)


def _tell(
    fit: Callable[[int, int], Labels], k: int, config: Config, report: Callable[[int, int], None]
) -> Callable[[int, int], Labels]:
    """Report how many fits are done, of as many as there may be."""
    done, most = 0, k if isinstance(config.clusters, int) else k * (len(config.candidates) + 1)
    report(done, most)

    def told(group_: int, clusters: int) -> Labels:
        nonlocal done
        labels = fit(group_, clusters)
        done += 1
        report(done, most)
        return labels

    return told


def _seed(seed: int, rank: int, clusters: int) -> int:
    """Derive a seed of k-means from these three alone."""
    return int(np.random.SeedSequence([seed, rank, clusters]).generate_state(1)[0])
