"""Streams of batches made by hand, for the tests of the measurement."""

from __future__ import annotations

import torch
from torch import Tensor

import fastattnerase as fae


def random_batch(
    instances: int, *, seed: int = 0, width: int = 3, longest: int = 6, classes: int = 2
) -> fae.AttentionBatch:
    """Instances of 1 … `longest` items with random states, scores and head."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    lengths = torch.randint(1, longest + 1, (instances,), generator=generator)
    return fae.AttentionBatch.from_padded(
        normal(instances, longest, width),
        scores=normal(instances, longest),
        lengths=lengths,
        head_weight=3 * normal(classes, width),
        head_bias=normal(classes),
    )


def split(batch: fae.AttentionBatch, size: int) -> list[fae.AttentionBatch]:
    """The batch in parts of `size` instances."""
    return [batch[i : i + size] for i in range(0, len(batch), size)]


def planted(
    instances: int, ranks: int, *, seed: int = 0, informative: int = 1
) -> tuple[fae.AttentionBatch, Tensor]:
    """States of noise, but the one of rank `informative` decides the output; with logits [B, 2].

    Items lie at random positions. The state of that rank is one of five points, and the logit is
    that point's number.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(instances, ranks, 4, generator=generator)  # [B, N, D]
    scores = torch.arange(ranks, 0, -1).float().expand(instances, ranks) / 2
    code = torch.randint(0, 5, (instances,), generator=generator)  # [B]
    values[:, informative - 1] = 20 * torch.eye(5, 4)[code]
    places = torch.rand(instances, ranks, generator=generator).argsort(1)  # [B, N]
    batch = fae.AttentionBatch.from_padded(
        values.gather(1, places[:, :, None].expand_as(values)),
        scores=scores.gather(1, places),
        head_weight=torch.zeros(2, 4),
    )
    logits = torch.stack([torch.zeros(instances), code - 2.0], dim=1)  # [B, 2]
    return batch, logits
