"""Sweeps that erase without renormalising (value zeroing), on what every backend projects."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.exact_problems import GreedyOutputs
from fastattnerase.ops.plan import Plan, plan_rankings
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, run
from fastattnerase.ops.terms import longest_values, project
from fastattnerase.problem import BIT, Outputs, RankingKind, allocate, as_outputs
from fastattnerase.reference.zeroed import ADDITIVE, Terms, zeroed_greedy, zeroed_sweep
from fastattnerase.status import Status

# Numbers of a class that instances take in padded form at a time.
_BUDGET = 2**21


def run_zeroed(
    batch: AttentionBatch,
    plan: Plan,
    wants: int,
    seed: int,
    keep: bool,
    backend: str,
    validate: bool | None,
    max_bytes: int,
) -> Outputs:
    """Do as `run`, but leave the survivors' weights as they are given."""
    _refuse_functions(batch)
    others, additive = plan.copy(), [kind in ADDITIVE for kind in plan.kinds]
    for row, own in enumerate(additive):
        if own:
            others.kinds[row] = int(RankingKind.ATTENTION)
    rows = BIT["order"] | BIT["weights"]
    found = run(batch, others, rows, seed, False, backend, validate, max_bytes)
    results = zeroed_op(
        *_terms(batch, found, backend, max_bytes),
        [kind if own else -1 for kind, own in zip(plan.kinds, additive, strict=True)],
        keep,
        wants,
    )
    out = as_outputs(results, wants)
    if out.weights is not None and found.weights is not None:
        out.weights.copy_(found.weights)
    real = torch.float64 if batch.values.dtype == torch.float64 else torch.float32
    for name, tensor in vars(out).items():
        if tensor is not None and tensor.dtype == torch.float64 and name not in _DOUBLES:
            setattr(out, name, tensor.to(real))
    return out


_DOUBLES = ("removed_mass", "curve_mass", "weights")


def greedy_zeroed(
    batch: AttentionBatch, steps: int, until_flip: bool, backend: str, validate: bool | None
) -> tuple[GreedyOutputs, Tensor, Tensor]:
    """Find greedy orders that leave the survivors' weights as they are, labels and statuses [B]."""
    _refuse_functions(batch)
    plan = plan_rankings(batch, ("attention",), 1)
    rows = BIT["order"] | BIT["weights"]
    found = run(batch, plan, rows, 0, False, backend, validate, DEFAULT_MAX_BYTES)
    given = _terms(batch, found, backend, DEFAULT_MAX_BYTES)
    *greedy, label, status = zeroed_greedy_op(*given, steps, until_flip)
    return GreedyOutputs(*greedy), label, status


def _refuse_functions(batch: AttentionBatch) -> None:
    if batch.head is not None:
        raise ValueError(
            "renormalize: given False with a callable head, needed a linear one: what an item adds "
            "to other logits depends on the rest"
        )


def _terms(batch: AttentionBatch, found: Outputs, backend: str, max_bytes: int) -> list[Tensor]:
    """Compute what each item adds to the logits: the fields of `Terms`."""
    assert found.order is not None  # asked for
    assert found.weights is not None
    contributions = project(batch, backend, max_bytes)  # [T, H, C]
    weights = found.weights if batch.is_scores else batch.packed[2].double()  # [T, H]
    steepest = batch.linear_head[0].double().flatten(1).norm(dim=1).amax()
    return [
        batch.offsets,
        found.status & ~int(Status.NEAR_TIE),
        (weights[:, :, None] * contributions).sum(1),
        contributions.sum(1),
        weights.sum(1),
        found.weights.nan_to_num(0).mean(1),
        batch.linear_head[1].double().expand(len(batch), batch.num_classes),
        longest_values(batch).nan_to_num(0, 0) * steepest,
        found.order,
    ]


def _zeroed(*args: Any) -> list[Tensor]:
    *given, kinds, keep, wants = args
    results = _zeroed_fake(*args)
    zeroed_sweep(Terms(*given), list(kinds), keep, as_outputs(results, wants), _BUDGET)
    return results


def _zeroed_fake(*args: Any) -> list[Tensor]:
    offsets, terms, kinds, wants = args[0], args[2], args[9], args[11]
    return allocate(terms[:, None], offsets, terms.shape[1], len(kinds), wants)


def _zeroed_greedy(*args: Any) -> list[Tensor]:
    *given, steps, until_flip = args
    out = GreedyOutputs.allocate(given[0], given[2][:, 0])
    both = zeroed_greedy(Terms(*given), steps, until_flip, out, _BUDGET)
    return [*vars(out).values(), *both]


def _zeroed_greedy_fake(*args: Any) -> list[Tensor]:
    out = GreedyOutputs.allocate(args[0], args[2][:, 0])
    return [*vars(out).values(), torch.empty_like(args[1]), torch.empty_like(args[1])]


# torch.library comes without annotations.
_library: Any = torch.library
_LIBRARY = _library.Library("fastattnerase", "FRAGMENT")
_TERMS = ", ".join(f"Tensor {field.name}" for field in fields(Terms))
for _name, _rest, _real, _fake in (
    ("zeroed_sweep", "int[] kinds, bool keep, int wants", _zeroed, _zeroed_fake),
    ("zeroed_greedy", "SymInt steps, bool until_flip", _zeroed_greedy, _zeroed_greedy_fake),
):
    _LIBRARY.define(f"{_name}({_TERMS}, {_rest}) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(_name, _real, "CompositeExplicitAutograd")
    _library.register_fake(f"fastattnerase::{_name}", _fake, lib=_LIBRARY)
zeroed_op = torch.ops.fastattnerase.zeroed_sweep.default
zeroed_greedy_op = torch.ops.fastattnerase.zeroed_greedy.default
