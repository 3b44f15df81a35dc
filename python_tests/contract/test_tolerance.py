"""NEAR_TIE by the tolerance of the contract, not by a bound of it that is quicker to have.

A sum of margins lies a chosen number of tolerances from zero, once the heaviest item is erased.
Bounds of a norm from groups of features are loosest for items of a single feature, tightest for
items of equal ones. The CPU engine bounds norms of more than 64 items and 8 classes.
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
@pytest.mark.parametrize(("n", "width"), [(7, 6), (40, 101), (300, 8)])
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
    n = 300 if runner.caps == Caps() else 40
    batch, exact = near_by(runner, ratio, n, classes, 6)
    rest = fae.AttentionBatch(
        batch.values,
        batch.offsets,
        weights=batch.weights * (torch.arange(n, device=runner.device) != 0),
        head_weight=batch.head_weight,
        head_bias=batch.head_bias,
    )
    # The largest norm stays that of the item without weight.
    found = fae.erase_prefixes(rest, ("attention",), backend=runner.name)
    assert found.label.tolist() == [0]
    assert int(found.status[0]) & NEAR_TIE == (NEAR_TIE if exact < 1 else 0)
    assert np.isfinite(float(found.removed_mass[0, 0]))


@pytest.mark.parametrize("ratio", [0.85, 1.2])
@pytest.mark.parametrize("place", ["first", "last", "spread"])
@pytest.mark.parametrize("width", [6, 131])
def test_wherever_the_features_are(runner: Runner, ratio: float, place: str, width: int) -> None:
    """Groups of four, what is left of them, and beyond 128 features, each all of a norm or a part.

    Spread evenly, both norms' product is as before: the root of the width times a root less.
    """
    n = 300 if runner.caps == Caps() else 40
    base, exact = near_by(runner, ratio, n, 12, width)
    x, w = base.values[:, 0], base.head_weight[:, 0]  # [T], [C]
    values, head = torch.zeros_like(base.values), torch.zeros_like(base.head_weight)
    if place == "spread":
        values[:] = x[:, None]
        head[:] = w[:, None] / width
    else:
        at = 0 if place == "first" else width - 1
        values[3:, 1] = 0.5  # a norm of zero would be read again in any case
        values[:, at], head[:, at] = x, w
    batch = fae.AttentionBatch(
        values, base.offsets, weights=base.weights, head_weight=head, head_bias=base.head_bias
    )
    near = NEAR_TIE if exact < 1 else 0
    found = fae.sweep(batch, ("attention",), backend=runner.name)
    assert found.minimal is not None
    assert found.prefixes.first_flip.tolist() == [[2]]
    assert found.minimal.size.tolist() == [2]
    for status in (
        fae.erase_prefixes(batch, ("attention",), backend=runner.name).status,
        fae.erase_each(batch, backend=runner.name).status,
        fae.minimal_flip_set(batch, backend=runner.name).status,
    ):
        assert int(status[0]) & NEAR_TIE == near
