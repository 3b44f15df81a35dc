"""The operators as torch sees them: `torch.ops.fastattnerase.sweep` and `.pooled_prefixes`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastattnerase.backends import choose
from fastattnerase.problem import PooledProblem, Problem, RankingKind, allocate, as_outputs

LOG = logging.getLogger("fastattnerase")
if os.environ.get("FASTATTNERASE_LOG") == "1":
    LOG.setLevel(logging.DEBUG)
    LOG.addHandler(logging.StreamHandler(sys.stderr))

_KINDS = {int(kind): kind for kind in RankingKind}

# torch.library comes without annotations.
_library: Any = torch.library
_LIBRARY = _library.Library("fastattnerase", "DEF")
_LIBRARY.define(
    "sweep(Tensor values, Tensor offsets, Tensor attention, bool is_scores, Tensor head_weight, "
    "Tensor head_bias, Tensor ids, int[] rankings, int[] ranking_args, Tensor[] orders, "
    "Tensor[] keys, int seed, bool keep, int wants, str backend, bool validate) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    "pooled_prefixes(Tensor values, Tensor offsets, Tensor attention, bool is_scores, "
    "Tensor order, bool keep, SymInt begin, SymInt count, str backend) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _sweep(
    values: Tensor,
    offsets: Tensor,
    attention: Tensor,
    is_scores: bool,
    head_weight: Tensor,
    head_bias: Tensor,
    ids: Tensor,
    rankings: Sequence[int],
    ranking_args: Sequence[int],
    orders: Sequence[Tensor],
    keys: Sequence[Tensor],
    seed: int,
    keep: bool,
    wants: int,
    backend: str,
    validate: bool,
) -> list[Tensor]:
    problem = Problem(
        values,
        offsets,
        attention,
        is_scores,
        head_weight,
        head_bias,
        ids,
        tuple([_KINDS[kind] for kind in rankings]),
        tuple(ranking_args),
        tuple(orders),
        tuple(keys),
        seed,
        keep,
        validate,
    )
    chosen = choose(backend, values.device.type, problem)
    if LOG.isEnabledFor(logging.DEBUG):
        _log("sweep", chosen.name, values=values, attention=attention, head_weight=head_weight)
    results = allocate(values, offsets, head_weight.shape[0], len(rankings), wants)
    chosen.sweep(problem, as_outputs(results, wants))
    return results


def _sweep_fake(
    values: Tensor,
    offsets: Tensor,
    attention: Tensor,
    is_scores: bool,
    head_weight: Tensor,
    head_bias: Tensor,
    ids: Tensor,
    rankings: Sequence[int],
    ranking_args: Sequence[int],
    orders: Sequence[Tensor],
    keys: Sequence[Tensor],
    seed: int,
    keep: bool,
    wants: int,
    backend: str,
    validate: bool,
) -> list[Tensor]:
    return allocate(values, offsets, head_weight.shape[0], len(rankings), wants)


def _allocate_pooled(values: Tensor, count: int) -> Tensor:
    real = torch.float64 if values.dtype == torch.float64 else torch.float32
    return values.new_empty((count, *values.shape[1:]), dtype=real)


def _pooled_prefixes(
    values: Tensor,
    offsets: Tensor,
    attention: Tensor,
    is_scores: bool,
    order: Tensor,
    keep: bool,
    begin: int,
    count: int,
    backend: str,
) -> Tensor:
    chosen = choose(backend, values.device.type)
    if LOG.isEnabledFor(logging.DEBUG):
        _log("pooled_prefixes", chosen.name, values=values, attention=attention, order=order)
    pooled = _allocate_pooled(values, count)
    chosen.pooled_prefixes(
        PooledProblem(values, offsets, attention, is_scores, order, keep, begin), pooled
    )
    return pooled


def _pooled_prefixes_fake(
    values: Tensor,
    offsets: Tensor,
    attention: Tensor,
    is_scores: bool,
    order: Tensor,
    keep: bool,
    begin: int,
    count: int,
    backend: str,
) -> Tensor:
    return _allocate_pooled(values, count)


def _log(op: str, backend: str, **tensors: Tensor) -> None:
    shown = ", ".join(f"{name} {t.dtype} {list(t.shape)}" for name, t in tensors.items())
    LOG.debug("%s on %s (%s): %s", op, backend, tensors["values"].device, shown)


_LIBRARY.impl("sweep", _sweep, "CompositeExplicitAutograd")
_LIBRARY.impl("pooled_prefixes", _pooled_prefixes, "CompositeExplicitAutograd")
_library.register_fake("fastattnerase::sweep", _sweep_fake, lib=_LIBRARY)
_library.register_fake("fastattnerase::pooled_prefixes", _pooled_prefixes_fake, lib=_LIBRARY)

sweep_op = torch.ops.fastattnerase.sweep.default
pooled_prefixes_op = torch.ops.fastattnerase.pooled_prefixes.default
