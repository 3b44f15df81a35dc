"""What is left of a layer once the head is applied: the contribution of each item to each logit."""

from __future__ import annotations

import torch

from fastattnerase.batch import AttentionBatch

_ROWS = 8192  # items at a time, so that float64 copies stay small


def contributions(batch: AttentionBatch) -> AttentionBatch:
    """Give a batch with contributions for values and the identity for a head.

    `z = W Σ_i a_i h_i + b = Σ_i a_i (W h_i) + b`, so that logits, and all that follows from them,
    are the same up to rounding. Contributions are added up in float64 and rounded to float32.

    Args:
        batch: with a linear head, values [T, D] or [T, H, D].

    Returns:
        A batch with values float32 [T, C] or [T, H, C] and the same attention, bias and ids.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[2.0, 1.0]]), torch.tensor([0, 1]), scores=torch.zeros(1),
        ...     head_weight=torch.tensor([[1.0, 0.0], [1.0, 3.0]]))
        >>> contributions(batch).values.tolist()
        [[2.0, 5.0]]
    """
    values = batch.packed[0]  # [T, H, D]
    weight, bias = batch.linear_head  # [C, H, D], [C] or [B, C]
    T, H, _ = values.shape
    C = len(weight)
    found = torch.empty(T, H, C, device=batch.device)
    wide = weight.double()
    for begin in range(0, T, _ROWS):
        rows = values[begin : begin + _ROWS].double()  # [R, H, D]
        for c in range(C):
            # A sum of each row by itself: a product of matrices would add up in another order in a
            # batch of another size.
            found[begin : begin + _ROWS, :, c] = (rows * wide[c]).sum(-1)
    identity = torch.eye(C, device=batch.device)[:, None, :].expand(C, H, C).contiguous()
    several = batch.values.ndim == 3
    return AttentionBatch(
        found if several else found[:, 0],
        batch.offsets,
        scores=batch.scores,
        weights=batch.weights,
        head_weight=identity if several else identity[:, 0],
        head_bias=bias,
        ids=batch.ids,
    )
