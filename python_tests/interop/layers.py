"""Attention layers of every form that the modules of `interop` take."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import fastattnerase as fae

N = 6
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0]])


class Head(nn.Module):
    """A head that is no linear layer, and reads which instance it is given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.layer = nn.Linear(4, 3)

    def forward(self, pooled: Tensor, instance: Tensor) -> Tensor:
        found: Tensor = self.layer(pooled.tanh()) + instance[:, None]
        return found


def batch_of(kind: str) -> fae.AttentionBatch:
    """Three padded instances of 6, 3 and 1 items, with holes."""
    draw = torch.Generator().manual_seed(3)

    def randn(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw)

    if kind == "heads":
        return fae.AttentionBatch.from_padded(
            randn(3, N, 2, 4), weights=randn(3, N, 2).exp(), mask=MASK,
            head_weight=randn(3, 2, 4), head_bias=randn(3),
        )  # fmt: skip
    if kind == "callable":
        return fae.AttentionBatch.from_padded(
            randn(3, N, 4), scores=randn(3, N), mask=MASK, head=Head()
        )
    bias = randn(3, 3) if kind == "bias" else randn(3)
    return fae.AttentionBatch.from_padded(
        randn(3, N, 4), scores=randn(3, N), mask=MASK, head_weight=randn(3, 4), head_bias=bias
    )


KINDS = ("linear", "bias", "heads", "callable")
