"""The measurement of Wen, Subbalakshmi and Yang (2022): does information follow attention?

For each attention rank `r`: `m_r`, the mutual information between the quantised hidden state of
that rank and the model's quantised output, and `a_r`, the rank's mean weight; then the rank
correlation of the two.

What the numbers do not say. `a_r` falls with `r` by construction, so the correlation only asks
whether information falls with rank. A state with a larger weight has a larger share of the output,
so a part of `m_r` is mechanical; with Gumbel noise on, a ranking by the very sample that makes the
output gives a positive correlation even where all scores are equal. Weighted tau depends on how
skewed attention is and cannot be compared between models whose attention differs in that; read
plain tau beside it. The output is the model's, not the gold label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastattnerase.mi.clusters import Quantised
from fastattnerase.mi.config import CLUSTERING, MEASURING, Config
from fastattnerase.mi.errors import MeasurementError
from fastattnerase.mi.frames import frame
from fastattnerase.mi.grouping import RankedStates, StreamItem, group
from fastattnerase.mi.outputs import output_labels
from fastattnerase.mi.ranks import RankChoice, choose_ranks
from fastattnerase.mi.states import quantise_states
from fastattnerase.plurals import counted, have
from fastattnerase.runs.progress import Report, silent, tracked
from fastattnerase.statistics.correlation import (
    Correlation,
    kendall_tau,
    weighted_tau,
    weighted_taus,
)
from fastattnerase.statistics.information import (
    mutual_information,
    shuffled_information,
    shuffles_of,
)

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    # Hints that are read at run time say Any: what they name is imported when it is used.
    DataFrame = Any

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ESTIMATORS = ("plug_in", "miller_madow", "excess")
STATISTICS = ("kendall", "weighted_product", "weighted_sum")

_DIGITS = 12  # of mutual information; what differs by less is a tie
_CONSTANT = 1e-9  # weights that differ by less, relatively, are equal


@dataclass(frozen=True)
class Summary:
    """Counts of a measurement, its choice of ranks and clusters, and notices.

    Attributes:
        instances: Number of instances in the stream.
        without_attention: Number of those without attention mass.
        too_short: Number of those with fewer items than ranks are measured.
        used: Number of instances that are measured.
        excluded_items: Number of items that are not ranked.
        width: Width of a state.
        ranks: Number of ranks.
        ranks_by_length: What the rule by lengths says; None where it was not asked.
        ranks_by_weight: What the rule by weights says; None where it was not asked.
        ranks_ended_by: What set the number of ranks: `length`, `weights`, `max_ranks` or `given`.
        clusters: Number of clusters of the states.
        clusters_tried: Numbers of clusters that were fitted, in order.
        two_samples_each: Whether every cluster has at least two samples.
        output_labels: Number of output labels.
        constant_attention: Whether all ranks have the same weights.
        notices: What a reader of the numbers must know.
        not_finite: Number of instances with something that is not finite, which are left out.
    """

    instances: int
    without_attention: int
    too_short: int
    used: int
    excluded_items: int
    width: int
    ranks: int
    ranks_by_length: int | None
    ranks_by_weight: int | None
    ranks_ended_by: str
    clusters: int
    clusters_tried: tuple[int, ...]
    two_samples_each: bool
    output_labels: int
    constant_attention: bool
    notices: tuple[str, ...]
    not_finite: int = 0


@dataclass(frozen=True)
class Measurement:
    """What was measured; all tables can be written to Parquet. Information is in nats.

    Attributes:
        ranks: a row for each rank: `rank`, `instances`, `attention` (mean weight), `share_above`
            (of the instances, those with a weight above the threshold), `clusters` (that occur),
            `singletons` (clusters of one state), `plug_in`, `miller_madow` (not clipped), `bias`,
            `control_mean`, `control_low`, `control_high` (with outputs shuffled), `excess`
            (plug-in less the control's mean), `p_value` (one-sided, of the control),
            `state_entropy`, `output_entropy`, `bound` (the smaller of both).
        correlations: a row for each estimator and statistic: `estimator` (`plug_in`, the paper's;
            `miller_madow`, `excess`), `statistic` (`kendall`: tau-b; `weighted_product` and
            `weighted_sum`: Shieh's tau with the mean weights), `value`, `reason` (why there is
            none), `p_value` (of tau-b), and for the plug-in estimator `control_mean`,
            `control_low`, `control_high`: the correlation with outputs shuffled alike in all ranks.
            Information that differs by less than 1e-12 is tied.
        outputs: a row for each output label: `label`, `instances`, `low` and `high`, the range of
            what was clustered (one-dimensional outputs; else NaN).
        instances: a row for each instance with attention: `row` in the stream, `id`, `length`,
            `used`, `predicted` class, `output` label (-1 where it is not used).
        summary: counts, the choice of ranks and clusters, and notices.
        repeats: what a run measures again, None where it did not (`mi.repeat_measurement`): a row
            for each repeat and statistic: `measurement` (`kmeans`, `permuted`, `equal`,
            `untrained`), `draw`, `statistic`, `value`, `reason` (why there is none).
    """

    ranks: DataFrame
    correlations: DataFrame
    outputs: DataFrame
    instances: DataFrame
    summary: Summary
    repeats: DataFrame | None = None

    def correlation(self, statistic: str, estimator: str = "plug_in") -> Correlation:
        """Look one correlation up: `kendall`, `weighted_product` or `weighted_sum`."""
        table = self.correlations
        found = table[(table["statistic"] == statistic) & (table["estimator"] == estimator)]
        if found.empty:
            raise ValueError(
                f"statistic, estimator: given {statistic!r} and {estimator!r}, needed one of "
                f"{', '.join(STATISTICS)} and one of {', '.join(ESTIMATORS)}"
            )
        row = found.iloc[0]

        def number(name: str) -> float | None:
            return None if np.isnan(row[name]) else float(row[name])

        return Correlation(number("value"), str(row["reason"]), number("p_value"))


def measure(
    stream: Iterable[StreamItem],
    config: Config | None = None,
    *,
    scratch: Path | None = None,
    report: Report = silent,
) -> Measurement:
    """Measure the mutual information between ranked hidden states and outputs.

    One pass over the stream writes the states to disk rank by rank; then each rank is read and
    quantised by itself. Memory does not grow with the number of ranks but for a few numbers an
    instance and rank.

    Args:
        stream: batches, or pairs of a batch and the model's logits: see `group`.
        config: the measurement; all defaults where absent.
        scratch: directory of the temporary files; the system's choice by default.
        report: told how many ranks are clustered and measured, of how many; by default nobody is.

    Returns:
        The measurement.

    Raises:
        MeasurementError: no instance or no rank is left; fewer instances than clusters; all
            outputs in one cluster; constant attention. The message says
            what to do.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 3.2.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.mi import Config, measure
        >>> values = torch.randn(200, 4, 3, generator=torch.manual_seed(0))  # [B, N, D]
        >>> scores = torch.tensor([2.0, 1.0, 0.5, 0.0]).expand(200, 4)
        >>> batch = fae.AttentionBatch.from_padded(
        ...     values, scores=scores, head_weight=torch.eye(3)[:2] * 9)
        >>> found = measure([batch], Config(clusters=8))
        >>> bool(found.ranks["plug_in"][0] > found.ranks["control_high"][0])
        True
    """
    config = Config() if config is None else config
    fixed = config.ranks if isinstance(config.ranks, int) else config.max_ranks
    with group(
        stream,
        exclude=config.exclude,
        max_ranks=fixed,
        directory=scratch,
        backend=config.backend,
    ) as ranked:
        return measure_ranked(ranked, config, report)


def measure_ranked(ranked: RankedStates, config: Config, report: Report) -> Measurement:
    """Measure grouped states."""
    choice = choose_ranks(ranked, config)
    k = choice.ranks
    used = ranked.lengths >= (k if config.instances == "all_ranks" else 1)  # [n]
    attention, above = np.empty(k), np.empty(k)
    for rank in range(1, k + 1):
        weights = ranked.weights(rank)[used[ranked.instances(rank)]]  # [n_r]
        attention[rank - 1] = weights.mean()
        above[rank - 1] = (weights > config.weight_threshold).mean()
    constant = k > 1 and _constant(ranked, k)
    if constant and config.constant_attention == "error":
        raise MeasurementError(
            "attention is constant: all ranks have the same weights, so no correlation with them "
            "is defined; set constant_attention to by_position to correlate with the ranks, whose "
            "ties are broken by position, or to undefined to measure without correlations "
            "(--constant-attention)"
        )

    output, outputs = output_labels(ranked, np.flatnonzero(used), config)  # [n]
    quantised = quantise_states(ranked, k, used, config, partial(report, CLUSTERING))
    report(CLUSTERING, 1, 1)  # a search ends with the first number of clusters that fits
    shuffled = shuffles_of(output[used], config.shuffles, config.seed)  # [S, used]
    place = np.cumsum(used) - 1  # [n], number among the used
    table: list[dict[str, Any]] = []
    control = np.empty((k, config.shuffles))
    for r in tracked(range(k), k, MEASURING, report):
        states = quantised.labels[r]
        members = np.flatnonzero(used & (ranked.lengths > r))  # [n_r]
        found = mutual_information(states, output[members])
        control[r] = shuffled_information(states, shuffled[:, place[members]])
        sizes = np.bincount(states)
        mean, low, high = _interval(control[r], config.confidence)
        reached = int(np.count_nonzero(control[r] >= found.plug_in - 10.0**-_DIGITS))
        table.append(
            {
                "rank": r + 1,
                "instances": found.instances,
                "attention": attention[r],
                "share_above": above[r],
                "clusters": int(np.count_nonzero(sizes)),
                "singletons": int(np.count_nonzero(sizes == 1)),
                "plug_in": found.plug_in,
                "miller_madow": found.miller_madow,
                "bias": found.bias,
                "control_mean": mean,
                "control_low": low,
                "control_high": high,
                "excess": found.plug_in - mean,
                "p_value": (1 + reached) / (1 + config.shuffles) if config.shuffles else np.nan,
                "state_entropy": found.x_entropy,
                "output_entropy": found.y_entropy,
                "bound": found.bound,
            }
        )
    ranks = frame(table)
    summary = Summary(
        instances=len(ranked) + len(ranked.left_out) + len(ranked.not_finite),
        without_attention=len(ranked.left_out),
        too_short=int(np.count_nonzero(~used)),
        used=int(np.count_nonzero(used)),
        excluded_items=ranked.excluded_items,
        width=ranked.width,
        ranks=k,
        ranks_by_length=choice.by_length,
        ranks_by_weight=choice.by_weight,
        ranks_ended_by=choice.ended_by,
        clusters=quantised.clusters,
        clusters_tried=tuple(quantised.tried),
        two_samples_each=quantised.passed,
        output_labels=len(outputs),
        constant_attention=constant,
        notices=(
            *_left_out(ranked),
            *_one_rank(choice),
            *_notices(ranks, outputs, quantised, constant, config),
        ),
        not_finite=len(ranked.not_finite),
    )
    instances = frame(
        {
            "row": ranked.rows,
            "id": ranked.ids,
            "length": ranked.lengths,
            "used": used,
            "predicted": ranked.labels,
            "output": output,
        }
    )
    correlations = _correlations(ranks, attention, control, constant, config)
    return Measurement(ranks, correlations, outputs, instances, summary)


def _constant(ranked: RankedStates, k: int) -> bool:
    """Say whether ranks 1 and k have equal weights in every instance that has both."""
    first, last = ranked.weights(1)[ranked.instances(k)], ranked.weights(k)  # all have a first
    return bool((first - last <= _CONSTANT * first).all())


def _interval(sample: Floats, confidence: float) -> tuple[float, float, float]:
    """Give mean and percentiles of what is defined in a sample; NaN where nothing is."""
    defined = sample[~np.isnan(sample)]
    if len(defined) == 0:
        return float("nan"), float("nan"), float("nan")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(defined, [tail, 100 - tail])
    return float(defined.mean()), float(low), float(high)


# --- correlations --------------------------------------------------------------------------------


def _correlations(
    ranks: DataFrame, attention: Floats, control: Floats, constant: bool, config: Config
) -> DataFrame:
    """Correlate information with attention, for each estimator and statistic."""
    by_position = constant and config.constant_attention == "by_position"
    order = -ranks["rank"].to_numpy(dtype=np.float64) if by_position else attention  # [k]
    records: list[dict[str, Any]] = []
    for estimator in ESTIMATORS:
        information = ranks[estimator].to_numpy().round(_DIGITS)  # [k]
        for statistic in STATISTICS:
            record: dict[str, Any] = {"estimator": estimator, "statistic": statistic}
            if np.isnan(information).any():
                found = Correlation(None, "shuffles is 0, so there is no control to subtract")
            elif constant and not by_position:
                found = Correlation(None, "attention is constant")
            else:
                found = _correlate(statistic, information, order, attention)
            record["value"] = np.nan if found.value is None else found.value
            record["reason"] = found.reason
            record["p_value"] = np.nan if found.p_value is None else found.p_value
            sample = np.zeros(0)
            if estimator == "plug_in" and found.value is not None:
                sample = _control_taus(statistic, control.T.round(_DIGITS), order, attention)
            for name, number in zip(
                ("control_mean", "control_low", "control_high"),
                _interval(sample, config.confidence),
                strict=True,
            ):
                record[name] = number
            records.append(record)
    return frame(records)


def _correlate(
    statistic: str, information: Floats, order: Floats, attention: Floats
) -> Correlation:
    """Compute one rank correlation of information with attention."""
    if statistic == "kendall":
        found = kendall_tau(information, order)
    else:
        pairs: Literal["product", "sum"] = "sum" if statistic == "weighted_sum" else "product"
        found = weighted_tau(information, order, attention, pairs=pairs)
    names = {
        "x is constant": "mutual information is the same at every rank",
        "y is constant": "attention is constant",
        "1 pair of numbers, needed at least 2": "one rank, needed at least 2",
    }
    return Correlation(found.value, names.get(found.reason, found.reason), found.p_value)


def _control_taus(statistic: str, control: Floats, order: Floats, attention: Floats) -> Floats:
    """Correlate each shuffle, [S, k] to [S]; tau-b is the tau with equal weights."""
    if statistic == "weighted_sum":
        return weighted_taus(control, order, attention, pairs="sum")
    equal = np.ones_like(attention)
    weights = equal if statistic == "kendall" else attention
    return weighted_taus(control, order, weights, pairs="product")


def _left_out(ranked: RankedStates) -> tuple[str, ...]:
    """Say how many instances are left out because something is not finite."""
    count = len(ranked.not_finite)
    if not count:
        return ()
    first = int(ranked.not_finite[0])
    told = "1 instance has" if count == 1 else f"{count:,} instances have"
    return (
        f"left out: {told} a state, score, weight or logit that is not finite, the first is number "
        f"{first}",
    )


def _one_rank(choice: RankChoice) -> tuple[str, ...]:
    """Say which option gives a second rank, without which no correlation is defined."""
    ways = {
        "given": "give a larger ranks (--ranks)",
        "max_ranks": "give a larger max_ranks (--max-ranks)",
        "length": "raise length_percentile (--length-percentile), which leaves out more of the "
        "short instances, or give ranks as a number (--ranks)",
        "weights": "lower weight_threshold or weight_share (--weight-threshold, --weight-share), "
        "or give ranks as a number (--ranks)",
    }
    if choice.ranks > 1:
        return ()
    return (f"one rank is measured, and a correlation needs 2: {ways[choice.ended_by]}",)


def _notices(
    ranks: DataFrame,
    outputs: DataFrame,
    quantised: Quantised,
    constant: bool,
    config: Config,
) -> tuple[str, ...]:
    """Say what a reader of the numbers must know."""
    notices = []
    N = quantised.clusters
    if not quantised.passed:
        singletons = int(ranks["singletons"].sum())
        notices.append(
            f"{N} clusters do not leave two samples to each: {singletons} hold one state"
        )
    fewer = ranks[ranks["clusters"] < N]
    if len(fewer) and config.codebook == "rank":
        notices.append(
            f"{counted(len(fewer), 'rank')} {have(len(fewer))} fewer than {N} "
            f"clusters that occur, the first rank "
            f"{int(fewer['rank'].iloc[0])} with {int(fewer['clusters'].iloc[0])}"
        )
    smallest = int(outputs["instances"].min())
    if smallest == 1:
        notices.append("an output label belongs to one instance only")
    if ranks["instances"].nunique() > 1:
        notices.append("ranks have different numbers of instances, so estimates differ in bias")
    if constant:
        notices.append("attention is constant: ranks are positions")
    return tuple(notices)
