"""The columns of every table: what a file holds, and what the page and a paper print of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from fastattnerase.studies.wen.claims import Claim
from fastattnerase.studies.wen.columns import (
    ALL_TAUS,
    Columns,
    Layout,
    divergence,
    model,
    repeated,
    same,
    taus,
)
from fastattnerase.studies.wen.null_tables import CLUSTERS, NULLS, REPEATS, TABLE_1
from fastattnerase.studies.wen.options import ATTENTIONS
from fastattnerase.studies.wen.rows import (
    NOISES,
    TAUS,
    AccuracyRow,
    AdversaryRow,
    FixRow,
    GumbelCounts,
    GumbelRow,
    HighestRow,
    MeanRow,
    Measured,
    OrderRow,
    RankInformation,
    SeedsRow,
    TauName,
)
from fastattnerase.studies.wen.seed_tables import SEEDS, SEEDS_GUMBEL, over_seeds
from fastattnerase.studies.wen.tables import Tables

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = Any


def frames(tables: Tables, claims: Sequence[Claim]) -> list[tuple[Layout[Any], DataFrame]]:
    """Give every table that has rows, with its layout, in the order of the page.

    Args:
        tables: the rows.
        claims: the statements of the paper, judged by them.
    """
    spreads = over_seeds(tables)
    pairs: list[tuple[Layout[Any], Sequence[Any]]] = [
        (TABLE_1, tables.data),
        (ACCURACY, tables.accuracy),
        (MEANS, tables.means),
        (ORDER, tables.order),
        (HIGHEST, tables.highest),
        (FIGURE_2, tables.figure_2),
        (NULLS, tables.nulls),
        (REPEATS, tables.repeats),
        (CLUSTERS, tables.clusters),
        (TABLE_2, tables.table_2),
        (TABLE_3, tables.adversaries),
        (TABLE_4, tables.adversaries),
        (GUMBEL, tables.gumbel),
        (TABLE_5, tables.table_5),
        (SEEDS, [row for row in spreads if row.table != "gumbel"]),
        (SEEDS_GUMBEL, [row for row in spreads if row.table == "gumbel"]),
        (CLAIMS, claims),
        (MEASUREMENTS, tables.measurements),
        (CURVES, tables.curves),
    ]
    return [(layout, layout.frame(rows)) for layout, rows in pairs if rows]


# --- every measurement ---------------------------------------------------------------------------

MEASUREMENTS: Layout[Measured] = Layout(
    "measurements",
    {
        **model(lambda row: row),
        "accuracy": lambda row: row.accuracy,
        "f1": lambda row: row.result.f1,
        "auc": lambda row: row.result.auc,
        "epochs": lambda row: row.result.epochs,
        "max_epochs": lambda row: row.max_epochs,
        "best_epoch": lambda row: row.result.best_epoch,
        "seconds": lambda row: row.result.seconds,
        "largest_weight": lambda row: row.largest_weight,
        "entropy_share": lambda row: getattr(row.result.attention, "entropy_share", None),
        **same("ranks", "clusters", "singletons", "instances", "first_over_second"),
        **taus(ALL_TAUS, value="", corrected="_corrected"),
        **taus(ALL_TAUS, low="_control_low", high="_control_high"),
        **taus(ALL_TAUS, chance="_chance"),
        **repeated(ALL_TAUS),
        "reason": lambda row: row.reason,
        "strength": lambda row: row.result.strength,
        **divergence("tvd", "output_jsd", "attention_jsd", "attention_kl"),
    },
)

CURVES: Layout[RankInformation] = Layout(
    "curves",
    {
        **model(lambda row: row.measured),
        **same(
            "rank",
            "instances",
            "weight",
            "clusters",
            "singletons",
            "plug_in",
            "miller_madow",
            "control_mean",
            "control_low",
            "control_high",
            "bound",
        ),
    },
)

# --- the grid ------------------------------------------------------------------------------------

FIGURE_2: Layout[SeedsRow] = Layout(
    "figure_2",
    {
        "dataset": lambda row: row.cell.dataset,
        "encoder": lambda row: row.cell.encoder,
        "attention": lambda row: row.cell.attention,
        "mechanism": lambda row: row.cell.mechanism,
        "seeds": lambda row: row.seeds,
        **taus(TAUS, min="_min", median="_median", mean="_mean", max="_max", chance="_chance"),
        **same("undefined", "fewest_ranks", "singletons", "largest_weight", "accuracy"),
    },
    title="Figure 2: tau over the seeds, and how many are not different from outputs shuffled",
    shown={
        "dataset": "Data", "encoder": "Encoder", "attention": "Attention",
        "mechanism": "Weights by", "seeds": "Seeds", "fewest_ranks": "Ranks, fewest",
        "weighted_min": "Weighted, lowest", "weighted_mean": "Mean",
        "weighted_chance": "As shuffled", "plain_min": "Plain, lowest", "plain_mean": "Mean",
        "plain_chance": "As shuffled", "largest_weight": "Largest weight",
        "singletons": "Single-state clusters",
    },
    printed={
        "dataset": "Data", "encoder": "Encoder", "attention": "Attention", "seeds": "Seeds",
        "weighted_mean": "Weighted", "weighted_chance": "Chance", "plain_mean": "Plain",
        "plain_chance": "Chance, plain",
    },
    note="Taus of different numbers of ranks stand side by side.",
)  # fmt: skip

MEANS: Layout[MeanRow] = Layout(
    "means",
    {
        **same("encoder", "attention", "models"),
        **taus(TAUS, mean=""),
        **taus(TAUS, corrected="_corrected"),
        **taus(TAUS, chance="_chance"),
        **same("singletons", "largest_weight", "paper_weighted"),
    },
    title="Mean tau over data sets and seeds, softmax attention",
    shown={
        "encoder": "Encoder", "attention": "Attention", "models": "Models",
        "weighted": "Weighted tau", "plain": "Plain tau", "largest_weight": "Largest weight",
        "paper_weighted": "Paper, weighted",
    },
    printed={
        "encoder": "Encoder", "attention": "Attention", "models": "Models",
        "weighted": "Weighted", "plain": "Plain", "weighted_chance": "Chance",
        "largest_weight": "Largest weight", "paper_weighted": "Paper",
    },
)  # fmt: skip


def _order_columns(tau: TauName) -> Columns[OrderRow]:
    """Give tau of each attention, and whether it falls from one to the next."""
    taus: Columns[OrderRow] = {
        f"{tau}_{attention}": lambda row, place=place: row.taus(tau)[place]  # type: ignore[misc]
        for place, attention in enumerate(ATTENTIONS)
    }
    return {
        **taus,
        f"{tau}_undecided_reason": lambda row: row.undecided_reason(tau),
        f"{tau}_falls": lambda row: row.falls(tau),
    }


ORDER: Layout[OrderRow] = Layout(
    "order",
    {
        **same("dataset", "encoder", "seed"),
        **{f"ranks_{attention}": methodcaller("ranks", attention) for attention in ATTENTIONS},
        **_order_columns("weighted"),
        **_order_columns("plain"),
    },
    printed={
        "dataset": "Data", "encoder": "Encoder", "seed": "Seed", "weighted_additive": "Additive",
        "weighted_deep": "Deep", "weighted_dot": "Dot", "weighted_falls": "In order",
        "plain_falls": "In order, plain",
    },
)  # fmt: skip

HIGHEST: Layout[HighestRow] = Layout(
    "highest",
    {
        **same("dataset", "seed", "ranks"),
        **taus(
            TAUS,
            value="",
            undecided_reason="_undecided_reason",
            other="_other",
            best_other="_best_other",
            highest="_highest",
        ),
    },
    printed={
        "dataset": "Data", "seed": "Seed", "ranks": "Ranks", "weighted": "Weighted",
        "weighted_best_other": "Best other", "weighted_highest": "Highest", "plain": "Plain",
        "plain_highest": "Highest, plain",
    },
)  # fmt: skip

ACCURACY: Layout[AccuracyRow] = Layout(
    "accuracy",
    {
        **same("dataset", "seeds", "accuracy", "lowest", "majority"),
        "paper": lambda row: row.paper.accuracy,
        "needed": lambda row: row.paper.needed,
        "reached": lambda row: row.reached,
    },
    title="BiLSTM with additive attention, test accuracy",
    shown={
        "dataset": "Data", "seeds": "Seeds", "accuracy": "Mean", "lowest": "Lowest",
        "majority": "Most frequent class", "needed": "Needed", "paper": "Paper",
    },
    printed={
        "dataset": "Data", "seeds": "Seeds", "accuracy": "Accuracy", "lowest": "Lowest",
        "paper": "Paper",
    },
)  # fmt: skip

# --- special models ------------------------------------------------------------------------------


def _compared(tau: TauName) -> Columns[Any]:
    """Give tau of the normal and the special model of a pair, and its fall."""
    return {
        f"{tau}_normal": lambda row: row.normal.tau(tau).value,
        f"{tau}_normal_chance": lambda row: row.normal.tau(tau).chance,
        tau: lambda row: row.special.tau(tau).value,
        f"{tau}_chance": lambda row: row.special.tau(tau).chance,
        f"delta_{tau}": lambda row: row.delta(tau),
    }


_PAIR: Columns[Any] = {
    "ranks_normal": lambda row: row.normal.ranks,
    "ranks": lambda row: row.special.ranks,
    **_compared("weighted"),
    **_compared("plain"),
}

TABLE_2: Layout[FixRow] = Layout(
    "table_2",
    {
        "dataset": lambda row: row.special.cell.dataset,
        **same("setting", "reading"),
        "seed": lambda row: row.special.cell.seed,
        "accuracy": lambda row: row.special.accuracy,
        "accuracy_normal": lambda row: row.normal.accuracy,
        "largest_weight": lambda row: row.special.largest_weight,
        **_PAIR,
        "delta_weighted_sum": lambda row: row.delta("weighted_sum"),
        "paper_delta": lambda row: row.paper_delta,
        "reason": lambda row: row.special.reason,
    },
    title="Table 2: tau of the normal model less that of the special one",
    shown={
        "dataset": "Data", "setting": "Setting", "reading": "Reading", "seed": "Seed",
        "accuracy": "Accuracy", "ranks_normal": "Ranks, normal", "ranks": "Ranks, special",
        "weighted_normal": "Weighted, normal", "weighted": "Weighted, special",
        "delta_weighted": "Δ weighted", "plain_normal": "Plain, normal",
        "plain": "Plain, special", "delta_plain": "Δ plain", "paper_delta": "Paper, Δ weighted",
    },
    printed={
        "dataset": "Data", "setting": "Setting", "reading": "Reading", "seed": "Seed",
        "ranks": "Ranks", "delta_weighted": "Fall, weighted", "delta_plain": "Fall, plain",
        "paper_delta": "Paper",
    },
    note="A tau of few ranks is set against one of many where attention became more or less "
    "peaked: see the numbers of ranks. Fix Attn, uniform: tau is against positions.",
)  # fmt: skip

TABLE_3: Layout[AdversaryRow] = Layout(
    "table_3",
    {
        "dataset": lambda row: row.special.cell.dataset,
        "seed": lambda row: row.special.cell.seed,
        "strength": lambda row: row.special.result.strength,
        "epochs": lambda row: row.special.result.epochs,
        "max_epochs": lambda row: row.special.max_epochs,
        "accuracy": lambda row: row.special.accuracy,
        "accuracy_normal": lambda row: row.normal.accuracy,
        "f1": lambda row: row.special.result.f1,
        "tvd": lambda row: row.tvd,
        "half_tvd": lambda row: row.tvd / 2,
        **same("attention_jsd", "output_jsd"),
        "paper_accuracy": lambda row: row.paper.accuracy,
        "paper_tvd": lambda row: row.paper.tvd,
        "paper_jsd": lambda row: row.paper.jsd,
    },
    title="Table 3: model-consistent adversaries",
    shown={
        "dataset": "Data", "seed": "Seed", "strength": "λ", "epochs": "Epochs",
        "max_epochs": "At most", "accuracy": "Accuracy", "f1": "F1", "tvd": "TVD",
        "half_tvd": "TVD / 2", "paper_tvd": "Paper, TVD / 2", "attention_jsd": "JSD of attention",
        "paper_jsd": "Paper, JSD", "output_jsd": "JSD of outputs",
    },
    printed={
        "dataset": "Data", "seed": "Seed", "accuracy": "Accuracy", "half_tvd": "TVD / 2",
        "paper_tvd": "Paper", "attention_jsd": "JSD", "paper_jsd": "Paper, JSD",
    },
    note="TVD is the mean |p − p′| of the outputs. The code whose λ the paper takes over reports "
    "half of it, so the paper’s stands beside the half. Where epochs are as many as allowed, "
    "training stopped there, not at its least loss.",
)  # fmt: skip

TABLE_4: Layout[AdversaryRow] = Layout(
    "table_4",
    {
        "dataset": lambda row: row.special.cell.dataset,
        "seed": lambda row: row.special.cell.seed,
        **same("attention_jsd", "tvd"),
        **_PAIR,
        "paper_delta": lambda row: row.paper.delta,
    },
    title="Table 4: tau of the normal model less the adversary's",
    shown={
        "dataset": "Data", "seed": "Seed", "ranks_normal": "Ranks, normal",
        "ranks": "Ranks, adversary", "weighted_normal": "Weighted, normal",
        "weighted": "Weighted, adversary", "delta_weighted": "Δ weighted",
        "plain_normal": "Plain, normal", "plain": "Plain, adversary", "delta_plain": "Δ plain",
        "paper_delta": "Paper, Δ weighted",
    },
    printed={
        "dataset": "Data", "seed": "Seed", "ranks_normal": "Ranks, normal", "ranks": "Ranks",
        "delta_weighted": "Fall, weighted", "delta_plain": "Fall, plain",
        "weighted_chance": "Chance", "paper_delta": "Paper",
    },
    note="Taus of different numbers of ranks are compared.",
)  # fmt: skip


def _of_model(name: str) -> Columns[GumbelRow]:
    """Give the measurement of a model under softmax, or under Gumbel-softmax, by its name."""
    measured: Callable[[GumbelRow], Measured] = attrgetter(name)
    return {
        f"ranks_{name}": lambda row: measured(row).ranks,
        f"weighted_{name}": lambda row: measured(row).weighted.value,
        f"weighted_chance_{name}": lambda row: measured(row).weighted.chance,
        f"plain_{name}": lambda row: measured(row).plain.value,
        f"plain_chance_{name}": lambda row: measured(row).plain.chance,
        f"accuracy_{name}": lambda row: measured(row).accuracy,
        f"largest_weight_{name}": lambda row: measured(row).largest_weight,
    }


GUMBEL: Layout[GumbelRow] = Layout(
    "gumbel",
    {
        "dataset": lambda row: row.softmax.cell.dataset,
        "encoder": lambda row: row.softmax.cell.encoder,
        "attention": lambda row: row.softmax.cell.attention,
        "seed": lambda row: row.softmax.cell.seed,
        **_of_model("softmax"),
        **_of_model("noise_off"),
        **_of_model("noise_on"),
        **_of_model("equal_scores"),
    },
    printed={
        "dataset": "Data", "encoder": "Encoder", "attention": "Attention",
        "ranks_softmax": "Ranks", "weighted_softmax": "Softmax",
        "ranks_noise_off": "Ranks, Gumbel", "weighted_noise_off": "Noise off",
        "weighted_noise_on": "Noise on",
    },
)  # fmt: skip


def _kept(tau: TauName) -> Columns[GumbelCounts]:
    """Count the models that keep tau, with each noise."""
    columns: Columns[GumbelCounts] = {}
    for noise in NOISES:
        key = (tau, noise)
        columns |= {
            f"{tau}_{noise}": lambda row, key=key: row.counts[key].kept,  # type: ignore[misc]
            f"{tau}_{noise}_cases": lambda row, key=key: row.counts[key].cases,  # type: ignore[misc]
            f"{tau}_{noise}_all": lambda row, key=key: row.counts[key].all_kept,  # type: ignore[misc]
        }
    return columns | {f"{tau}_equal_scores_mean": lambda row: row.equal_scores_mean[tau]}


TABLE_5: Layout[GumbelCounts] = Layout(
    "table_5",
    {
        **same("attention", "models"),
        **_kept("weighted"),
        **_kept("plain"),
        "paper_share": lambda row: row.paper_share,
    },
    title="Table 5: models whose tau does not fall with Gumbel-softmax, of those that decide",
    shown={
        "attention": "Attention", "models": "Models",
        "weighted_noise_off": "Weighted, noise off", "weighted_noise_off_cases": "of",
        "weighted_noise_on": "Weighted, noise on", "weighted_noise_on_cases": "of",
        "plain_noise_off": "Plain, noise off", "plain_noise_off_cases": "of",
        "plain_noise_on": "Plain, noise on", "plain_noise_on_cases": "of",
        "weighted_equal_scores_mean": "Mean weighted tau of noise alone",
        "plain_equal_scores_mean": "Mean plain tau of noise alone", "paper_share": "Paper, share",
    },
    printed={
        "attention": "Attention", "models": "Models", "weighted_noise_off": "Noise off",
        "weighted_noise_off_cases": "of", "weighted_noise_on": "Noise on",
        "weighted_noise_on_cases": "of", "weighted_equal_scores_mean": "Noise alone",
        "paper_share": "Paper, share",
    },
    note="Undecided: fewer than five ranks with softmax or with Gumbel-softmax, or chance with "
    "softmax. A tau that becomes chance has fallen.",
)  # fmt: skip

# --- statements ----------------------------------------------------------------------------------

CLAIMS: Layout[Claim] = Layout(
    "claims",
    same(
        "text", "rule", "verdicts", "paper", "here", "held", "cases", "undecided", "means",
        "p_chance", "needed", "agrees",
    ),
    printed={
        "text": "Statement", "agrees": "Verdict", "held": "Agree", "cases": "Of",
        "undecided": "Undecided",
    },
)  # fmt: skip

LAYOUTS: tuple[Layout[Any], ...] = (
    TABLE_1, ACCURACY, MEANS, ORDER, HIGHEST, FIGURE_2, NULLS, REPEATS, CLUSTERS, TABLE_2, TABLE_3,
    TABLE_4, GUMBEL, TABLE_5, SEEDS, SEEDS_GUMBEL, CLAIMS, MEASUREMENTS, CURVES,
)  # fmt: skip
