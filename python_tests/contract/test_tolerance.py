"""NEAR_TIE by the tolerance of the contract, not by a bound of it that is quicker to have.

A sum of margins lies a chosen number of tolerances from zero, once the heaviest item is erased.
Each item has a single feature, where bounds of its norm from groups of features are loosest.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract.cases import Caps
from contract.harness import MAY, MUST, Runner

NEAR_TIE = int(fae.Status.NEAR_TIE)


def near_by(
    runner: Runner, ratio: float, n: int, classes: int, width: int
) -> tuple[fae.AttentionBatch, float]:
    """An instance whose nearest sum is `ratio` tolerances from zero, and that ratio as rounded.

    Weights 0.3, 0.2, 0.2 and a little; margins against class c are c times the first feature 4,
    2, -2 + step and 0. Without the first item they sum to 0.2 step, of a mass of 0.7.
    """
    scale = 4.0 * max(1, classes - 2)  # the largest norm of an item times that of a head's row
    step = ratio * 3e-6 * scale * 0.7 / 0.2
    values = torch.zeros(n, width)
    values[:3, 0] = torch.tensor([4.0, 2.0, -2.0 + step])
    weights = torch.full((n,), 0.3 / (n - 3))
    weights[:3] = torch.tensor([0.3, 0.2, 0.2])
    head = torch.zeros(classes, width)
    head[:, 0] = 1.0 - torch.arange(classes)
    batch = fae.AttentionBatch(
        values,
        torch.tensor([0, n]),
        weights=weights,
        head_weight=head,
        head_bias=torch.zeros(classes),
    ).to(runner.device)
    step = float(values[2, 0]) + 2.0
    return batch, 0.2 * step / (0.7 * 3e-6 * scale)


@pytest.mark.parametrize("ratio", [0.3, 0.85, 1.2, 1.9, 3.9])
@pytest.mark.parametrize("classes", [3, 9, 12])
@pytest.mark.parametrize(("n", "width"), [(7, 6), (40, 6), (40, 101), (300, 8)])
def test_near_by_the_norms_themselves(
    runner: Runner, ratio: float, classes: int, n: int, width: int
) -> None:
    if runner.caps != Caps():  # an interpreter
        n = min(n, 40)
    batch, exact = near_by(runner, ratio, n, classes, width)
    assert not MUST[True] <= exact <= MAY[True]  # no backend may choose
    near = NEAR_TIE if exact < 1 else 0
    prefixes = fae.erase_prefixes(batch, ("attention",), backend=runner.name)
    assert prefixes.first_flip.tolist() == [[2]]
    assert prefixes.flip_label.tolist() == [[classes - 1]]
    assert int(prefixes.status[0]) & NEAR_TIE == near
    single = fae.erase_each(batch, backend=runner.name)
    assert not single.flip.any()
    assert int(single.status[0]) & NEAR_TIE == near
    minimal = fae.minimal_flip_set(batch, backend=runner.name)
    assert minimal.size.tolist() == [2]
    assert int(minimal.status[0]) & NEAR_TIE == near


@pytest.mark.parametrize("ratio", [0.85, 1.9])
@pytest.mark.parametrize("classes", [3, 12])
def test_near_before_anything_is_erased(runner: Runner, ratio: float, classes: int) -> None:
    batch, exact = near_by(runner, ratio, 40, classes, 6)
    rest = fae.AttentionBatch(
        batch.values,
        batch.offsets,
        weights=batch.weights * (torch.arange(40, device=runner.device) != 0),
        head_weight=batch.head_weight,
        head_bias=batch.head_bias,
    )
    # The largest norm stays that of the item without weight.
    found = fae.erase_prefixes(rest, ("attention",), backend=runner.name)
    assert found.label.tolist() == [0]
    assert int(found.status[0]) & NEAR_TIE == (NEAR_TIE if exact < 1 else 0)
    assert np.isfinite(float(found.removed_mass[0, 0]))
