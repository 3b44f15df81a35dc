"""Rankings with every instance counted: one that a ranking never flips is beyond every fraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.measures.skill import skill
from fastattnerase.statistics.bootstrap import UNDEFINED, Estimate
from fastattnerase.statistics.together import Later
from fastattnerase.studies.serrano_smith.instance_tables import read_columns

with needs("text"):
    import pandas as pd

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Mean and quartiles of a quantity, each with its interval."""

    mean: Estimate
    q1: Estimate
    median: Estimate
    q3: Estimate


UNKNOWN = Spread(UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED)


@dataclass(frozen=True)
class Skills:
    """How much of what separates a random order from the smallest sets a ranking gains.

    Attributes:
        overall: over all instances together (`measures.skill`).
        undefined: instances in which a random order is as good as the smallest set.
        spread: of the instances' own, where defined.
    """

    overall: Estimate = UNDEFINED
    undefined: int = 0
    spread: Spread = UNKNOWN


@dataclass(frozen=True)
class Counted:
    """A ranking over all analysed instances, those that it never flips included.

    Attributes:
        fraction: of items erased at the first flip. Quartiles have never as beyond every fraction,
            and are infinite where they are among those; the mean has it as 1, everything.
        gap: items erased over those of the smallest set, over the instances of `choosable`; never
            is infinite, in the mean as well.
        skill: against a random order and the smallest sets; undefined where these are unknown.
    """

    fraction: Spread = UNKNOWN
    gap: Spread = UNKNOWN
    skill: Skills = Skills()


def choosable(smallest: pd.Series) -> NDArray[np.bool_]:
    """Find the instances in which a ranking can do better or worse than another.

    Where nothing less than erasing every item flips, or no set does, all rankings are equally
    good; gaps to the smallest set are summarised over the others.

    Args:
        smallest: `[N]`, fraction of the items in each smallest set, NaN where there is none.

    Returns:
        `[N]`: true where the smallest set exists and is not everything.
    """
    return np.asarray(smallest < 1)  # NaN is not


def smallest_sets(folder: Path) -> pd.Series:
    """Read the fractions of the smallest sets, NaN where there is none; empty where unknown."""
    table = read_columns(folder, "multi", ["first_flip", "fraction"], "minimal")
    return table["fraction"].where(table["first_flip"] > 0)


def count_all(folder: Path, later: Later) -> Callable[[str], Callable[[], Counted]]:
    """Prepare to describe rankings over all analysed instances, from the tables of a run.

    Args:
        folder: holds `multi.parquet`.
        later: draws the intervals.

    Returns:
        What reads a ranking by its name, and gives what describes it: three samples, and two more
        where smallest sets are known.
    """
    [random], smallest = _by_order(folder, "random", "fraction"), smallest_sets(folder)
    chosen, sizes = choosable(smallest), np.asarray(smallest, dtype=np.float64)

    def read(ranking: str) -> Callable[[], Counted]:
        fraction, gaps = _by_order(folder, ranking, "fraction", "gap")  # [N, orders]
        known = len(smallest) == len(fraction)
        judged = chosen if known else np.zeros(len(fraction), dtype=bool)
        gap = with_never(gaps[judged], later.of(judged))
        everything = np.where(np.isnan(fraction), 1.0, fraction).mean(axis=1, keepdims=True)
        means = later.means(everything)
        quartiles = with_never(fraction, later)
        skills = _skill(fraction, random, sizes, later) if known else Skills

        def describe() -> Counted:
            [mean], found = means(), quartiles()
            return Counted(Spread(mean, found.q1, found.median, found.q3), gap(), skills())

        return describe

    return read


def spread(values: Floats, later: Later) -> Callable[[], Spread]:
    """Describe a sample, `[N]` or `[N, K]`, in which NaN is "does not apply"."""
    found = later.summarise(values)
    return lambda: Spread(*(found()[key] for key in ("mean", "q1", "median", "q3")))


def with_never(values: Floats, later: Later) -> Callable[[], Spread]:
    """Describe a sample in which NaN is never, beyond every number.

    Args:
        values: `[N]` or `[N, K]`.
        later: draws the intervals.

    Returns:
        What gives mean and quartiles, infinite where they are among what never is.
    """
    return spread(np.where(np.isnan(values), np.inf, values), later)


def largest_weight(folder: Path, later: Later) -> Callable[[], Spread]:
    """Describe the largest attention weight of each analysed instance of a run."""
    table = read_columns(folder, "single", ["alpha"], "attention")
    return spread(table["alpha"].to_numpy(), later)


def _skill(ranking: Floats, random: Floats, smallest: Floats, later: Later) -> Callable[[], Skills]:
    found = skill(ranking, random, smallest)
    undefined = found.undefined
    overall, each = later.ratio(found.gained, found.possible), spread(found.values, later)
    return lambda: Skills(overall(), undefined, each())


def _by_order(folder: Path, ranking: str, *columns: str) -> list[Floats]:
    """Read columns by instance and random order, NaN where the decision never changes."""
    table = read_columns(folder, "multi", ["order", "first_flip", *columns], ranking)
    orders = 1 if table.empty else int(table["order"].max()) + 1
    by_order = [table[table["order"] == order] for order in range(orders)]
    return [
        np.stack(
            [
                part[column].where(part["first_flip"] > 0).to_numpy(dtype=np.float64)
                for part in by_order
            ],
            axis=1,
        )  # [N, orders]
        for column in columns
    ]
