"""Pooled vectors of every prefix, for heads that are any callable (engine contract, section 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.problem import PooledProblem
from fastattnerase.reference.instance import Attention, average
from fastattnerase.reference.sums import suffix_sums


def pooled_prefixes(problem: PooledProblem, pooled: Tensor) -> None:
    """Fill `pooled` [M, H, D]; all tensors are on the CPU."""
    begin, end = problem.begin, problem.begin + len(pooled)
    for index in range(len(problem.offsets) - 1):
        first, last = int(problem.offsets[index]), int(problem.offsets[index + 1])
        low, high = max(begin, first + index), min(end, last + index + 1)
        if low >= high:
            continue
        points = pooled_instance(
            problem.values[first:last].double(),
            problem.attention[first:last].double(),
            problem.is_scores,
            problem.order[first:last],
            problem.keep,
        )  # [n + 1, H, D]
        wanted = points[low - first - index : high - first - index]
        pooled[low - begin : high - begin] = wanted.to(pooled.dtype)


def pooled_instance(
    values: Tensor, attention: Tensor, is_scores: bool, order: Tensor, keep: bool
) -> Tensor:
    """Average over the survivors of every prefix of `order`: [n, H, D] to [n + 1, H, D].

    NaN as long as an item survives whose score or weight is not finite.
    """
    order = order.flip(0) if keep else order
    own = Attention(attention, is_scores)
    heads = []
    for h in range(own.H):
        points = average(*own.tail(h, order, values[:, h]))  # [n + 1, D]
        points[suffix_sums(own.bad_heads[order, h].long()) > 0] = torch.nan
        heads.append(points)
    pooled = torch.stack(heads, dim=1)  # [n + 1, H, D]
    return pooled.flip(0) if keep else pooled
