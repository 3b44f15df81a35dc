"""How many attention ranks are measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastattnerase.mi.config import Config
from fastattnerase.mi.errors import MeasurementError
from fastattnerase.mi.grouping import RankedStates
from fastattnerase.plurals import counted


@dataclass(frozen=True)
class RankChoice:
    """How many ranks are measured, and what each rule says (None where it was not asked).

    Attributes:
        ranks: `k`.
        by_length: from the percentile of the lengths.
        by_weight: from the share of weights above the threshold.
        ended_by: what set `k`: `length`, `weights`, `max_ranks` or `given`.
    """

    ranks: int
    by_length: int | None
    by_weight: int | None
    ended_by: str


def choose_ranks(ranked: RankedStates, config: Config) -> RankChoice:
    """Choose the number of ranks to measure, `k`, by the rules of `Config`.

    Args:
        ranked: the grouped states.
        config: `ranks` and what belongs to it.

    Returns:
        The choice.

    Raises:
        MeasurementError: no rank is left, or no instance has as many items as ranks asked for.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 3.2.1.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.mi import Config, choose_ranks, group
        >>> batch = fae.AttentionBatch(
        ...     torch.ones(3, 1), torch.tensor([0, 3]), weights=torch.tensor([0.1, 0.9, 0.0]),
        ...     head_weight=torch.tensor([[0.0], [1.0]]))
        >>> with group([batch]) as ranked:
        ...     choice = choose_ranks(ranked, Config())
        >>> choice.by_length, choice.by_weight, choice.ranks
        (3, 2, 2)
    """
    if isinstance(config.ranks, int):
        if config.ranks > ranked.num_ranks:
            raise MeasurementError(
                f"ranks: given {config.ranks}, needed at most {ranked.num_ranks}, the ranked items "
                f"of the longest instance (--ranks)"
            )
        return RankChoice(config.ranks, None, None, "given")
    by_length = by_weight = None
    limits = {} if config.max_ranks is None else {"max_ranks": config.max_ranks}
    if config.ranks in ("both", "length"):
        by_length = int(np.percentile(ranked.lengths, config.length_percentile))
        limits["length"] = by_length
    if config.ranks in ("both", "weights"):
        by_weight = _ranks_by_weight(ranked, config)
        limits["weights"] = by_weight
        if by_weight == 0:
            raise MeasurementError(
                f"no rank is left: fewer than {config.weight_share:g} of the "
                f"{counted(len(ranked), 'instance')} have a largest weight above "
                f"{config.weight_threshold:g}; lower weight_threshold or weight_share "
                "(--weight-threshold, --weight-share), or give ranks as a number (--ranks)"
            )
    ended_by = min(limits, key=lambda name: limits[name])
    return RankChoice(limits[ended_by], by_length, by_weight, ended_by)


def _ranks_by_weight(ranked: RankedStates, config: Config) -> int:
    """Count the ranks at which enough weights lie above the threshold."""
    chosen = above = items = 0
    for rank in range(1, ranked.num_ranks + 1):
        weights = ranked.weights(rank)
        count = int(np.count_nonzero(weights > config.weight_threshold))
        above, items = above + count, items + len(weights)
        if config.weight_rule == "selected":
            enough = above >= config.weight_share * items
        else:
            enough = count >= config.weight_share * len(ranked)
        if enough:
            chosen = rank
        elif config.weight_rule == "kth":
            break  # a later rank has fewer instances, with smaller weights
    return chosen
