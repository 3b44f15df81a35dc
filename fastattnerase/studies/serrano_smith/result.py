"""A finished run: records of what was run and found, and its tables instance by instance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.runs import rundir
from fastattnerase.runs.records import read_record
from fastattnerase.statistics.bootstrap import UNDEFINED, Bootstrap, Estimate
from fastattnerase.statistics.together import Later
from fastattnerase.statistics.two_level import SeedSpread
from fastattnerase.studies.serrano_smith.config import FORMAT, KIND, Config
from fastattnerase.studies.serrano_smith.counted import (
    UNKNOWN,
    Counted,
    Spread,
    choosable,
    count_all,
    largest_weight,
)

with needs("text"):
    import pandas as pd

Floats = NDArray[np.float64]
_NOT_COUNTED = Counted()  # of a run that is older than the field


# --- what run.json and result.json hold ----------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What was run, and where.

    Attributes:
        name: of the model, for reports.
        config: of the experiment.
        source: what the source says of the instances; of a trained model `item`, `model_config`
            and `data`, of a study's models also `corpus`, `architecture`, `paper` and `statistics`.
            What a run is about is read from here alone (`records`), never from its name.
        classes: names of the classes.
        versions: of Python and packages.
        machine: processor, cores, GPU.
    """

    name: str
    config: Config
    source: dict[str, Any]
    classes: tuple[str, ...]
    versions: dict[str, str]
    machine: dict[str, Any]


@dataclass(frozen=True)
class SmallestSets:
    """In how many instances the smallest set that changes the decision is what.

    Attributes:
        known: instances in which it was looked for.
        none: no set changes the decision.
        everything: nothing less than all items does.
        some: a part of the items does.
    """

    known: int
    none: int
    everything: int
    some: int


@dataclass(frozen=True)
class NeverFlip:
    """Instances whose decision never changes, counted in two ways.

    Attributes:
        paper: the paper's words: under no ranking whatever.
        code: its code: by ranking, those that it never flips.
        flip_under_all: instances that flip under every ranking.
    """

    paper: int
    code: dict[str, int]
    flip_under_all: int


@dataclass(frozen=True)
class Counts:
    """Instances, counted.

    Attributes:
        instances: all.
        excluded: those left out, by reason.
        analysed: the others.
        label_is_bias_label: analysed ones that are decided as the bias alone decides.
        near_ties: those in which some compared sum is so near to zero that rounding could
            decide it.
        accuracy: of the decisions, where labels are known.
        compared_with_model: those for which the model's own decision is known.
        label_differs_from_model: of these, those that it decides otherwise.
        label_counts: analysed ones by decision, the number of the class.
        bias_label_counts: analysed ones by the decision of the bias alone.
        smallest_set: of the smallest sets.
        never_flip: those whose decision never changes.
        majority: share of the most frequent label, the accuracy of deciding it always; None where
            labels are unknown, or the run is older than this field.
    """

    instances: int
    excluded: dict[str, int]
    analysed: int
    label_is_bias_label: int
    near_ties: int
    accuracy: float | None
    compared_with_model: int
    label_differs_from_model: int
    label_counts: dict[str, int]
    bias_label_counts: dict[str, int]
    smallest_set: SmallestSets
    never_flip: NeverFlip
    majority: float | None = None


@dataclass(frozen=True)
class Uniform:
    """How far attention is from even: `KL(α‖1/n)` and `JS(α, 1/n)`, natural logarithm.

    Attributes:
        kl: of the divergence.
        js: likewise.
        largest: of the largest weight of an instance.
    """

    kl: Spread
    js: Spread
    largest: Spread = UNKNOWN


@dataclass(frozen=True)
class CountedShare:
    """A number of instances, and which share of the analysed ones it is, with its interval."""

    count: int
    value: float | None
    low: float | None
    high: float | None

    @property
    def estimate(self) -> Estimate:
        """The share."""
        return Estimate(self.value, self.low, self.high)


@dataclass(frozen=True)
class SingleWeight:
    """The single-weight test of a ranking: its top item against a random one, each erased alone.

    Attributes:
        ranking: its name.
        instances: analysed ones.
        contingency: by cell of `CELLS`, where which of the two flips, as drawn.
        expected_contingency: by rule of drawing the random item and cell (with `same_item`, where
            the random item is the top one), in exact expectation.
        mcnemar: McNemar's statistic of the cells in which one of the two flips alone.
        p_mcnemar: its probability.
        p_sign: of the exact sign test. Both are the level of the bootstrap of seeds and instances
            where the run joins those of several seeds.
        share_any_item_flips: instances in which some item flips the decision alone.
        delta_js: of `JS(p, q_top) − JS(p, q_random)`.
        delta_alpha: of the difference of their weights.
        expected_delta_js: of `delta_js` against the mean over all other items.
        negative_delta_js: instances in which the random item matters more, as drawn.
        expected_negative: the exact expectation of that share over all other items, the mean over
            instances of the share of other items that matter more; undefined in runs that are older
            than the field.
    """

    ranking: str
    instances: int
    contingency: dict[str, CountedShare]
    expected_contingency: dict[str, dict[str, Estimate]]
    mcnemar: float
    p_mcnemar: float
    p_sign: float
    share_any_item_flips: Estimate
    delta_js: Spread
    delta_alpha: Spread
    expected_delta_js: Spread
    negative_delta_js: Estimate
    expected_negative: Estimate = UNDEFINED


@dataclass(frozen=True)
class MultiWeight:
    """The multi-weight test of a ranking: items erased in its order until the decision changes.

    Attributes:
        ranking: its name; `minimal` is the smallest set.
        orders: random orders of each instance, 1 for other rankings.
        instances: analysed ones.
        flipped: instances (times orders) that flip.
        never: those that do not.
        fraction: of the items erased at the first flip, over the instances that flip, as in the
            paper.
        mass: original attention of these items, likewise.
        gap: their number over the size of the smallest set, over the instances of `choosable` that
            flip.
        share_flipped: instances that flip.
        common: of `fraction`, over the instances that flip under every ranking.
        share_optimal: instances of `choosable` in which no smaller set flips.
        counted: fraction, gap and skill over all instances, what never flips as beyond everything.
    """

    ranking: str
    orders: int
    instances: int
    flipped: int
    never: int
    fraction: Spread
    mass: Spread
    gap: Spread
    share_flipped: Estimate
    common: Spread
    share_optimal: Estimate
    counted: Counted = _NOT_COUNTED

    @property
    def flipped_instances(self) -> float:
        """Instances that flip, the mean over the orders."""
        return self.flipped / self.orders

    @property
    def never_instances(self) -> float:
        """Instances that never flip, the mean over the orders."""
        return self.never / self.orders


@dataclass(frozen=True)
class Pair:
    """Two rankings, instance by instance: which needs fewer items (section 5.4).

    Attributes:
        first: the one.
        second: the other.
        instances: analysed ones.
        judged: those that at least one of the two flips.
        first_smaller: judged ones in which the first flips with fewer items, or alone.
        second_smaller: likewise.
        ties: those in which both need as many.
        share_first_smaller: of the judged ones.
        share_of_all: of the analysed ones.
        times_as_many: `first_smaller` over `second_smaller`; None over 0.
        p_sign: of the exact sign test of the two.
        mcnemar: McNemar's statistic of the instances that one of the two flips alone.
        p_mcnemar: its probability; both levels as those of `SingleWeight`.
        flips_only_first: judged ones that the second never flips.
        flips_only_second: judged ones that the first never flips.
        share_optimal: judged ones in which the better of the two is as short as possible.
    """

    first: str
    second: str
    instances: int
    judged: int
    first_smaller: int
    second_smaller: int
    ties: int
    share_first_smaller: Estimate
    share_of_all: float | None
    times_as_many: float | None
    p_sign: float
    mcnemar: float
    p_mcnemar: float
    flips_only_first: int
    flips_only_second: int
    share_optimal: float | None


@dataclass(frozen=True)
class Head:
    """What of the classifier matters for reading the results.

    Attributes:
        classes: their number.
        bias: of each class; None where instances have their own, or one is not finite.
    """

    classes: int
    bias: tuple[float, ...] | None


@dataclass(frozen=True)
class Exhibit:
    """A document to look at.

    Attributes:
        row: its number in the source.
        id: its id.
        items: the text of each item.
        weights: the attention of each item.
        gold: its label, where known.
        label: its decision.
        flip_label: the decision that attention changes it to, -1 for never.
        first_flip: items erased until then, -1 for never.
        erased: which these are.
        minimal_size: items of the smallest set, -1 for none.
        minimal: which these are.
    """

    row: int
    id: int
    items: tuple[str, ...]
    weights: tuple[float, ...]
    gold: int | None
    label: int
    flip_label: int
    first_flip: int
    erased: tuple[int, ...]
    minimal_size: int
    minimal: tuple[int, ...]


@dataclass(frozen=True)
class OverSeeds:
    """A number of several runs that differ in the seed alone.

    Attributes:
        quantity: which: `accuracy`; means over instances of `uniform_kl` and `largest_weight`;
            shares of instances, `flips`, `negative_delta_js`, `only_top` and `only_random` (which
            of the two flips alone), `gradient_first` and `product_first` (needs fewer items than
            attention, of those that either flips); `fraction_median`, what never flips counted as
            beyond every fraction; `skill` over all instances (`measures.skill`).
        ranking: of which; empty where of none.
        estimate: over the instances of all seeds, with the interval of seeds and instances.
        values: of each seed; None where undefined, infinite where the median is among what never
            flips.
        spread: of these values.
    """

    quantity: str
    ranking: str
    estimate: Estimate
    values: tuple[float | None, ...]
    spread: SeedSpread


@dataclass(frozen=True)
class Aggregates:
    """What result.json holds; see `Result`."""

    counts: Counts
    uniform: Uniform
    single: tuple[SingleWeight, ...]
    multi: tuple[MultiWeight, ...]
    pairs: tuple[Pair, ...]
    head: Head
    exhibits: tuple[Exhibit, ...]
    over_seeds: tuple[OverSeeds, ...] = ()


# --- a finished run ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A finished run, read from its directory.

    Attributes:
        folder: the run directory.
        run: what was run.
        counts: instances, counted.
        uniform: how far attention is from even.
        single: the single-weight test by ranking.
        multi: the multi-weight test by ranking.
        pairs: comparisons by the names of both rankings.
        head: classes and bias.
        exhibits: documents to look at.
        over_seeds: how numbers differ, where this is the runs of several seeds joined.
    """

    folder: Path
    run: Run
    counts: Counts
    uniform: Uniform
    single: dict[str, SingleWeight]
    multi: dict[str, MultiWeight]
    pairs: dict[tuple[str, str], Pair]
    head: Head
    exhibits: tuple[Exhibit, ...]
    over_seeds: tuple[OverSeeds, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the models, more than one where runs are joined; none where unknown."""
        source = self.run.source
        config = source.get("model_config")
        known = [source, config if isinstance(config, dict) else {}]
        one = [about["seed"] for about in known if "seed" in about]
        return tuple(source.get("seeds", one[:1]))

    def table(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Read a per-instance table: `instances`, `single`, `multi`, `erased`; `items` if asked."""
        return rundir.read_table(self.folder / f"{name}.parquet", columns)

    def fractions(self, column: str = "fraction") -> pd.DataFrame:
        """Read row, ranking, order and one column of `multi`; NaN where it is to be left out."""
        table = self.table("multi", ["row", "ranking", "order", column])
        table[column] = without_never(table[column])
        return table

    def gaps(self, ranking: str) -> Floats:
        """Read a ranking's gaps to the smallest set, over the instances of `choosable`.

        Args:
            ranking: its name.

        Returns:
            `[K]`, one for each instance (and random order): items erased over items of the smallest
            set, infinite where the ranking never flips.
        """
        table = self.table("multi", ["row", "ranking", "first_flip", "fraction", "gap"])
        minimal = table[(table["ranking"] == "minimal") & (table["first_flip"] > 0)]
        rows = minimal.loc[choosable(minimal["fraction"]), "row"]
        own = table[(table["ranking"] == ranking) & table["row"].isin(rows)]
        return own["gap"].fillna(np.inf).to_numpy(dtype=np.float64)


def load(folder: Path) -> Result:
    """Read a finished run.

    Args:
        folder: a run directory.

    Returns:
        The run with its aggregates; per-instance tables are read on demand.

    Raises:
        RunError: no such run, an unfinished one, or one of another kind.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.result import load
        >>> load(Path("no-such-run"))
        Traceback (most recent call last):
        ...
        fastattnerase.runs.rundir.RunError: no-such-run is not a run directory: it has no \
run.json
    """
    run, result = rundir.finished(folder, kind=KIND, again="the same `fastattnerase erase` command")
    if run.get("format") != FORMAT:
        raise rundir.RunError(
            f"{folder}: given a run of format {run.get('format')}, needed {FORMAT}; erase again "
            "into another directory"
        )
    aggregates = read_record(Aggregates, result, folder / rundir.RESULT)
    what = read_record(Run, run, folder / rundir.RUN)
    if all(record.counted == _NOT_COUNTED for record in aggregates.multi):
        aggregates = _count(aggregates, what.config, folder)
    return Result(
        folder,
        what,
        aggregates.counts,
        aggregates.uniform,
        {record.ranking: record for record in aggregates.single},
        {record.ranking: record for record in aggregates.multi},
        {(record.first, record.second): record for record in aggregates.pairs},
        aggregates.head,
        aggregates.exhibits,
        aggregates.over_seeds,
    )


def _count(aggregates: Aggregates, config: Config, folder: Path) -> Aggregates:
    """Make what the record of a run of before lacks from its tables."""
    later = Later(
        Bootstrap(seed=config.seed, resamples=config.resamples, confidence=config.confidence)
    )
    read = count_all(folder, later)
    largest = largest_weight(folder, later)
    counted = [read(record.ranking) for record in aggregates.multi]
    return replace(
        aggregates,
        uniform=replace(aggregates.uniform, largest=largest()),
        multi=tuple(
            replace(record, counted=described())
            for record, described in zip(aggregates.multi, counted, strict=True)
        ),
    )


def without_never(values: pd.Series) -> pd.Series:
    """Hide what stands for "never" and is to be left out."""
    return values.where(values >= 0)
