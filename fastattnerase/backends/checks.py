"""Checks that read a problem's contents, for backends without checks of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.problem import Problem, RankingKind, ReweighedProblem


def check_offsets(offsets: Tensor, items: int) -> None:
    """Raise unless `offsets` [B + 1] run from 0 to `items` and never decrease."""
    if int(offsets[0]) != 0:
        lengths = (offsets >= 0).all() and int(offsets.sum()) == items
        way = ", as torch.cat([torch.tensor([0]), lengths.cumsum(0)]) makes of lengths"
        raise ValueError(
            f"offsets: given {int(offsets[0])} as the first, needed 0{way if lengths else ''}"
        )
    decreasing = offsets[1:] < offsets[:-1]  # [B]
    if bool(decreasing.any()):
        b = int(decreasing.long().argmax())
        raise ValueError(
            f"offsets: given {int(offsets[b])} and then {int(offsets[b + 1])} for instance {b}, "
            "needed numbers that never decrease"
        )
    if int(offsets[-1]) != items:
        raise ValueError(
            f"offsets: given {int(offsets[-1])} as the last, needed the number of items, {items}"
        )


def check_contents(problem: Problem) -> None:
    """Raise for offsets, weights, orders or ranking scores that cannot be used."""
    items = len(problem.values)
    check_offsets(problem.offsets, items)
    if not problem.is_scores:
        negative = (problem.attention < 0).any(1)  # [T]
        if bool(negative.any()):
            instance, position, row = _locate(problem.offsets, negative)
            weight = float(problem.attention[row].min())
            raise ValueError(
                f"weights: given {weight:g} at position {position} of instance {instance}, needed "
                "0 or more"
            )
    for kind, arg in zip(problem.rankings, problem.ranking_args, strict=True):
        if kind == RankingKind.GIVEN_KEYS:
            nan = problem.keys[arg].isnan()  # [T]
            if bool(nan.any()):
                instance, position, _ = _locate(problem.offsets, nan)
                raise ValueError(
                    f"rankings: given NaN at position {position} of instance {instance}, needed "
                    "numbers"
                )
        elif kind == RankingKind.GIVEN_ORDER:
            _check_order(problem.offsets, problem.orders[arg])


def check_weights(problem: ReweighedProblem) -> None:
    """Raise for offsets or weights that cannot be used."""
    check_offsets(problem.offsets, len(problem.values))
    negative = (problem.weights < 0).any(2)  # [R, T]
    for row in negative.any(1).nonzero().flatten().tolist():
        instance, position, item = _locate(problem.offsets, negative[row])
        weight = float(problem.weights[row, item].min())
        raise ValueError(
            f"weights: given {weight:g} at position {position} of instance {instance} in row "
            f"{row}, needed 0 or more"
        )


def _locate(offsets: Tensor, marked: Tensor) -> tuple[int, int, int]:
    """Find the instance, position and row of the first marked item."""
    row = int(marked.long().argmax())
    instance = int(torch.searchsorted(offsets, torch.tensor(row).to(offsets), right=True)) - 1
    return instance, row - int(offsets[instance]), row


def _check_order(offsets: Tensor, order: Tensor) -> None:
    """Raise unless every instance's part of `order` [T] is a permutation of its positions."""
    items = len(order)
    lengths = offsets.diff()  # [B]
    instance = torch.repeat_interleave(lengths, output_size=items)  # [T]
    outside = (order < 0) | (order >= lengths[instance])  # [T]
    row = (order + offsets[instance]).masked_fill(outside, 0)  # [T]
    seen = torch.zeros_like(order).index_put_((row,), (~outside).long(), accumulate=True)  # [T]
    wrong = outside | (seen != 1)
    if bool(wrong.any()):
        b = int(instance[int(wrong.long().argmax())])
        given = order[int(offsets[b]) : int(offsets[b + 1])]
        shown = ", ".join(str(int(x)) for x in given[:8]) + (", …" if len(given) > 8 else "")
        raise ValueError(
            f"rankings: given the order [{shown}] for instance {b}, needed a permutation of "
            f"0 … {len(given) - 1}"
        )
