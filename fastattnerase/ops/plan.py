"""From what a caller names as rankings to the rows that the operator takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.problem import RankingKind
from fastattnerase.rankings import RANKINGS

RankingLike = str | Tensor

_KIND = {name: int(ranking.kind) for name, ranking in RANKINGS.items()}
_RANDOM = int(RankingKind.RANDOM)
_MINIMAL = int(RankingKind.MINIMAL)
_GIVEN_ORDER = int(RankingKind.GIVEN_ORDER)
_GIVEN_KEYS = int(RankingKind.GIVEN_KEYS)


@dataclass
class Plan:
    """Rankings in the form that the operator takes; `names` of their rows."""

    names: list[str]
    kinds: list[int]
    args: list[int]
    orders: list[Tensor]
    keys: list[Tensor]


def plan_rankings(
    batch: AttentionBatch,
    rankings: Sequence[RankingLike],
    random_orders: int,
    first_random: int = 0,
) -> Plan:
    """Check the rankings and give each its row; "random" gets `random_orders` rows."""
    plan = Plan([], [], [], [], [])
    for ranking in rankings:
        if isinstance(ranking, str):
            kind = _KIND.get(ranking)
            if kind is None:
                known = ", ".join(repr(name) for name in _KIND)
                raise ValueError(f"rankings: given {ranking!r}, needed one of {known} or a tensor")
            if kind == _RANDOM:
                for i in range(first_random, first_random + random_orders):
                    plan.names.append("random" if random_orders == 1 else f"random[{i}]")
                    plan.kinds.append(kind)
                    plan.args.append(i)
                continue
            if kind == _MINIMAL:
                check_minimal(batch, "rankings")
            plan.names.append(ranking)
            plan.kinds.append(kind)
            plan.args.append(0)
        else:
            _plan_tensor(plan, batch, ranking)
    if len(plan.orders) + len(plan.keys) > 1:
        count = 0
        for row, name in enumerate(plan.names):
            if name == "given":
                plan.names[row] = f"given[{count}]"
                count += 1
    return plan


def _plan_tensor(plan: Plan, batch: AttentionBatch, ranking: Tensor) -> None:
    """Add a row for an order or for ranking scores."""
    if not isinstance(ranking, Tensor):
        raise TypeError(f"rankings: given {type(ranking).__name__}, needed a name or a tensor")
    if ranking.ndim != 1 or ranking.shape[0] != batch.num_items:
        raise ValueError(
            f"rankings: given a tensor of shape {list(ranking.shape)}, needed [{batch.num_items}], "
            "one for each item"
        )
    if ranking.device != batch.device:
        raise ValueError(
            f"rankings: given a tensor on {ranking.device}, needed on {batch.device} as the batch"
        )
    ranking = ranking.detach()
    plan.names.append("given")
    if ranking.dtype == torch.int64:
        plan.kinds.append(_GIVEN_ORDER)
        plan.args.append(len(plan.orders))
        plan.orders.append(ranking.contiguous())
    elif ranking.is_floating_point():
        plan.kinds.append(_GIVEN_KEYS)
        plan.args.append(len(plan.keys))
        if ranking.dtype not in (torch.float32, torch.float64):
            ranking = ranking.float()
        plan.keys.append(ranking.contiguous())
    else:
        raise TypeError(
            f"rankings: given a tensor of {ranking.dtype}, needed int64 (an order) or floats "
            "(ranking scores)"
        )


def check_minimal(batch: AttentionBatch, name: str) -> None:
    """Refuse the minimal set where it is not defined."""
    if batch.head is not None:
        raise ValueError(
            f"{name}: the minimal set needs a linear head, the batch has a callable one"
        )
    if batch.num_heads > 1:
        raise ValueError(
            f"{name}: the minimal set needs one attention head, the batch has {batch.num_heads}"
        )
