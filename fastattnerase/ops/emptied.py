"""Sweeps in which nothing gives other logits than the bias."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.plan import Plan
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, run
from fastattnerase.ops.terms import project
from fastattnerase.problem import BIT, Outputs, RankingKind
from fastattnerase.tensor_checks import check_devices, check_float, shape_of

Empty = Literal["bias"] | Tensor

# Rankings that depend on what nothing gives; the others are those of the batch as it was given.
_OF_EMPTY = (
    RankingKind.LEAVE_ONE_OUT,
    RankingKind.LEAVE_ONE_OUT_DROP,
    RankingKind.GREEDY,
    RankingKind.MINIMAL,
)


def gives_bias(batch: AttentionBatch, empty: Empty, renormalize: bool = True) -> bool:
    """Check `empty`, and say whether it is the bias, so that nothing is to be done."""
    if isinstance(empty, str):
        if empty != "bias":
            raise ValueError(f"empty: given {empty!r}, needed 'bias' or logits")
        return True
    check_float("empty", empty)
    why = ""
    if not renormalize:
        why = "renormalize=False, where the bias is what is left of nothing"
    elif batch.head is not None:
        why = "a callable head"
    elif batch.num_heads > 1:
        why = f"{batch.num_heads} attention heads"
    if why:
        raise ValueError(
            f"empty: given logits with {why}, needed 'bias', or a linear head and one attention "
            "head that renormalise"
        )
    B, C = len(batch), batch.num_classes
    if tuple(empty.shape) not in ((C,), (B, C)):
        raise ValueError(f"empty: given {shape_of(empty)}, needed 'bias', [{C}] or [{B}, {C}]")
    check_devices(batch.values, empty=empty)
    if not bool(empty.isfinite().all()):
        raise ValueError("empty: given logits that are not finite, needed finite ones")
    return False


def emptied(batch: AttentionBatch, empty: Tensor, backend: str) -> AttentionBatch:
    """Make a batch whose bias is `empty`, and whose items have the difference in what they give.

    Since `Σ a (s + b − e) / Σ a + e = Σ a s / Σ a + b`, the logits are the same wherever mass
    survives. Its values are contributions, and a column without part in the logits that keeps the
    tolerance of near-ties at least as wide as it was.
    """
    values, (weight, bias) = batch.packed[0], batch.linear_head
    B, C = len(batch), len(weight)
    own = bias.double().expand(B, C)  # [B, C]
    rest = empty.detach().double().expand(B, C)  # [B, C]
    instance = batch.instance_of_item  # [T]
    contributions = project(batch, backend, DEFAULT_MAX_BYTES)[:, 0]  # [T, C]
    shifted = contributions + (own - rest)[instance]
    norms = torch.linalg.vector_norm(values.flatten(1), dim=1, dtype=torch.float64)  # [T]
    steepest = weight.double().flatten(1).norm(dim=1).amax()
    wide = norms * steepest + own.abs().amax(1)[instance]  # [T]
    wide = wide.nan_to_num(0).clamp(max=1e30)
    real = torch.float64 if values.dtype == torch.float64 else torch.float32
    eye = torch.eye(C, C + 1, dtype=real, device=values.device)  # [C, C + 1]
    other = batch[:]
    other._values = torch.cat([shifted, wide[:, None]], 1).to(real)[:, None]  # [T, 1, C + 1]
    other._head_weight, other._head_bias = eye[:, None], rest.contiguous()
    other._plain = None
    return other


def run_emptied(
    empty: Tensor,
    batch: AttentionBatch,
    plan: Plan,
    wants: int,
    seed: int,
    keep: bool,
    backend: str,
    validate: bool | None,
    max_bytes: int,
) -> Outputs:
    """Do as `run` where nothing gives `empty`."""
    other = emptied(batch, empty, backend)
    rows = range(len(plan.kinds))
    there = {
        row: plan.unplaced.get(row) == "shapley" or plan.kinds[row] in _OF_EMPTY for row in rows
    }
    if not all(there.values()):
        # Those that do not depend on it keep their order; the others stand by position meanwhile.
        first = plan.copy()
        for row in rows:
            if there[row]:
                first.unplaced.pop(row, None)
                first.kinds[row] = int(RankingKind.ATTENTION)
        given = run(batch, first, BIT["order"], seed, False, backend, validate, max_bytes)
        assert given.order is not None  # asked for
        plan = plan.copy()
        for row in rows:
            if not there[row]:
                plan.unplaced.pop(row, None)
                plan.place_order(row, given.order[row])
    return run(other, plan, wants, seed, keep, backend, validate, max_bytes)
