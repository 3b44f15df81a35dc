"""Softmax and pooling over packed sequences against hand-worked numbers and brute force."""

from __future__ import annotations

import math

import pytest
import torch

from fastattnerase.models.packed import (
    gather,
    masked_softmax,
    offsets_of,
    segment_log_softmax,
    segment_pool,
    segment_softmax,
)

LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    ("scores", "mask", "weights"),
    [
        ([1.0, 1.0, 100.0], [1, 1, 0], [0.5, 0.5, 0.0]),
        ([LOWEST, LOWEST, LOWEST], [1, 1, 0], [0.5, 0.5, 0.0]),
        ([LOWEST, 5.0, 0.0], [1, 0, 0], [1.0, 0.0, 0.0]),
        ([-300.0, -301.0, 0.0], [1, 1, 0], [0.7310585786, 0.2689414214, 0.0]),
        ([800.0, 0.0, 800.0], [1, 1, 1], [0.5, 0.0, 0.5]),
        ([-torch.inf, 3.0, 0.0], [1, 1, 0], [0.0, 1.0, 0.0]),
        ([1.0, 2.0, 3.0], [0, 0, 0], [0.0, 0.0, 0.0]),
        ([torch.nan, 2.0, 2.0], [0, 1, 1], [0.0, 0.5, 0.5]),
        ([-torch.inf, -torch.inf, 1.0], [1, 1, 0], [0.0, 0.0, 0.0]),
    ],
)
def test_masked_softmax(scores: list[float], mask: list[int], weights: list[float]) -> None:
    got = masked_softmax(torch.tensor(scores), torch.tensor(mask, dtype=torch.bool))
    torch.testing.assert_close(got, torch.tensor(weights))


def test_masked_softmax_of_a_batch_treats_rows_apart() -> None:
    scores = torch.tensor([[0.0, 1.0], [2.0, torch.inf]])
    mask = torch.tensor([[True, True], [False, False]])
    got = masked_softmax(scores, mask)
    torch.testing.assert_close(got, torch.tensor([[0.2689414214, 0.7310585786], [0.0, 0.0]]))


LENGTHS = [3, 0, 1, 5, 0]


def test_segments_against_brute_force() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(LENGTHS)
    scores = torch.randn(9, generator=generator, dtype=torch.float64) * 5
    values = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    weights = segment_softmax(scores, lengths)
    pooled = segment_pool(values, weights, lengths)
    assert pooled.shape == (5, 4)
    start = 0
    for row, length in zip(pooled, LENGTHS, strict=True):
        part = slice(start, start + length)
        wanted = torch.softmax(scores[part], 0)
        torch.testing.assert_close(weights[part], wanted)
        torch.testing.assert_close(row, wanted @ values[part])
        start += length
    assert offsets_of(lengths).tolist() == [0, 3, 3, 4, 9, 9]


def test_gradients_of_segments() -> None:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor(LENGTHS)
    scores = torch.randn(9, generator=generator, dtype=torch.float64, requires_grad=True)
    values = torch.randn(9, 2, generator=generator, dtype=torch.float64, requires_grad=True)

    def pooled(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return segment_pool(values, segment_softmax(scores, lengths), lengths)

    assert torch.autograd.gradcheck(pooled, (scores, values))


def test_nothing_but_empty_sequences() -> None:
    lengths = torch.tensor([0, 0])
    assert segment_softmax(torch.zeros(0), lengths).shape == (0,)
    assert segment_pool(torch.zeros(0, 3), torch.zeros(0), lengths).tolist() == [[0, 0, 0]] * 2


def test_gather() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    rows = gather(values, torch.tensor([[1, 1], [0, 1]]))
    assert rows.tolist() == [[[3, 4], [3, 4]], [[1, 2], [3, 4]]]
    rows.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[1, 1], [3, 3]]


def test_log_softmax_where_weights_underflow() -> None:
    scores = torch.tensor([0.0, -500.0, 3.0, 3.0])
    logs = segment_log_softmax(scores, torch.tensor([2, 0, 2]))
    half = -math.log(2)
    torch.testing.assert_close(logs, torch.tensor([0.0, -500.0, half, half]))
    assert len(segment_log_softmax(torch.zeros(0), torch.tensor([0]))) == 0
