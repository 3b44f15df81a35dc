"""The operators as torch sees them: `torch.ops.fastattnerase.sweep` and `.pooled_prefixes`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fastattnerase.backends import choose
from fastattnerase.backends.base import Outputs, PooledProblem, Problem, RankingKind

LOG = logging.getLogger("fastattnerase")
if os.environ.get("FASTATTNERASE_LOG") == "1":
    LOG.setLevel(logging.DEBUG)
    LOG.addHandler(logging.StreamHandler(sys.stderr))

# Results by name; those after ALWAYS are computed where their bit in `wants` is set.
FIELDS = tuple(f.name for f in fields(Outputs))
ALWAYS = 6
BIT = {name: 1 << i for i, name in enumerate(FIELDS[ALWAYS:])}
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


def allocate(
    values: Tensor, offsets: Tensor, num_classes: int, num_rankings: int, wants: int
) -> list[Tensor]:
    """Allocate the wanted results of a sweep, in the order of `FIELDS`."""
    T, B, C, R = values.shape[0], offsets.shape[0] - 1, num_classes, num_rankings
    P = T + B
    integer, double = torch.int64, torch.float64
    real = double if values.dtype is double else torch.float32
    empty = values.new_empty
    results = [
        empty((B,), dtype=integer),
        empty((B, C), dtype=real),
        empty((B,), dtype=integer),
        empty((R, B), dtype=integer),
        empty((R, B), dtype=integer),
        empty((R, B), dtype=double),
    ]
    if not wants:
        return results
    optional: tuple[tuple[tuple[int, ...], torch.dtype], ...] = (
        ((R, P), real),  # curve_js
        ((R, P), real),  # curve_kl
        ((R, P), real),  # curve_label_prob
        ((R, P), double),  # curve_mass
        ((R, P), integer),  # curve_decision
        ((R, P, C), real),  # curve_logits
        ((R, T), integer),  # order
        ((T,), integer),  # single_flip_label
        ((T,), real),  # single_js
        ((T,), real),  # single_drop
        ((B,), integer),  # minimal_size
        ((B,), integer),  # minimal_flip_label
        ((T,), integer),  # minimal_order
    )
    for bit, (shape, dtype) in enumerate(optional):
        if wants >> bit & 1:
            results.append(empty(shape, dtype=dtype))
    return results


def as_outputs(results: Sequence[Tensor], wants: int) -> Outputs:
    """Give the results of `allocate` their names."""
    if not wants:
        return Outputs(*results)
    rest = iter(results[ALWAYS:])
    optional = (next(rest) if wants >> bit & 1 else None for bit in range(len(BIT)))
    return Outputs(*results[:ALWAYS], *optional)


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
