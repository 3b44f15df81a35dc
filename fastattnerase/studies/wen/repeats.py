"""A tau measured again: under other seeds of k-means, and where attention knows nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = Any


@dataclass(frozen=True)
class Repeats:
    """One tau of a model measured again; NaN where it was not, or is undefined.

    Attributes:
        kmeans_low: Smallest under several seeds of k-means.
        kmeans_high: Largest under several seeds of k-means.
        kmeans_difference: Mean absolute difference between two seeds of k-means.
        permuted: Mean with weights permuted within each instance and outputs computed anew.
        permuted_low: Smallest of these.
        permuted_high: Largest of these.
        equal: With the outputs of equal weights, ranks as they are.
        untrained: With untrained attention.
    """

    kmeans_low: float = math.nan
    kmeans_high: float = math.nan
    kmeans_difference: float = math.nan
    permuted: float = math.nan
    permuted_low: float = math.nan
    permuted_high: float = math.nan
    equal: float = math.nan
    untrained: float = math.nan


def repeats_of(table: DataFrame | None, statistic: str) -> Repeats:
    """Read the repeats of one statistic of a measurement; all NaN without the table.

    Example:
        >>> repeats_of(None, "kendall").equal
        nan
    """
    if table is None:
        return Repeats()
    own = table[table["statistic"] == statistic].dropna(subset=["value"])

    def values(name: str) -> list[float]:
        return [float(value) for value in own.loc[own["measurement"] == name, "value"]]

    def mean(numbers: list[float]) -> float:
        return sum(numbers) / len(numbers) if numbers else math.nan

    seeds, permuted = values("kmeans"), values("permuted")
    several = seeds if len(seeds) > 1 else []
    return Repeats(
        min(several, default=math.nan),
        max(several, default=math.nan),
        mean([abs(a - b) for a, b in combinations(several, 2)]),
        mean(permuted),
        min(permuted, default=math.nan),
        max(permuted, default=math.nan),
        mean(values("equal")),
        mean(values("untrained")),
    )
