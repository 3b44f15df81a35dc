"""Exact ties in long instances: sums of integers over a power of two, known without rounding.

With `n = 2^m` equal weights every prefix sum is an integer over `n`, so that zero is zero in
float64 whatever the order of additions, and the tolerance of near-ties (3e-6 of about 3) is far
below one step. Random walks of margins meet zero often.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract.cases import Caps
from contract.harness import Runner

NEAR_TIE = int(fae.Status.NEAR_TIE)


def lengths(runner: Runner) -> tuple[int, ...]:
    """Beyond what one block, one checkpoint and the sorting networks hold, where that is quick."""
    return (64, 512, 4096) if runner.caps == Caps() else (16, 64)


def walk(logits: np.ndarray, order: np.ndarray) -> tuple[int, int, int, bool]:
    """Label, first flip and flip label by the rule of decisions; a tie at a prefix until then."""
    sums = logits[order[::-1]].cumsum(0)[::-1]  # [n, C]: of the survivors of k erasures
    decisions = np.append(sums.argmax(1), 0)  # the bias is zero: class 0 where nothing survives
    label = decisions[0]
    flips = np.flatnonzero(decisions != label)
    first = int(flips[0]) if len(flips) else -1
    rest = sums[:, [label]] - np.delete(sums, label, axis=1)  # [n, C - 1]
    ties = np.flatnonzero((rest == 0).any(1))
    tied = len(ties) > 0 and (first < 0 or ties[0] <= first)
    return int(label), first, int(decisions[first]) if first >= 0 else -1, tied


def smallest(logits: np.ndarray, label: int) -> int:
    """The size of the smallest flipping set; erasing everything decides for class 0."""
    sizes = [len(logits)] if label != 0 else []
    for other in range(logits.shape[1]):
        if other == label:
            continue
        margins = np.sort(logits[:, label] - logits[:, other])  # the largest are erased
        rest = margins.cumsum()[::-1]  # [n]: rest[k] after k erasures
        beaten = np.flatnonzero((rest[1:] < 0) | ((rest[1:] == 0) & (other < label)))
        if len(beaten):
            sizes.append(int(beaten[0]) + 1)
    return min(sizes) if sizes else -1


@pytest.mark.parametrize("classes", [2, 5, 12])
def test_sums_that_are_exactly_zero(runner: Runner, classes: int) -> None:
    rng = np.random.default_rng(classes)
    sizes = [n for n in lengths(runner) for _ in range(6)]
    logits = [rng.integers(-1, 2, (n, classes)) for n in sizes]
    orders = [[rng.permutation(n) for n in sizes] for _ in range(4)]
    offsets = torch.tensor([0, *np.cumsum(sizes)])
    batch = fae.AttentionBatch(
        torch.from_numpy(np.concatenate(logits)).float(),  # [T, C]
        offsets,
        scores=torch.zeros(sum(sizes)),
        head_weight=torch.eye(classes),
        head_bias=torch.zeros(classes),
    ).to(runner.device)
    rankings = [torch.from_numpy(np.concatenate(o)).to(runner.device) for o in orders]
    result = fae.sweep(batch, rankings, single=False, backend=runner.name)
    found = result.prefixes
    assert result.minimal is not None
    seen = 0
    for b, instance in enumerate(logits):
        tied = False
        for r, order in enumerate(orders):
            label, first, flip_label, near = walk(instance, order[b])
            tied = tied or near
            assert int(found.label[b]) == label
            assert int(found.first_flip[r, b]) == first, (r, b)
            assert int(found.flip_label[r, b]) == flip_label, (r, b)
        assert int(result.minimal.size[b]) == smallest(instance, int(found.label[b])), b
        if tied:
            seen += 1
            assert int(found.status[b]) & NEAR_TIE, b
    assert seen >= 3  # the walks met zero


@pytest.mark.parametrize("n", [3, 7, 40])
def test_nothing_to_compare(runner: Runner, n: int) -> None:
    """Values and biases of zero: every sum is zero, the tolerance too; class 0 always wins."""
    batch = fae.AttentionBatch(
        torch.zeros(n, 4),
        torch.tensor([0, n]),
        scores=torch.zeros(n),
        head_weight=torch.ones(3, 4),
        head_bias=torch.zeros(3),
    ).to(runner.device)
    result = fae.sweep(batch, ("random", "attention", "gradient"), backend=runner.name)
    assert result.minimal is not None
    assert result.single is not None
    assert result.prefixes.label.tolist() == [0]
    assert result.prefixes.first_flip.tolist() == [[-1], [-1], [-1]]
    assert result.minimal.size.tolist() == [-1]
    assert result.minimal.flip_label.tolist() == [-1]
    assert not result.single.flip.any()
