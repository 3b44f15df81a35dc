"""What tau is where attention knows nothing, and under other seeds of k-means.

Heavy items inform about the output because their weights enter it. Outputs shuffled among the
instances, the control of `measure`, take that away too; the nulls here do not:

- `permuted`: the weights are permuted within each instance, and the outputs are computed anew. What
  tau is left is mechanical: items that were made heavy at random.
- `equal`: all items weigh alike in the outputs, and keep their ranks. What tau is left is the
  choice of attention alone: no item has a larger share of the output than another.
- `untrained`: the model with the attention that it began with, or another of random parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.mi.config import REPEATING, REWEIGHING, Config
from fastattnerase.mi.errors import MeasurementError
from fastattnerase.mi.frames import frame
from fastattnerase.mi.grouping import Grouping, RankedStates, group, is_ranked
from fastattnerase.mi.measurement import STATISTICS, Measurement, measure_ranked
from fastattnerase.ops.permutations import permuted
from fastattnerase.runs.progress import Report, silent
from fastattnerase.statistics.attention import head_weights
from fastattnerase.statistics.correlation import Correlation

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    DataFrame = Any

Floats = NDArray[np.float64]
Batches = Callable[[], Iterable[fae.AttentionBatch]]


def repeat_measurement(
    batches: Batches,
    found: Measurement,
    config: Config,
    *,
    untrained: Batches | None = None,
    scratch: Path | None = None,
    report: Report = silent,
) -> DataFrame:
    """Measure tau again: under other seeds of k-means, and where attention knows nothing.

    All repeats have the ranks and the number of clusters of the measurement. The permutations are
    `π_p` of the engine, whose orders are its random ones from number 2³³ on, over the items that
    are ranked; outputs are `fae.reweigh`'s, `Σ_i a_{π(i)} W h_i + b`.

    Args:
        batches: gives the batches of the measurement once more, from the beginning.
        found: the measurement.
        config: of the measurement; `kmeans_seeds` and `permutations` say how many repeats.
        untrained: gives the batches of the model with untrained attention; without it that null is
            left out.
        scratch: directory of the temporary files.
        report: told how far this is.

    Returns:
        A row for each repeat and statistic, as `Measurement.repeats` says.

    Source:
        Jain and Wallace 2019, section 4.2.1 (permuted weights); Wen, Subbalakshmi and Yang 2022,
        section 4, which repeat a seed ten times.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.mi import Config, measure, repeat_measurement
        >>> values = torch.randn(200, 4, 3, generator=torch.manual_seed(0))  # [B, N, D]
        >>> scores = torch.tensor([2.0, 1.0, 0.5, 0.0]).expand(200, 4)
        >>> batch = fae.AttentionBatch.from_padded(
        ...     values, scores=scores, head_weight=torch.eye(3)[:2] * 9)
        >>> config = Config(clusters=8, permutations=2, kmeans_seeds=1)
        >>> repeats = repeat_measurement(lambda: [batch], measure([batch], config), config)
        >>> repeats["measurement"].drop_duplicates().tolist()
        ['kmeans', 'permuted', 'equal']
    """
    k, N = found.summary.ranks, found.summary.clusters
    calm = "undefined" if config.constant_attention == "error" else config.constant_attention
    again = replace(
        config, ranks=k, clusters=N, max_ranks=None, shuffles=0, constant_attention=calm
    )
    table: list[dict[str, Any]] = []
    seeds, draws = config.kmeans_seeds - 1, config.permutations
    total = seeds + (draws + 1 + (untrained is not None) if draws else 0)

    def note(name: str, draw: int, taus: dict[str, Correlation]) -> None:
        for statistic, tau in taus.items():
            value = np.nan if tau.value is None else tau.value
            table.append(
                {
                    "measurement": name, "draw": draw, "statistic": statistic, "value": value,
                    "reason": tau.reason,
                }
            )  # fmt: skip

    def add(name: str, draw: int, ranked: RankedStates, own: Config) -> None:
        """Measure grouped states; what makes it impossible is a result."""
        try:
            measured = measure_ranked(ranked, own, silent)
            note(name, draw, {s: measured.correlation(s) for s in STATISTICS})
        except MeasurementError as error:
            note(name, draw, {s: Correlation(None, str(error)) for s in STATISTICS})
        report(REPEATING, len(table) // len(STATISTICS) - 1, total)

    # The first seed of k-means is the measurement's own.
    note("kmeans", 0, {s: found.correlation(s) for s in STATISTICS})
    if not total:
        report(REWEIGHING, 1, 1)
        report(REPEATING, 1, 1)
        return frame(table)
    with ExitStack() as files:
        groupings = [Grouping(config.exclude, k, scratch, config.backend) for _ in range(draws + 1)]
        for grouping in groupings:
            files.enter_context(grouping.ranked)
        equal = _stream(batches, groupings, found.summary.instances, config, report)  # [N, C]
        own, *others = [grouping.finish() for grouping in groupings]
        report(REPEATING, 0, total)
        for seed in range(1, seeds + 1):
            add("kmeans", seed, own, replace(again, seed=(config.seed + seed) % 2**32))
        for draw, ranked in enumerate(others):
            add("permuted", draw, ranked, again)
        if draws:
            own.logits = equal[own.rows]
            own.labels = own.logits.argmax(1)
            add("equal", 0, own, again)
    if draws and untrained is not None:
        with group(
            untrained(),
            exclude=config.exclude,
            max_ranks=k,
            directory=scratch,
            backend=config.backend,
        ) as ranked:
            add("untrained", 0, ranked, again)
    return frame(table)


def _stream(
    batches: Batches, groupings: list[Grouping], count: int, config: Config, report: Report
) -> Floats:
    """Group the states as they are and under each permutation, and give equal weights' logits.

    Args:
        groupings: the first takes the batches as they are, the others a permutation each.
        count: number of instances.

    Returns:
        [N, C], of all instances of the stream.
    """
    equal: list[Floats] = []
    done = 0
    for batch in batches():
        groupings[0].add(batch)
        weights = head_weights(batch)  # [T, H]
        among = torch.from_numpy(is_ranked(batch, weights.mean(axis=1), config.exclude))  # [T]
        among = among.to(batch.device)
        own = torch.from_numpy(weights).to(batch.device)  # [T, H]
        given = batch.weights if batch.scores is None else batch.scores
        assert given is not None  # a batch has one of the two
        attention = given.reshape(own.shape)  # [T, H]
        both = torch.cat([attention.double(), own], dim=1)  # [T, 2H]
        moved = [
            permuted(batch, both, draw, seed=config.seed, among=among)  # [T, 2H]
            for draw in range(len(groupings) - 1)
        ]
        H = batch.num_heads
        even = among.double()[:, None].expand_as(own)  # [T, H]
        every = torch.stack([*(draw[:, H:] for draw in moved), even])  # [P + 1, T, H]
        logits = fae.reweigh(batch, every if batch.values.ndim == 3 else every[:, :, 0])
        for grouping, draw, outputs in zip(groupings[1:], moved, logits, strict=False):
            grouping.add((_with_attention(batch, draw[:, :H]), outputs))
        equal.append(logits[-1].double().cpu().numpy())
        done += len(batch)
        report(REWEIGHING, done, count)
    return np.concatenate(equal)


def _with_attention(batch: fae.AttentionBatch, attention: Tensor) -> fae.AttentionBatch:
    """Give a batch other scores, or weights, [T, H]; its logits come from elsewhere."""
    attention = attention if batch.values.ndim == 3 else attention[:, 0]
    kind = "weights" if batch.scores is None else "scores"
    return fae.AttentionBatch(
        batch.values,
        batch.offsets,
        **{kind: attention},
        head=lambda pooled: pooled,
        ids=batch.ids,
    )
