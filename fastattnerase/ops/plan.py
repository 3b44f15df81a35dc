"""From what a caller names as rankings to the rows that the operator takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.problem import RankingKind
from fastattnerase.rankings import RANKINGS, resolve
from fastattnerase.tensor_checks import check_tensor

RankingLike = str | Tensor

_UNPLACED = -1
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
    # Rows whose ranking no backend computes, by name: `place` gives them scores beforehand.
    unplaced: dict[int, str]

    def add(self, name: str, kind: int, arg: int = 0) -> None:
        """Add a row."""
        self.names.append(name)
        self.kinds.append(kind)
        self.args.append(arg)

    def place(self, row: int, keys: Tensor) -> None:
        """Give a row ranking scores [T] that have been computed for it."""
        self.kinds[row] = _GIVEN_KEYS
        self.args[row] = len(self.keys)
        self.keys.append(keys)

    def place_order(self, row: int, order: Tensor) -> None:
        """Give a row an order [T] that has been computed for it."""
        self.kinds[row] = _GIVEN_ORDER
        self.args[row] = len(self.orders)
        self.orders.append(order.contiguous())

    def copy(self) -> Plan:
        """Copy the plan, so that rows can be placed in one alone."""
        return Plan(
            self.names,
            list(self.kinds),
            list(self.args),
            list(self.orders),
            list(self.keys),
            dict(self.unplaced),
        )


def plan_rankings(
    batch: AttentionBatch,
    rankings: Sequence[RankingLike],
    random_orders: int,
    first_random: int = 0,
    renormalize: bool = True,
) -> Plan:
    """Check the rankings and give each its row; "random" gets `random_orders` rows."""
    plan = Plan([], [], [], [], [], {})
    for given in rankings:
        if not isinstance(given, str):
            _plan_tensor(plan, batch, given)
            continue
        ranking = RANKINGS.get(given)
        if ranking is None:
            ranking = resolve(given)
        kind = ranking.kind
        if kind is None:
            plan.unplaced[len(plan.kinds)] = given
            plan.add(given, _UNPLACED)
        elif kind == _RANDOM:
            for i in range(first_random, first_random + random_orders):
                plan.add("random" if random_orders == 1 else f"random[{i}]", _RANDOM, i)
        else:
            if kind == _MINIMAL:
                check_minimal(batch, "rankings", renormalize)
            plan.add(given, kind)
    if len(plan.orders) + len(plan.keys) > 1:
        count = 0
        for row, name in enumerate(plan.names):
            if name == "given":
                plan.names[row] = f"given[{count}]"
                count += 1
    return plan


def _way_to_pack(batch: AttentionBatch, ranking: Tensor) -> str:
    """Say how padded scores [B, N] are packed, where a ranking looks like them; else nothing."""
    if ranking.ndim != 2 or ranking.shape[0] != len(batch):
        return ""
    return "; of padded scores those that the mask keeps, scores[mask.bool()]"


def _plan_tensor(plan: Plan, batch: AttentionBatch, ranking: Tensor) -> None:
    """Add a row for an order or for ranking scores."""
    if not isinstance(ranking, Tensor):
        raise TypeError(f"rankings: given {type(ranking).__name__}, needed a name or a tensor")
    check_tensor("rankings", ranking)
    if ranking.ndim != 1 or ranking.shape[0] != batch.num_items:
        raise ValueError(
            f"rankings: given a tensor of shape {list(ranking.shape)}, needed [{batch.num_items}], "
            f"one for each item{_way_to_pack(batch, ranking)}"
        )
    if ranking.device != batch.device:
        raise ValueError(
            f"rankings: given a tensor on {ranking.device}, needed on {batch.device} as the batch"
        )
    ranking = ranking.detach()
    if ranking.dtype == torch.int64:
        plan.add("given", _GIVEN_ORDER, len(plan.orders))
        plan.orders.append(ranking.contiguous())
    elif ranking.is_floating_point():
        plan.add("given", _GIVEN_KEYS, len(plan.keys))
        if ranking.dtype not in (torch.float32, torch.float64):
            ranking = ranking.float()
        plan.keys.append(ranking.contiguous())
    else:
        raise TypeError(
            f"rankings: given a tensor of {ranking.dtype}, needed int64 (an order) or floats "
            "(ranking scores)"
        )


def why_no_minimal(batch: AttentionBatch, renormalize: bool = True) -> str:
    """Say why a batch has no minimal set from one sort; empty where it has one."""
    if batch.head is not None:
        return "a callable head: the sort that finds the set is exact for linear heads alone"
    if batch.num_heads > 1 and renormalize:
        heads = f"{batch.num_heads} attention heads"
        return f"{heads}: the sort that finds the set is exact for one; minimal_flip_set searches"
    return ""


def check_minimal(batch: AttentionBatch, name: str, renormalize: bool = True) -> None:
    """Refuse the minimal set where it is not defined."""
    why = why_no_minimal(batch, renormalize)
    if why:
        raise ValueError(
            f"{name}: given the minimal set of a batch with {why}, needed a linear head and one "
            "attention head"
        )
