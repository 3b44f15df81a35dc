"""Flipping sets of several attention heads, with a bound: the operator that finds them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.exact_problems import UNANSWERED
from fastattnerase.ops.groups import Groups
from fastattnerase.ops.plan import plan_rankings
from fastattnerase.ops.results import MinimalFlipSet
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, run
from fastattnerase.ops.terms import longest_values, project
from fastattnerase.problem import BIT
from fastattnerase.reference.heads import Heads, smallest_flip
from fastattnerase.reference.instance import NEAR_TIE_TOLERANCE
from fastattnerase.status import Status


def flip_sets(
    batch: AttentionBatch, groups: Groups | None, backend: str, validate: bool | None
) -> MinimalFlipSet:
    """Search the smallest flipping sets of a batch with several attention heads."""
    plan = plan_rankings(batch, (), 1)
    found = run(batch, plan, BIT["weights"], 0, False, backend, validate, DEFAULT_MAX_BYTES)
    assert found.weights is not None  # asked for
    bias = batch.linear_head[1].double().expand(len(batch), batch.num_classes)  # [B, C]
    steepest = batch.linear_head[0].double().flatten(1).norm(dim=1).amax()
    scale = longest_values(batch) * steepest + bias.abs().amax(1)  # [B]
    size, flip_label, order, lower_bound, near = flip_sets_op(
        batch.offsets,
        found.status,
        found.weights,
        project(batch, backend, DEFAULT_MAX_BYTES),
        bias,
        found.label,
        (NEAR_TIE_TOLERANCE * scale).nan_to_num(0, 0),
    )
    status = found.status | near * int(Status.NEAR_TIE)
    return MinimalFlipSet(
        size, flip_label, order, found.label, status, batch.offsets, lower_bound, groups
    )


def _flip_sets(*args: Tensor) -> list[Tensor]:
    device = args[0].device
    offsets, status, weights, contributions, bias, label, slack = (given.cpu() for given in args)
    results = _flip_sets_fake(offsets, status, weights)
    size, flip_label, order, lower_bound, near = results
    for b, (begin, end) in enumerate(pairwise(offsets.tolist())):
        items = slice(begin, end)
        order[items] = torch.arange(end - begin)
        size[b] = flip_label[b] = lower_bound[b] = -1
        near[b] = 0
        if int(status[b]) & UNANSWERED:
            continue
        one = Heads(weights[items], contributions[items], bias[b], int(label[b]), float(slack[b]))
        found = smallest_flip(one)
        if found.chosen:
            size[b], flip_label[b] = len(found.chosen), found.flip_label
            rest = torch.ones(end - begin, dtype=torch.bool)
            rest[found.chosen] = False
            order[items] = torch.cat([torch.tensor(found.chosen), rest.nonzero()[:, 0]])
        lower_bound[b], near[b] = found.lower_bound, int(found.near_tie)
    return [result.to(device) for result in results]


def _flip_sets_fake(*args: Tensor) -> list[Tensor]:
    B, T = args[0].shape[0] - 1, args[2].shape[0]
    return [args[0].new_empty(size) for size in (B, B, T, B, B)]


# torch.library comes without annotations.
_library: Any = torch.library
_LIBRARY = _library.Library("fastattnerase", "FRAGMENT")
_LIBRARY.define(
    "flip_sets(Tensor offsets, Tensor status, Tensor weights, Tensor contributions, Tensor bias, "
    "Tensor label, Tensor tolerance) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("flip_sets", _flip_sets, "CompositeExplicitAutograd")
_library.register_fake("fastattnerase::flip_sets", _flip_sets_fake, lib=_LIBRARY)
flip_sets_op = torch.ops.fastattnerase.flip_sets.default
