"""The operators as torch sees them: `torch.ops.fastattnerase.sweep` and what it needs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

import torch
from torch import Tensor

from fastattnerase.backends import choose
from fastattnerase.backends.base import PermutingBackend, ReweighingBackend
from fastattnerase.backends.reference import BACKEND as REFERENCE
from fastattnerase.ops.own_rankings import own_scores
from fastattnerase.problem import (
    PermutedOutputs,
    PermutedProblem,
    PooledProblem,
    Problem,
    RankingKind,
    ReweighedProblem,
    allocate,
    as_outputs,
)

LOG = logging.getLogger("fastattnerase")
if os.environ.get("FASTATTNERASE_LOG") == "1":
    LOG.setLevel(logging.DEBUG)
    LOG.addHandler(logging.StreamHandler(sys.stderr))

_KINDS = {int(kind): kind for kind in RankingKind}
# How the schema of an operator spells the type of a record's field.
_SPELLED = {
    "Tensor": "Tensor",
    "bool": "bool",
    "int": "SymInt",
    "tuple[RankingKind, ...]": "int[]",
    "tuple[int, ...]": "int[]",
    "tuple[Tensor, ...]": "Tensor[]",
}


def _arguments(
    record: type[Problem | PooledProblem | PermutedProblem | ReweighedProblem],
) -> list[str]:
    """Spell the fields of a record as arguments of an operator, in their order."""
    return [f"{_SPELLED[str(field.type)]} {field.name}" for field in fields(record)]


# torch.library comes without annotations.
_library: Any = torch.library
_LIBRARY = _library.Library("fastattnerase", "DEF")
# Operators take a record's fields one by one, since torch sees no tensor within an object.
*_FIELDS, _VALIDATE = _arguments(Problem)
_LIBRARY.define(
    f"sweep({', '.join(_FIELDS)}, int wants, str backend, {_VALIDATE}) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    f"own_scores({', '.join(_FIELDS[:7])}, str[] rankings, SymInt seed, {_VALIDATE}) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    f"pooled_prefixes({', '.join(_arguments(PooledProblem))}, SymInt count, str backend) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
*_WEIGHED, _VALIDATE = _arguments(ReweighedProblem)
_LIBRARY.define(
    f"reweigh({', '.join(_WEIGHED)}, str backend, {_VALIDATE}) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
*_ITEMS, _VALIDATE = _arguments(PermutedProblem)
_LIBRARY.define(
    f"permute({', '.join(_ITEMS)}, str backend, {_VALIDATE}) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _read(args: Sequence[Any]) -> tuple[Problem, int, str]:
    """Read the arguments of `sweep`: the problem, what is wanted of it, and the backend."""
    *inputs, rankings, numbers, orders, keys, seed, keep, wants, backend, validate = args
    kinds = tuple([_KINDS[kind] for kind in rankings])
    inputs += kinds, tuple(numbers), tuple(orders), tuple(keys), seed, keep, validate
    return Problem(*inputs), wants, backend


def sweep_function(*args: Any) -> list[Tensor]:
    """Do what the operator `sweep` does, for callers that need no dispatcher (`direct.py`)."""
    problem, wants, backend = _read(args)
    chosen = choose(backend, problem.values.device.type, problem)
    _log("sweep", chosen.name, problem, "attention", "head_weight")
    results = _allocate(problem, wants)
    chosen.sweep(problem, as_outputs(results, wants))
    return results


def _sweep_fake(*args: Any) -> list[Tensor]:
    problem, wants, _ = _read(args)
    return _allocate(problem, wants)


def _allocate(problem: Problem, wants: int) -> list[Tensor]:
    C, R = problem.head_weight.shape[0], len(problem.rankings)
    return allocate(problem.values, problem.offsets, C, R, wants)


def _own_scores_fake(*args: Any) -> Tensor:
    values, names = args[0], args[7]
    scores: Tensor = values.new_empty((len(names), values.shape[0]), dtype=torch.float64)  # [R', T]
    return scores


def _pooled_prefixes(*args: Any) -> Tensor:
    *inputs, _, backend = args
    problem = PooledProblem(*inputs)
    chosen = choose(backend, problem.values.device.type)
    _log("pooled_prefixes", chosen.name, problem, "attention", "order")
    pooled = _pooled_prefixes_fake(*args)
    chosen.pooled_prefixes(problem, pooled)
    return pooled


def _pooled_prefixes_fake(*args: Any) -> Tensor:
    values, count = args[0], args[-2]
    real = torch.float64 if values.dtype == torch.float64 else torch.float32
    pooled: Tensor = values.new_empty((count, *values.shape[1:]), dtype=real)  # [count, H, D]
    return pooled


def _reweigh(*args: Any) -> Tensor:
    values, offsets, head_weight, head_bias, weights, backend, validate = args
    problem = ReweighedProblem(values, offsets, head_weight, head_bias, weights, validate)
    chosen = choose(backend, problem.values.device.type)
    worker = cast(ReweighingBackend, chosen if hasattr(chosen, "reweigh") else REFERENCE)
    _log("reweigh", worker.name, problem, "weights", "head_weight")
    logits = _reweigh_fake(*args)
    worker.reweigh(problem, logits)
    return logits


def _reweigh_fake(*args: Any) -> Tensor:
    values, offsets, head_weight, weights = args[0], args[1], args[2], args[4]
    real = torch.float64 if values.dtype == torch.float64 else torch.float32
    shape = (weights.shape[0], offsets.shape[0] - 1, head_weight.shape[0])
    logits: Tensor = values.new_empty(shape, dtype=real)  # [R, B, C]
    return logits


def _permute(*args: Any) -> list[Tensor]:
    *inputs, backend, validate = args
    inputs.append(validate)
    problem = PermutedProblem(*inputs)
    chosen = choose(backend, problem.values.device.type, operator="permute")
    _log("permute", chosen.name, problem, "attention", "head_weight")
    results = _permute_fake(*args)
    cast(PermutingBackend, chosen).permute(problem, PermutedOutputs(*results))
    return results


def _permute_fake(*args: Any) -> list[Tensor]:
    values, offsets, head_weight, permutations = args[0], args[1], args[4], args[7]
    out = PermutedOutputs.allocate(values, offsets, head_weight.shape[0], permutations)
    return list(vars(out).values())


def _log(
    op: str,
    backend: str,
    problem: Problem | PooledProblem | PermutedProblem | ReweighedProblem,
    *names: str,
) -> None:
    """Log a call with the shapes and dtypes of its largest tensors, where that is asked for."""
    if LOG.isEnabledFor(logging.DEBUG):
        tensors = {name: getattr(problem, name) for name in ("values", *names)}
        shown = ", ".join(f"{name} {t.dtype} {list(t.shape)}" for name, t in tensors.items())
        LOG.debug("%s on %s (%s): %s", op, backend, problem.values.device, shown)


_LIBRARY.impl("sweep", sweep_function, "CompositeExplicitAutograd")
_LIBRARY.impl("own_scores", own_scores, "CompositeExplicitAutograd")
_LIBRARY.impl("pooled_prefixes", _pooled_prefixes, "CompositeExplicitAutograd")
_LIBRARY.impl("reweigh", _reweigh, "CompositeExplicitAutograd")
_LIBRARY.impl("permute", _permute, "CompositeExplicitAutograd")
_library.register_fake("fastattnerase::sweep", _sweep_fake, lib=_LIBRARY)
_library.register_fake("fastattnerase::own_scores", _own_scores_fake, lib=_LIBRARY)
_library.register_fake("fastattnerase::pooled_prefixes", _pooled_prefixes_fake, lib=_LIBRARY)
_library.register_fake("fastattnerase::reweigh", _reweigh_fake, lib=_LIBRARY)
_library.register_fake("fastattnerase::permute", _permute_fake, lib=_LIBRARY)

sweep_op = torch.ops.fastattnerase.sweep.default
own_scores_op = torch.ops.fastattnerase.own_scores.default
pooled_prefixes_op = torch.ops.fastattnerase.pooled_prefixes.default
reweigh_op = torch.ops.fastattnerase.reweigh.default
permute_op = torch.ops.fastattnerase.permute.default
