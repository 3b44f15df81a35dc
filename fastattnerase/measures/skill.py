"""Skill of a ranking: where it stands between a random order, 0, and the smallest set, 1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Floats, measure


class Skill(NamedTuple):
    """The skill of a ranking, by instance and over all.

    Attributes:
        values: `[N]`, of each instance; NaN where undefined.
        overall: `Σ gained / Σ possible`; None where it is undefined in every instance.
        undefined: instances in which a random order is as good as the smallest set.
        gained: `[N]`, `random − ranking`, never counted as everything.
        possible: `[N]`, `random − smallest`, at least 0.
    """

    values: Floats
    overall: float | None
    undefined: int
    gained: Floats
    possible: Floats


@measure(better="higher", low=-np.inf, high=1, random=0.0, best=1.0)
def skill(ranking: ArrayLike, random: ArrayLike, smallest: ArrayLike) -> Skill:
    """Measure how much of what separates a random order from the smallest set a ranking gains.

    `skill_i = (random_i − ranking_i) / (random_i − smallest_i)` on the fractions of items erased at
    the first flip, where one that never flips counts as 1: erasing everything did not do it. A
    random order has 0, the exact optimum 1, and what is worse than a random order less than 0. It
    is undefined where both ends are equal, as where no set flips or nothing less than everything.

    Over all instances it is `Σ (random − ranking) / Σ (random − smallest)`, the mean of the
    instances' skills, each weighted by what there was to gain. The plain mean of these is no
    substitute: where one drawn order is nearly the smallest set its denominator is nearly 0, and a
    few such instances decide; also, a random order would not have 0 on average.

    Args:
        ranking: `[N]` or `[N, K]` (several orders of one instance, averaged), fractions in [0, 1];
            NaN where the decision never changes.
        random: `[N]` or `[N, K]`, of random orders, likewise.
        smallest: `[N]`, of the smallest set, likewise.

    Returns:
        The skill of each instance, over all, and in how many it is undefined.

    Raises:
        ValueError: arguments of different numbers of instances, or a fraction out of [0, 1].

    Example:
        >>> from fastattnerase.measures.skill import skill
        >>> found = skill([0.5, 1.0, 1.0], [0.75, 0.5, 1.0], [0.25, 0.25, 1.0])
        >>> found.values.tolist(), found.overall, found.undefined
        ([0.5, -2.0, nan], -0.3333333333333333, 1)
    """
    of = {
        name: _counted(name, fractions)
        for name, fractions in (("ranking", ranking), ("random", random), ("smallest", smallest))
    }
    sizes = {len(values) for values in of.values()}
    if len(sizes) > 1:
        raise ValueError(
            f"ranking, random, smallest: given {', '.join(str(len(v)) for v in of.values())} "
            "instances, needed as many of each"
        )
    gained = of["random"] - of["ranking"]  # [N]
    possible = of["random"] - of["smallest"]  # [N]
    # Means of several orders are rounded: no set is larger than the smallest by less than this.
    possible = np.where(np.abs(possible) < 1e-12, 0.0, possible)
    defined = possible != 0
    values = np.full(len(gained), np.nan)
    np.divide(gained, possible, out=values, where=defined)
    total = float(possible.sum())
    return Skill(
        values,
        float(gained.sum()) / total if total else None,
        int((~defined).sum()),
        gained,
        possible,
    )


def _counted(name: str, fractions: ArrayLike) -> Floats:
    """Count what never flips as everything, and average over orders; `[N]`."""
    given = np.asarray(fractions, dtype=np.float64)
    columns = given[:, None] if given.ndim == 1 else given  # [N, K]
    counted = np.where(np.isnan(columns), 1.0, columns)
    if ((counted < 0) | (counted > 1)).any():
        wrong = counted[(counted < 0) | (counted > 1)][0]
        raise ValueError(f"{name}: given {wrong}, needed fractions in [0, 1] or NaN")
    return np.asarray(counted.mean(axis=1))
