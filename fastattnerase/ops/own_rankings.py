"""Rankings that no backend computes: the engine takes their scores as given."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fastattnerase.backends.checks import check_offsets
from fastattnerase.problem import Problem
from fastattnerase.rankings import resolve
from fastattnerase.rankings.base import OrderContext, Ranking, RankingError
from fastattnerase.reference.instance import Instance, LinearInstance


def own_scores(*args: Any) -> Tensor:
    """Compute the scores of rankings, by name, from the first seven fields of a problem: [R', T].

    One instance is read at a time, once for all rankings, in float64 on the CPU.
    """
    *inputs, names, seed, validate = args
    inputs += (), ()  # no rankings: they are what is computed
    problem = Problem(*inputs)
    T, device = len(problem.values), problem.values.device
    check_offsets(problem.offsets, T)
    rankings = [resolve(name) for name in names]
    with torch.inference_mode(False), torch.no_grad():
        scores = torch.zeros(len(names), T, dtype=torch.float64)  # [R', T]
        for b, (begin, end) in enumerate(pairwise(problem.offsets.tolist())):
            instance = LinearInstance(problem, b)
            if not problem.is_scores and bool((instance.attention < 0).any()):
                continue  # the engine says so
            for row, ranking in zip(scores, rankings, strict=True):
                row[begin:end] = keys_of(ranking, instance, b, seed, validate)
    return scores.to(device)


def keys_of(ranking: Ranking, instance: Instance, b: int, seed: int, validate: bool) -> Tensor:
    """Compute the ranking scores of instance `b`: [n], float64; an order's are by rank.

    With something not finite all are zero, so that the order is by position. NaN, and orders that
    are no permutation, raise or become NaN, which makes the instance INVALID.
    """
    name, n = f"ranking {ranking.name!r}", instance.n
    keys = torch.zeros(n, dtype=torch.float64, device=instance.attention.device)
    if not instance.finite or not n:
        return keys
    given = ranking.order(instance, OrderContext(seed=seed, arg=0))
    if not isinstance(given, Tensor):
        raise RankingError(
            f"{name}: given {type(given).__name__} for instance {b}, needed a tensor [{n}] of "
            "scores or positions"
        )
    if given.shape != (n,):
        raise RankingError(
            f"{name}: given {list(given.shape)} for instance {b}, needed [{n}], one for each item"
            f"{'; .squeeze(1) makes it so' if given.shape == (n, 1) else ''}"
        )
    given = given.detach().to(keys.device)
    if given.is_floating_point():
        keys = given.double()
        if validate and bool(keys.isnan().any()):
            raise RankingError(
                f"{name}: given NaN at position {int(keys.isnan().long().argmax())} of instance "
                f"{b}, needed numbers"
            )
        return keys
    if given.dtype != torch.int64:
        raise RankingError(
            f"{name}: given {given.dtype} for instance {b}, needed floats (ranking scores) or "
            "int64 (an order)"
        )
    if torch.equal(given.sort().values, instance.positions):
        keys[given] = torch.arange(n, 0, -1, dtype=keys.dtype, device=keys.device)
        return keys
    if validate:
        shown = ", ".join(str(int(x)) for x in given[:8]) + (", …" if n > 8 else "")
        raise RankingError(
            f"{name}: given the order [{shown}] for instance {b}, needed a permutation of "
            f"0 … {n - 1}"
        )
    return keys.fill_(torch.nan)
