"""What the items of a batch contribute, in float64: where answers that need no search begin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.plan import plan_rankings
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, check_batch, run
from fastattnerase.problem import BIT
from fastattnerase.reference.instance import NEAR_TIE_TOLERANCE


@dataclass
class Terms:
    """Weights and contributions of all items, and the decisions on them.

    Axes: `B` instances, `T` items, `C` classes.
    """

    batch: AttentionBatch
    weights: Tensor  # [T], normalised, 0 where not finite
    contributions: Tensor  # [T, C], without the bias; 0 of an instance that has no answer
    bias: Tensor  # [B, C], 0 of an instance that has no answer
    label: Tensor  # [B], int64, -1 where something is not finite
    status: Tensor  # [B], int64

    def rivals(self) -> Tensor:
        """List the classes other than the label, ascending: [B, C - 1]; with C = 1 none."""
        C = self.contributions.shape[1]
        columns = torch.arange(C - 1, device=self.label.device)  # [C - 1]
        return columns + (columns >= self.label.clamp(min=0)[:, None])  # [B, C - 1]

    def margins(self) -> tuple[Tensor, Tensor]:
        """Compute what each item gives alone, and what is there without mass: [T, K] and [B, K].

        The margins of the label over its rivals, or the output where there is one.
        """
        instance = self.batch.instance_of_item  # [T]
        alone = self.contributions + self.bias[instance]  # [T, C]
        if alone.shape[1] == 1:
            return alone, self.bias
        label, rivals = self.label.clamp(min=0)[:, None], self.rivals()  # [B, 1], [B, K]
        own = alone.gather(1, label[instance]) - alone.gather(1, rivals[instance])  # [T, K]
        return own, self.bias.gather(1, label) - self.bias.gather(1, rivals)

    def tolerance(self) -> Tensor:
        """Compute what near-ties are judged by, per unit of mass: [B]."""
        weight = self.batch.linear_head[0].double().flatten(1)  # [C, D]
        scale = longest_values(self.batch) * weight.norm(dim=1).amax() + self.bias.abs().amax(1)
        tolerance: Tensor = (NEAR_TIE_TOLERANCE * scale).nan_to_num(0.0)
        return tolerance


def terms_of(batch: AttentionBatch, what: str, backend: str, validate: bool | None) -> Terms:
    """Project a batch, once, with the backend of the sweep."""
    check_batch(batch)
    if batch.head is not None or batch.num_heads > 1:
        given = (
            "a callable head" if batch.head is not None else f"{batch.num_heads} attention heads"
        )
        raise ValueError(
            f"batch: given {given}, needed a linear head and one attention head for {what}"
        )
    plan = plan_rankings(batch, (), 1)
    found = run(batch, plan, BIT["weights"], 0, False, backend, validate, DEFAULT_MAX_BYTES)
    assert found.weights is not None  # asked for
    weight, bias = batch.linear_head  # [C, 1, D], [C] or [B, C]
    contributions = project(batch, backend, DEFAULT_MAX_BYTES)[:, 0]  # [T, C]
    usable = (found.label >= 0)[:, None]  # [B, 1]
    wide = bias.double().expand(len(batch), len(weight))  # [B, C]
    return Terms(
        batch,
        found.weights[:, 0].nan_to_num(0.0),
        contributions.where(usable[batch.instance_of_item], 0.0),
        wide.where(usable, 0.0),
        found.label,
        found.status,
    )


def project(batch: AttentionBatch, backend: str, max_bytes: int) -> Tensor:
    """Project every item with each head on its own: contributions [T, H, C], float64.

    Each item is swept as an instance of its own, whose logits are its contribution.
    """
    T, H, device = batch.num_items, batch.num_heads, batch.device
    weight = batch.linear_head[0]  # [C, H, D]
    rows = torch.arange(T + 1, device=device)
    plan = plan_rankings(batch, (), 1)
    found = []
    for h in range(H):
        one = torch.zeros(T, H, device=device)
        one[:, h] = 1
        alone = batch[:].with_weights(one)
        alone.offsets, alone.ids, alone._rows = rows, rows[:-1], rows[:-1]
        alone._head_bias = torch.zeros(len(weight), dtype=torch.float64, device=device)
        out = run(alone, plan, BIT["logits"], 0, False, backend, False, max_bytes)
        assert out.logits is not None  # asked for
        found.append(out.logits.double())
    return torch.stack(found, 1)


def longest_values(batch: AttentionBatch) -> Tensor:
    """Compute the largest length of an instance's values: [B], float64."""
    norms = torch.linalg.vector_norm(batch.packed[0].flatten(1), dim=1, dtype=torch.float64)  # [T]
    longest: Tensor = norms.new_zeros(len(batch)).scatter_reduce(
        0, batch.instance_of_item, norms, "amax"
    )
    return longest
