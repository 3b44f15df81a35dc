"""The sweep operator on a batch and the rows of its rankings; what all public functions check."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.callable_head import sweep_callable
from fastattnerase.ops.direct import nobody_listens
from fastattnerase.ops.library import own_scores_op, sweep_function, sweep_op
from fastattnerase.ops.own_rankings import own_scores
from fastattnerase.ops.plan import Plan
from fastattnerase.problem import Outputs, as_outputs
from fastattnerase.tensor_checks import are_plain

DEFAULT_MAX_BYTES = 256 * 2**20


def run(
    batch: AttentionBatch,
    plan: Plan,
    wants: int,
    seed: int,
    keep: bool,
    backend: str,
    validate: bool | None,
    max_bytes: int,
) -> Outputs:
    """Run the sweep operator on a batch."""
    check_seed(seed)
    if validate is None:
        validate = batch.device.type == "cpu"
    if batch.head is not None:
        return sweep_callable(batch, plan, wants, seed, keep, backend, validate, max_bytes)
    if plan.unplaced:
        _place_own(batch, plan, seed, validate)
    plain = nobody_listens() and batch.plain and are_plain(plan.orders) and are_plain(plan.keys)
    results: list[Tensor] = (sweep_function if plain else sweep_op)(
        *batch.packed,
        *batch.linear_head,
        batch.ids,
        plan.kinds,
        plan.args,
        plan.orders,
        plan.keys,
        seed,
        keep,
        wants,
        backend,
        validate,
    )
    return as_outputs(results, wants)


def _place_own(batch: AttentionBatch, plan: Plan, seed: int, validate: bool) -> None:
    """Give scores to the rows of a plan that no backend computes, for a linear head."""
    names = list(plan.unplaced.values())
    # A compiled or exported graph calls an operator, within which autograd does not work.
    compute = own_scores_op if torch.compiler.is_compiling() else own_scores
    scores = compute(*batch.packed, *batch.linear_head, batch.ids, names, seed, validate)
    for i, row in enumerate(plan.unplaced):
        plan.place(row, scores[i])
    plan.unplaced = {}  # a sweep in both directions goes through the plan twice


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed: given {seed}, needed 0 to 2^63 - 1")


def check_batch(batch: AttentionBatch) -> None:
    if not isinstance(batch, AttentionBatch):
        raise TypeError(f"batch: given {type(batch).__name__}, needed an AttentionBatch")
