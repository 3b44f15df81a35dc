"""Attention mechanisms: a score for every item.

A mechanism is a module `(input_size, config) -> attention` with `forward(values [T, D]) -> [T]`,
the scores before the softmax, registered by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fastattnerase.models.config import ModelConfig
from fastattnerase.models.registry import Registry


class Attention(nn.Module, ABC):
    """The base of attention mechanisms."""

    @abstractmethod
    def forward(self, values: Tensor) -> Tensor:
        """Score items: `[T, D]` float32 → `[T]` float32."""


ATTENTIONS: Registry[Callable[[int, ModelConfig], Attention]] = Registry("attention")


@ATTENTIONS.register("additive")
class AdditiveAttention(Attention):
    """Additive attention, `e_i = c · tanh(A h_i + a)`, without a bias of its own.

    Source: Yang et al. 2016, section 2.2; Serrano & Smith 2019, section 2.
    """

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        size = config.attention_size or input_size
        self.project = nn.Linear(input_size, size)
        self.context = nn.Linear(size, 1, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        """Score items: `[T, D]` float32 → `[T]` float32."""
        hidden = torch.tanh(self.project(values))  # [T, A]
        return torch.squeeze(self.context(hidden), -1)  # [T]


class QueryAttention(nn.Module, ABC):
    """The base of attention with a query: every item is scored with its sequence's query."""

    @abstractmethod
    def forward(self, values: Tensor, query: Tensor, instance: Tensor) -> Tensor:
        """Score items.

        Args:
            values: `[T, D]`, float32.
            query: `[B, D]`, float32.
            instance: `[T]`, int64, the sequence of each item.

        Returns:
            `[T]`, float32.
        """


QUERY_ATTENTIONS: Registry[Callable[[int, ModelConfig], QueryAttention]] = Registry(
    "attention with a query"
)
