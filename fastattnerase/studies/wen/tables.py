"""The tables of Wen, Subbalakshmi and Yang (2022), from finished cells."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np

from fastattnerase import mi
from fastattnerase.data.prepared import PreparedData
from fastattnerase.models.published import task_of
from fastattnerase.studies.wen.null_tables import (
    ClusterRow,
    DataRow,
    NullRow,
    RepeatRow,
    cluster_rows,
    data_rows,
    null_rows,
    repeat_rows,
)
from fastattnerase.studies.wen.options import ATTENTIONS, BEST, ENCODERS, Cell, Options
from fastattnerase.studies.wen.paper import data_set
from fastattnerase.studies.wen.repeats import repeats_of
from fastattnerase.studies.wen.results import CellResult, Finding
from fastattnerase.studies.wen.rows import (
    FEW_RANKS,
    NOISES,
    SAME,
    TAUS,
    TOO_FEW_RANKS,
    UNDEFINED,
    AccuracyRow,
    AdversaryRow,
    BestTau,
    FixRow,
    GumbelCounts,
    GumbelRow,
    HighestRow,
    Kept,
    MeanRow,
    MeanTau,
    Measured,
    Noise,
    OrderRow,
    RankInformation,
    SeedsRow,
    Spread,
    Tau,
    TauName,
    is_chance,
)

# What the measurement calls the three taus.
_STATISTICS = {"weighted": "weighted_product", "weighted_sum": "weighted_sum", "plain": "kendall"}

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Tables:
    """Every table of a study; one for which there are no cells has no rows.

    Attributes:
        measurements: A row for each cell and measurement.
        curves: A row for each rank of each measurement.
        figure_2: Tau over the seeds.
        means: Mean tau over data sets and seeds.
        order: The paper's order of attentions, cell by cell.
        highest: The paper's best combination, cell by cell.
        accuracy: Accuracy of BiLSTM with additive attention.
        table_2: Fixed attention and fixed representations.
        adversaries: The rows of tables 3 and 4.
        gumbel: Softmax against Gumbel-softmax, model by model.
        table_5: How many models keep tau with Gumbel-softmax.
        nulls: Learned attention against each null.
        repeats: How far tau moves with the seed of k-means.
        clusters: Where the paper's criterion of clusters fails.
        data: The data sets.
    """

    measurements: list[Measured] = field(default_factory=list)
    curves: list[RankInformation] = field(default_factory=list)
    figure_2: list[SeedsRow] = field(default_factory=list)
    means: list[MeanRow] = field(default_factory=list)
    order: list[OrderRow] = field(default_factory=list)
    highest: list[HighestRow] = field(default_factory=list)
    accuracy: list[AccuracyRow] = field(default_factory=list)
    table_2: list[FixRow] = field(default_factory=list)
    adversaries: list[AdversaryRow] = field(default_factory=list)
    gumbel: list[GumbelRow] = field(default_factory=list)
    table_5: list[GumbelCounts] = field(default_factory=list)
    nulls: list[NullRow] = field(default_factory=list)
    repeats: list[RepeatRow] = field(default_factory=list)
    clusters: list[ClusterRow] = field(default_factory=list)
    data: list[DataRow] = field(default_factory=list)


def collect(
    results: Mapping[Cell, CellResult],
    options: Options,
    out: Path,
    data: Mapping[str, PreparedData] | None = None,
) -> Tables:
    """Make every table from the finished cells of a study.

    Args:
        results: what each cell found.
        options: of the study.
        out: the study's folder.
        data: the prepared data sets, for the table of these.

    Returns:
        The tables.

    Example:
        >>> from pathlib import Path
        >>> collect({}, Options(), Path("runs/wen")).measurements
        []
    """
    measurements: list[Measured] = []
    curves: list[RankInformation] = []
    for cell, result in results.items():
        for name, found in result.measurements.items():
            row = Measured(cell, name, found.accuracy, options.max_epochs(cell), result)
            row, curve = _measured(row, found, out)
            measurements.append(row)
            curves += curve
    tables = compare(measurements, curves)
    accuracy = {row.dataset: row.accuracy for row in tables.accuracy}
    return dataclasses.replace(tables, data=data_rows(data or {}, accuracy))


def compare(measurements: list[Measured], curves: list[RankInformation] | None = None) -> Tables:
    """Make the tables that compare measurements.

    Args:
        measurements: all of a study.
        curves: their ranks.
    """
    grid = [
        row
        for row in measurements
        if row.cell.variant == "normal" and row.cell.mechanism in ("softmax", "sparsemax")
    ]
    softmax = [row for row in grid if row.cell.mechanism == "softmax"]
    gumbel = gumbel_rows(measurements)
    return Tables(
        measurements,
        curves or [],
        figure_2=_figure_2(grid),
        means=mean_rows(softmax),
        order=order_rows(softmax),
        highest=highest_rows(softmax),
        accuracy=_accuracy(softmax),
        table_2=_fixed(measurements, softmax),
        adversaries=_adversaries(measurements, softmax),
        gumbel=gumbel,
        table_5=gumbel_counts(gumbel),
        nulls=null_rows(softmax, gumbel),
        repeats=repeat_rows(softmax),
        clusters=cluster_rows(softmax),
    )


# --- one measurement -----------------------------------------------------------------------------


def _measured(row: Measured, found: Finding, out: Path) -> tuple[Measured, list[RankInformation]]:
    """Read a measurement's tables: its row, and a row for each rank."""
    if found.run is None:
        return dataclasses.replace(row, reason=found.reason), []
    measured = mi.load(out / row.cell.key / found.run).measurement
    summary, ranks = measured.summary, measured.ranks
    weights = ranks["attention"].to_numpy()
    correlations = {
        (own["estimator"], own["statistic"]): own
        for own in measured.correlations.to_dict("records")
    }

    def tau(name: TauName) -> Tau:
        found = correlations["plug_in", _STATISTICS[name]]
        value, low, high = found["value"], found["control_low"], found["control_high"]
        corrected = correlations["miller_madow", _STATISTICS[name]]["value"]
        chance = is_chance(value, low, high, summary.ranks)
        again = repeats_of(measured.repeats, _STATISTICS[name])
        return Tau(value, corrected, low, high, chance, again)

    row = dataclasses.replace(
        row,
        ranks=summary.ranks,
        clusters=summary.clusters,
        instances=summary.used,
        singletons=float(ranks["singletons"].sum() / ranks["clusters"].sum()),
        largest_weight=float(weights[0]),
        first_over_second=(
            float(weights[0] / weights[1]) if len(weights) > 1 and weights[1] > 0 else math.nan
        ),
        weighted=tau("weighted"),
        weighted_sum=tau("weighted_sum"),
        plain=tau("plain"),
        reason=correlations["plug_in", "kendall"]["reason"],
    )
    return row, [
        RankInformation(
            row,
            rank=int(own["rank"]),
            instances=int(own["instances"]),
            weight=own["attention"],
            clusters=int(own["clusters"]),
            singletons=int(own["singletons"]),
            plug_in=own["plug_in"],
            miller_madow=own["miller_madow"],
            control_mean=own["control_mean"],
            control_low=own["control_low"],
            control_high=own["control_high"],
            bound=own["bound"],
        )
        for own in ranks.to_dict("records")
    ]


# --- the grid ------------------------------------------------------------------------------------


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Group rows by a key, groups and rows in the order in which they come."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def mean(values: Iterable[float]) -> float:
    """Give the mean of the numbers that are no NaN; NaN where there is none."""
    numbers = np.array(list(values), dtype=np.float64)
    known = np.count_nonzero(~np.isnan(numbers))
    return float(np.nansum(numbers) / known) if known else math.nan


def _count_chance(rows: Iterable[Measured], name: TauName) -> int:
    """Count the models whose tau is not different from outputs shuffled."""
    return sum(row.tau(name).chance is True for row in rows)


def _figure_2(grid: Sequence[Measured]) -> list[SeedsRow]:
    """Spread tau over the seeds of each data set, encoder, attention and attention function."""

    def spread(group: list[Measured], name: TauName) -> Spread:
        values = np.array([row.tau(name).value for row in group])
        values = values[~np.isnan(values)]
        if not len(values):
            return Spread(math.nan, math.nan, math.nan, math.nan, chance=0)
        return Spread(
            float(values.min()),
            float(np.median(values)),
            float(values.mean()),
            float(values.max()),
            _count_chance(group, name),
        )

    groups = grouped(
        grid,
        lambda row: (
            row.cell.dataset,
            row.cell.encoder,
            row.cell.attention,
            row.cell.mechanism,
        ),
    )
    return [
        SeedsRow(
            group[0].cell,
            seeds=len(group),
            weighted=spread(group, "weighted"),
            plain=spread(group, "plain"),
            undefined=sum(math.isnan(row.weighted.value) for row in group),
            fewest_ranks=min((row.ranks for row in group if row.ranks is not None), default=None),
            singletons=mean(row.singletons for row in group),
            largest_weight=mean(row.largest_weight for row in group),
            accuracy=mean(row.accuracy for row in group),
        )
        for group in groups.values()
    ]


def mean_rows(grid: Sequence[Measured]) -> list[MeanRow]:
    """Average tau by attention, and by encoder and attention."""
    rows = []
    for encoder in ("all", *ENCODERS):
        for attention in ATTENTIONS:
            group = [
                row
                for row in grid
                if row.cell.attention == attention and encoder in ("all", row.cell.encoder)
            ]
            if group:
                rows.append(
                    MeanRow(
                        encoder,
                        attention,
                        models=len(group),
                        weighted=_mean_tau(group, "weighted"),
                        plain=_mean_tau(group, "plain"),
                        singletons=mean(row.singletons for row in group),
                        largest_weight=mean(row.largest_weight for row in group),
                    )
                )
    return rows


def _mean_tau(group: list[Measured], name: TauName) -> MeanTau:
    """Average one tau of some models."""
    return MeanTau(
        mean(row.tau(name).value for row in group),
        mean(row.tau(name).corrected for row in group),
        _count_chance(group, name),
    )


def order_rows(grid: Sequence[Measured]) -> list[OrderRow]:
    """Set the three attentions side by side, for each data set, encoder and seed."""
    if not set(ATTENTIONS) <= {row.cell.attention for row in grid}:
        return []
    rows = []
    groups = grouped(grid, lambda row: (row.cell.dataset, row.cell.encoder, row.cell.seed))
    for (dataset, encoder, seed), group in groups.items():
        models = {row.cell.attention: row for row in group}
        rows.append(OrderRow(dataset, encoder, seed, {a: models.get(a) for a in ATTENTIONS}))
    return rows


def highest_rows(grid: Sequence[Measured]) -> list[HighestRow]:
    """Set BiLSTM with additive attention against the others, for each data set and seed."""
    every = [(encoder, attention) for encoder in ENCODERS for attention in ATTENTIONS]
    if not set(every) <= {(row.cell.encoder, row.cell.attention) for row in grid}:
        return []
    rows = []
    groups = grouped(grid, lambda row: (row.cell.dataset, row.cell.seed))
    for (dataset, seed), group in groups.items():
        models = {(row.cell.encoder, row.cell.attention): row for row in group}
        best = models.get(BEST)
        others = [models[key] for key in every if key != BEST and key in models]
        rows.append(
            HighestRow(
                dataset,
                seed,
                None if best is None else best.ranks,
                weighted=_best_tau(best, others, "weighted"),
                plain=_best_tau(best, others, "plain"),
                models=models,
            )
        )
    return rows


def _best_tau(best: Measured | None, others: list[Measured], name: TauName) -> BestTau:
    """Compare one tau of BiLSTM with additive attention with the best of the others."""
    value = math.nan if best is None else best.tau(name).value
    # What has few ranks cannot be compared.
    comparable = [
        row
        for row in others
        if row.ranks is not None and row.ranks >= FEW_RANKS and not math.isnan(row.tau(name).value)
    ]
    reason = ""
    if math.isnan(value):
        reason = UNDEFINED
    elif best is not None and best.has_few_ranks:
        reason = TOO_FEW_RANKS
    elif not comparable:
        reason = f"tau of all others is undefined or has {TOO_FEW_RANKS}"
    if not comparable:
        return BestTau(value, reason, "", math.nan)
    top = max(comparable, key=lambda row: row.tau(name).value)
    other = f"{top.cell.encoder} with {top.cell.attention}"
    return BestTau(value, reason, other, top.tau(name).value)


def _accuracy(grid: Sequence[Measured]) -> list[AccuracyRow]:
    """Give the accuracy of BiLSTM with additive attention on each data set."""
    best = [row for row in grid if (row.cell.encoder, row.cell.attention) == BEST]
    rows = []
    for dataset, group in grouped(best, lambda row: row.cell.dataset).items():
        accuracies = [row.accuracy for row in group]
        reached = sum(accuracy >= data_set(dataset).needed for accuracy in accuracies)
        known = [row.result.majority for row in group if row.result.majority is not None]
        row = AccuracyRow(dataset, len(group), mean(accuracies), min(accuracies), reached)
        # All seeds have the same test documents.
        rows.append(dataclasses.replace(row, majority=known[0]) if known else row)
    return rows


# --- special models ------------------------------------------------------------------------------


def _normal(softmax: Sequence[Measured], special: Measured) -> Measured:
    """Find the normal model that a special one starts from."""
    cell = special.cell.base
    return next(row for row in softmax if row.cell == cell)


def _fixed(measurements: Sequence[Measured], softmax: Sequence[Measured]) -> list[FixRow]:
    """Pair models with fixed attention or representations with their normal models."""
    rows = []
    for row in measurements:
        kind, _, reading = row.cell.variant.partition("_")
        setting = {"attention": "Fix Attn", "representation": "Fix Rep"}.get(kind)
        if setting is not None:
            rows.append(FixRow(_normal(softmax, row), row, setting, reading))
    return rows


def _adversaries(
    measurements: Sequence[Measured], softmax: Sequence[Measured]
) -> list[AdversaryRow]:
    """Pair adversaries with their normal models."""
    rows = []
    for row in measurements:
        found = row.result.divergence
        if row.cell.variant == "adversary" and found is not None:
            distances = (found.tvd, found.attention_jsd, found.output_jsd)
            rows.append(AdversaryRow(_normal(softmax, row), row, *distances))
    return rows


def gumbel_rows(measurements: Sequence[Measured]) -> list[GumbelRow]:
    """Set Gumbel-softmax beside softmax, for each model that was measured with both."""
    by_model = {(row.cell, row.name): row for row in measurements if row.cell.variant == "normal"}
    rows = []
    for (cell, _), row in by_model.items():
        gumbel = dataclasses.replace(cell, mechanism="gumbel")
        if cell.mechanism == "softmax" and (gumbel, "noise_off") in by_model:
            off, on, equal = (
                by_model[gumbel, name] for name in ("noise_off", "noise_on", "equal_scores")
            )
            rows.append(GumbelRow(row, off, on, equal))
    return rows


def gumbel_counts(gumbel: Sequence[GumbelRow]) -> list[GumbelCounts]:
    """Count the models whose tau does not fall with Gumbel-softmax, by attention and of all.

    Those of two texts are counted by their task, as in the paper.
    """
    rows = []
    tasks = [of for row in gumbel if (of := task_of(row.softmax.cell.dataset))]
    for task, attention in product(("", *dict.fromkeys(tasks)), (*ATTENTIONS, "all")):
        group = [
            row
            for row in gumbel
            if attention in ("all", row.softmax.cell.attention)
            and task_of(row.softmax.cell.dataset) == task
        ]
        if group:
            rows.append(
                GumbelCounts(
                    f"{attention} ({task})" if task else attention,
                    len(group),
                    {(tau, noise): _kept(group, tau, noise) for tau in TAUS for noise in NOISES},
                    {tau: mean(row.equal_scores.tau(tau).value for row in group) for tau in TAUS},
                )
            )
    return rows


def _kept(group: list[GumbelRow], tau: TauName, noise: Noise) -> Kept:
    """Count the models that keep one tau with Gumbel-softmax."""
    pairs = [row.pair(noise) for row in group]
    decided = [pair for pair in pairs if not pair.undecided_reason(tau)]
    return Kept(
        sum(pair.keeps(tau, SAME) for pair in decided),
        len(decided),
        sum(pair.delta(tau) <= SAME for pair in pairs),
    )
