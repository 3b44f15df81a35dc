"""What exact erasure alone can say of a run: numbers with intervals, from its tables alone.

Five parts: how much must go whatever the ranking, whether first flips last, the top item among all
items erased alone, skill by kind of instance, and curves over every prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.measures.skill import skill
from fastattnerase.statistics.bootstrap import UNDEFINED, Estimate
from fastattnerase.statistics.resampled import Floats, Ratios
from fastattnerase.statistics.two_level import SeedBootstrap
from fastattnerase.studies.serrano_smith.columns import fractions, lasting_fractions, seed_sizes
from fastattnerase.studies.serrano_smith.config import RANKINGS, SINGLE_RANKINGS
from fastattnerase.studies.serrano_smith.counted import smallest_sets
from fastattnerase.studies.serrano_smith.instance_tables import CURVED, PLACES, holds, read_columns
from fastattnerase.studies.serrano_smith.result import Result

with needs("text"):
    import pandas as pd

PARTS = ("minimum", "lasting", "items", "skill", "curves")
SAME, OTHERWISE = "as the bias decides", "otherwise"  # groups of instances by their decision
_QUARTERS = 4

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Number:
    """One number of a run.

    Attributes:
        part: of `PARTS`.
        quantity: what it is; see `describe`.
        ranking: of which; empty where of none.
        by: what instances are grouped by: `all`, `length`, `class`, `confidence` or `bias`.
        group: which of the groups.
        instances: in the group.
        estimate: over the instances of all seeds, with the interval of seeds and instances.
        values: of each seed; None where undefined, infinite where a median is never.
    """

    part: str
    quantity: str
    ranking: str
    by: str
    group: str
    instances: int
    estimate: Estimate
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Curve:
    """The mean curve of a ranking over prefixes, at the fractions `PLACES` of the items.

    Attributes:
        quantity: `js` or `label_prob`.
        ranking: by which items are erased.
        means: over the instances, each with its interval.
        q1: lower quartiles over the instances.
        q3: upper quartiles.
    """

    quantity: str
    ranking: str
    means: tuple[Estimate, ...]
    q1: tuple[float, ...]
    q3: tuple[float, ...]


@dataclass(frozen=True)
class Group:
    """Some instances of a run.

    Attributes:
        by: what they have in common, as of `Number`.
        name: which they are.
        rows: `[N]`, of the analysed instances.
    """

    by: str
    name: str
    rows: Mask


@dataclass(frozen=True)
class Exact:
    """What exact erasure says of a run.

    Attributes:
        numbers: of the parts that could be made.
        curves: of the last part.
        lacking: the parts of `PARTS` that a run of a version before has no columns for.
    """

    numbers: tuple[Number, ...] = ()
    curves: tuple[Curve, ...] = ()
    lacking: tuple[str, ...] = ()

    def find(
        self, quantity: str, ranking: str = "", by: str = "all", group: str = ""
    ) -> Number | None:
        """Find a number; None where it could not be made."""
        wanted = (quantity, ranking, by, group)
        for number in self.numbers:
            if (number.quantity, number.ranking, number.by, number.group) == wanted:
                return number
        return None

    def value(self, quantity: str, ranking: str = "", by: str = "all", group: str = "") -> Estimate:
        """Give the estimate of a number; undefined where there is none."""
        found = self.find(quantity, ranking, by, group)
        return UNDEFINED if found is None else found.estimate


def made(said: Sequence[Exact]) -> tuple[str, ...]:
    """Name the parts that some run has."""
    found = {number.part for exact in said for number in exact.numbers}
    return tuple(part for part in PARTS if part in found)


def describe(result: Result) -> Exact:
    """Compute what exact erasure alone can say of a run.

    Shares are of the analysed instances (times random orders), and what a ranking never flips
    counts as beyond every fraction in medians and as 1 in sums.

    Args:
        result: a finished run, of one seed or of several joined.

    Returns:
        Numbers by part. `minimum`: `smallest_fraction`, the median of the smallest set over the
        items; `unavoidable`, `Σ smallest / Σ ranking`, the share of what a ranking erases that no
        other could spare. `lasting`: `undone`, the share of the decisions that a ranking changes
        that erasing more, though not everything, changes back; `lasts`, the share of all instances
        in which a change stays; `first_fraction` and `lasting_fraction`, medians until the first
        change, and until it stays. `items`: `negative`, P(ΔJS < 0) over the random item; `first`,
        the share in which no other item alone moves the output more than the top one; `rank`, the
        median of its rank by JS among all. `skill`: `skill` (`measures.skill`), `flips`, the share
        that a ranking flips, and `some_set_flips`, the share that some, not all, items flip.
        `curves`: `js_area` and `label_prob_area`.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.exact import describe
        >>> from fastattnerase.studies.serrano_smith.result import load
        >>> describe(load(Path("run"))).value("undone", "attention")  # doctest: +SKIP
        Estimate(value=0.67, low=0.61, high=0.73)
    """
    sizes = seed_sizes(result)
    if not sum(sizes):
        return Exact()
    config = result.run.config
    numbers = _Numbers(
        SeedBootstrap(
            sizes, seed=config.seed, resamples=config.resamples, confidence=config.confidence
        )
    )
    lacking = []
    smallest = np.asarray(smallest_sets(result.folder).fillna(math.inf), dtype=np.float64)
    parted = groups(result)
    if len(smallest):
        _minimum(numbers, result, smallest, parted)
        _skill(numbers, result, smallest, parted)
    if not _lasting(numbers, result):
        lacking.append("lasting")
    if not _items(numbers, result):
        lacking.append("items")
    quartiles = _curves(numbers, result)
    if not quartiles:
        lacking.append("curves")
    found = numbers.all()
    points = [number for number in found if number.by == "point"]
    curves = tuple(
        Curve(
            quantity,
            ranking,
            tuple(n.estimate for n in points if (n.quantity, n.ranking) == (quantity, ranking)),
            *ends,
        )
        for (quantity, ranking), ends in quartiles.items()
    )
    kept = tuple(number for number in found if number.by != "point")
    return Exact(kept, curves, tuple(lacking))


class _Numbers:
    """Collects numbers, and estimates all that are ratios of sums together."""

    def __init__(self, bootstrap: SeedBootstrap) -> None:
        self._bootstrap = bootstrap
        self._begins = np.cumsum([0, *bootstrap.sizes[:-1]])
        self._medians: list[Number] = []
        self._about: list[tuple[str, str, str, str, str, int]] = []
        self._above: list[Floats] = []
        self._below: list[Floats] = []
        self._which: list[int] = []

    def divisor(self, below: Floats | Mask) -> int:
        """Take what sums are divided by, `[N]`; give its number."""
        self._below.append(np.asarray(below, dtype=np.float64))
        return len(self._below) - 1

    def ratio(
        self,
        part: str,
        quantity: str,
        ranking: str,
        above: Floats | Mask,
        divisor: int,
        group: Group | None = None,
    ) -> None:
        """Take a number that is `Σ above / Σ below`, `above` of `[N]`."""
        by, name = ("all", "") if group is None else (group.by, group.name)
        instances = len(above) if group is None else int(group.rows.sum())
        self._about.append((part, quantity, ranking, by, name, instances))
        self._above.append(np.asarray(above, dtype=np.float64))
        self._which.append(divisor)

    def median(
        self, part: str, quantity: str, ranking: str, sample: Floats, group: Group | None = None
    ) -> None:
        """Take a number that is a median, of `[N]` or `[N, K]`, infinite for never."""
        by, name = ("all", "") if group is None else (group.by, group.name)
        rows = np.ones(len(sample), dtype=bool) if group is None else group.rows
        seeds = np.split(sample, self._begins[1:])
        chosen = np.split(rows, self._begins[1:])
        values = tuple(_median(one[own]) for one, own in zip(seeds, chosen, strict=True))
        estimate = self._bootstrap.of(rows).against(sample[rows], 0.0, "median").estimate
        self._medians.append(
            Number(part, quantity, ranking, by, name, int(rows.sum()), estimate, values)
        )

    def all(self) -> list[Number]:
        """Give all numbers by part."""
        found = list(self._medians)
        if self._above:
            ratios = Ratios(
                np.stack(self._above, axis=1), np.stack(self._below, axis=1), self._which
            )
            [estimates] = self._bootstrap.intervals([ratios], len(ratios.columns))
            by_seed = ratios.of_sums(np.add.reduceat(ratios.columns, self._begins))  # [S, K]
            for place, about in enumerate(self._about):
                values = tuple(None if math.isnan(v) else float(v) for v in by_seed[:, place])
                found.append(Number(*about, estimates[place], values))
        return sorted(found, key=lambda number: PARTS.index(number.part))


def _median(sample: Floats) -> float | None:
    """Find the median of a sample in which never is infinite; None of an empty one."""
    ordered, last = np.sort(sample, axis=None), sample.size - 1
    if last < 0:
        return None
    low, high = ordered[last // 2], ordered[(last + 1) // 2]
    return float(low if low == high else (low + high) / 2)


# --- the parts -----------------------------------------------------------------------------------


def groups(result: Result) -> list[Group]:
    """Group the analysed instances: by length, class of the decision, confidence and bias.

    Lengths and confidences, the probability of the decision, are in quarters; empty groups are
    left out.
    """
    columns = ["n", "label", "bias_label", "probabilities", "excluded"]
    table = read_columns(result.folder, "instances", columns)
    table = table[table["excluded"] == ""]
    n = table["n"].to_numpy()
    sure = np.array([max(p) for p in table["probabilities"]], dtype=np.float64)
    found = [
        Group("length", f"quarter {quarter}: {n[rows].min():,} to {n[rows].max():,} items", rows)
        for quarter, rows in _quarters(n.astype(np.float64))
    ]
    labels = table["label"].to_numpy()
    found += [
        Group("class", result.run.classes[label], labels == label) for label in np.unique(labels)
    ]
    found += [
        Group(
            "confidence",
            f"quarter {quarter}: {sure[rows].min():.3f} to {sure[rows].max():.3f}",
            rows,
        )
        for quarter, rows in _quarters(sure)
    ]
    same = labels == table["bias_label"].to_numpy()
    found += [Group("bias", SAME, same), Group("bias", OTHERWISE, ~same)]
    return [group for group in found if group.rows.any()]


def _quarters(values: Floats) -> Iterator[tuple[int, Mask]]:
    """Split instances by a number into quarters of about the same size; equal numbers together."""
    edges = np.quantile(values, np.arange(1, _QUARTERS) / _QUARTERS)
    places = np.searchsorted(edges, values)
    for quarter in range(_QUARTERS):
        if (places == quarter).any():
            yield quarter + 1, places == quarter


def _wholly(fraction: Floats) -> Floats:
    """Average fractions `[N, orders]` over the orders, what never flips as 1; `[N]`."""
    return np.asarray(np.minimum(fraction, 1.0).mean(axis=1))


def _minimum(numbers: _Numbers, result: Result, smallest: Floats, parted: Sequence[Group]) -> None:
    numbers.median("minimum", "smallest_fraction", "minimal", smallest)
    for group in parted:
        if group.by in ("length", "bias"):
            numbers.median("minimum", "smallest_fraction", "minimal", smallest, group)
    needed = np.minimum(smallest, 1.0)
    for ranking in (*RANKINGS, *result.run.config.rankings):
        divisor = numbers.divisor(_wholly(fractions(result, ranking)))
        numbers.ratio("minimum", "unavoidable", ranking, needed, divisor)


def _lasting(numbers: _Numbers, result: Result) -> bool:
    """Describe whether first flips last; say whether the run has what it takes."""
    for ranking in (*RANKINGS, *result.run.config.rankings):
        first, stays = fractions(result, ranking), lasting_fractions(result, ranking)
        if stays is None:
            return False
        flips = np.isfinite(first)
        undone = (flips & (stays > first)).sum(axis=1)
        numbers.ratio("lasting", "undone", ranking, undone, numbers.divisor(flips.sum(axis=1)))
        lasts = np.isfinite(stays).mean(axis=1)
        numbers.ratio("lasting", "lasts", ranking, lasts, numbers.divisor(np.ones(len(lasts))))
        numbers.median("lasting", "first_fraction", ranking, first)
        numbers.median("lasting", "lasting_fraction", ranking, stays)
    return True


def top_ranks(result: Result, ranking: str) -> pd.DataFrame | None:
    """Rank the top item of a ranking among all items of its instance, by JS when erased alone.

    Args:
        result: a finished run.
        ranking: of `SINGLE_RANKINGS`.

    Returns:
        `n`, `rank` (1: no other item moves the output more) and `others_larger_share`, the share of
        the other items that do, which is P(ΔJS < 0) over the random item; None of a run that is
        older than that column.
    """
    column = "others_larger_share"
    if not holds(result.folder, "single", column):
        return None
    table = read_columns(result.folder, "single", [column], ranking)
    if table[column].isna().any():
        return None
    of = read_columns(result.folder, "instances", ["n", "excluded"])
    table["n"] = of.loc[of["excluded"] == "", "n"].to_numpy()
    table["rank"] = 1 + np.rint(table[column] * (table["n"] - 1)).astype(np.int64)
    return table


def _items(numbers: _Numbers, result: Result) -> bool:
    """Describe the top items among all; say whether the run has what it takes."""
    for ranking in SINGLE_RANKINGS:
        table = top_ranks(result, ranking)
        if table is None:
            return False
        everything = numbers.divisor(np.ones(len(table)))
        negative, rank = table["others_larger_share"].to_numpy(), table["rank"].to_numpy()
        numbers.ratio("items", "negative", ranking, negative, everything)
        numbers.ratio("items", "first", ranking, rank == 1, everything)
        numbers.median("items", "rank", ranking, rank.astype(np.float64))
    return True


def _skill(numbers: _Numbers, result: Result, smallest: Floats, parted: Sequence[Group]) -> None:
    random = fractions(result, "random")
    never = np.where(np.isfinite(smallest), smallest, np.nan)
    everyone = Group("all", "", np.ones(len(smallest), dtype=bool))
    whole = [(group, numbers.divisor(group.rows)) for group in (everyone, *parted)]
    for group, size in whole:
        numbers.ratio("skill", "some_set_flips", "", group.rows & (smallest < 1), size, group)
    possible: list[int] = []
    for ranking in (*SINGLE_RANKINGS, *result.run.config.rankings):
        fraction = fractions(result, ranking)
        found = skill(_or_nan(fraction), _or_nan(random), never)
        if not possible:
            possible = [numbers.divisor(found.possible * group.rows) for group, _ in whole]
        flips = np.isfinite(fraction).mean(axis=1)
        for (group, size), gain in zip(whole, possible, strict=True):
            numbers.ratio("skill", "skill", ranking, found.gained * group.rows, gain, group)
            numbers.ratio("skill", "flips", ranking, flips * group.rows, size, group)


def _or_nan(fraction: Floats) -> Floats:
    """Write never as NaN, as `measures.skill` has it."""
    return np.where(np.isfinite(fraction), fraction, np.nan)


def _curves(
    numbers: _Numbers, result: Result
) -> dict[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]]:
    """Describe curves and areas; give lower and upper quartiles, nothing where the run has none."""
    found: dict[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]] = {}
    if not holds(result.folder, "curves", "js"):
        return found
    everything: int | None = None
    for quantity in CURVED:
        for ranking in (*RANKINGS, *result.run.config.rankings):
            columns = [f"{quantity}_area", quantity]
            table = read_columns(result.folder, "curves", columns, ranking)
            points = np.stack(list(table[quantity])).astype(np.float64)  # [N, G]
            if everything is None:
                everything = numbers.divisor(np.ones(len(points)))
            area = table[f"{quantity}_area"].to_numpy()
            numbers.ratio("curves", f"{quantity}_area", ranking, area, everything)
            for place, column in zip(PLACES, points.T, strict=True):
                point = Group("point", f"{place}", np.ones(len(points), dtype=bool))
                numbers.ratio("curves", quantity, ranking, column, everything, point)
            q1, q3 = np.quantile(points, (0.25, 0.75), axis=0).tolist()
            found[quantity, ranking] = tuple(q1), tuple(q3)
    return found
