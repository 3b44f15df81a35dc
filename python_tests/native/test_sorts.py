"""Sorts of every length by every variant: networks, and the radix sort beyond."""

from __future__ import annotations

import pytest
import torch
from contract import runners

import fastattnerase as fae

LENGTHS = torch.arange(1, 1100)
OFFSETS = torch.cat([torch.zeros(1, dtype=torch.int64), LENGTHS.cumsum(0)])
ITEMS = int(OFFSETS[-1])


@pytest.fixture(scope="module")
def batch() -> fae.AttentionBatch:
    return fae.AttentionBatch(
        torch.ones(ITEMS, 1),
        OFFSETS,
        scores=torch.zeros(ITEMS),
        head_weight=torch.ones(2, 1),
        head_bias=torch.zeros(2),
    )


@pytest.mark.parametrize("keys", ["spread", "equal", "close"])
def test_every_length_is_sorted_exactly(
    batch: fae.AttentionBatch, cpu_variant: str, keys: str
) -> None:
    """Against a stable argsort."""
    generator = torch.Generator().manual_seed(0)
    if keys == "equal":
        given = torch.randint(-5, 5, (ITEMS,), generator=generator).float()
    else:
        given = torch.randn(ITEMS, generator=generator)
        if keys == "close":  # closer than the leading bits that the networks compare
            given = 1 + 1e-6 * given
    name = runners.native(cpu_variant)
    order = fae.rank(batch, given, backend=name)
    for length, begin in zip(LENGTHS.tolist(), OFFSETS.tolist(), strict=False):
        part = given[begin : begin + length]
        assert torch.equal(
            order[begin : begin + length], part.argsort(descending=True, stable=True)
        ), length
