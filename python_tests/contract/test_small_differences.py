"""Rankings and sums of what differs by little: even attention over many items, tiny weights."""

from __future__ import annotations

import pytest
import torch

import fastattnerase as fae
from contract.harness import Runner

SUBNORMAL = 2.0**-149  # the least number of float32


@pytest.mark.parametrize(("n", "classes", "scale"), [(300, 2, 1.0), (200, 4, 0.1)])
def test_items_that_change_little_are_ranked(
    runner: Runner, n: int, classes: int, scale: float
) -> None:
    """Orders by what erasing an item alone does: keys fall, but for 1e-5 of the largest."""
    B, D = 3, 8
    draw = torch.Generator().manual_seed(n)
    batch = fae.AttentionBatch(
        torch.randn(B * n, D, generator=draw),
        torch.arange(B + 1) * n,
        scores=torch.randn(B * n, generator=draw),
        head_weight=scale / 8 * torch.randn(classes, D, generator=draw),
        head_bias=torch.zeros(classes),
    )
    rankings = ("leave_one_out", "leave_one_out_drop")
    found = fae.erase_prefixes(
        batch.to(runner.device), rankings, orders=True, backend=runner.name
    ).to("cpu")
    assert found.order is not None
    assert batch.scores is not None
    values = batch.values.double().flatten(1)  # [T, D]
    weights = batch.scores.double().exp().flatten()  # [T]
    head = batch.linear_head[0].double().flatten(1)  # [C, D]
    for b in range(B):
        own = slice(b * n, (b + 1) * n)
        a, v = weights[own], values[own]  # [n], [n, D]
        whole = a @ v / a.sum()  # [D]
        without = (a @ v - a[:, None] * v) / (a.sum() - a)[:, None]  # [n, D]
        p, q = ((x @ head.T).softmax(-1) for x in (whole, without))  # [C], [n, C]
        mean = (p + q) / 2
        js = ((p * (p / mean).log()).sum(-1) + (q * (q / mean).log()).sum(-1)) / 2  # [n]
        drop = p.max() - q[:, p.argmax()]  # [n]
        for order, keys in zip(found.order[:, own], (js, drop), strict=True):
            ranked = keys[order]
            worst = float((ranked - ranked.cummin(0).values).max())
            assert worst <= 1e-5 * float(keys.abs().max())


def test_weights_below_the_normal_numbers_of_float32(runner: Runner) -> None:
    """Two of 72.4 least numbers for a class outweigh one of 144.6 against it, not in float32."""
    weights = torch.ones(4, dtype=torch.float64)
    weights[1:] = SUBNORMAL * torch.tensor([72.4, 72.4, 144.6], dtype=torch.float64)
    batch = fae.AttentionBatch(
        torch.tensor([[1e7], [1e7], [1e7], [-1e7]]),
        torch.tensor([0, 4]),
        weights=weights,
        head_weight=torch.tensor([[-1e6], [1e6]]),
        head_bias=torch.zeros(2),
    )
    found = fae.erase_prefixes(
        batch.to(runner.device), [torch.tensor([0, 1, 2, 3])], backend=runner.name
    )
    # The first item gone, 144.8 are for the class; one of these gone, 144.6 are against it.
    assert (found.label.tolist(), found.first_flip.tolist()) == ([1], [[2]])
