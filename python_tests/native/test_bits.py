"""Targets with a fused multiply-add give the same bits, but for exponentials and logarithms.

AVX-512 takes these from tables and the others from polynomials, so that probabilities, divergences
and weights made of scores may differ in the last places, and with them the rankings by gradients.
Everything else here must be equal: sums have one order whatever the registers.
"""

from __future__ import annotations

import pytest
import torch
from contract import runners, served
from contract.harness import same
from torch import Tensor

import fastattnerase as fae
from fastattnerase import _C

TARGETS = ("avx512", "avx2", "neon", "wide", "neon-emulated")
RANKINGS = ("random", "attention")
LENGTHS = (*range(18), 31, 33, 64, 65, 129, 300, 513, 1025)


def here() -> list[str]:
    """The targets that can run on this machine."""
    built = [name for name in TARGETS if name in _C.cpu_variants()]
    emulated = [name.removeprefix("cpu-") for name in served.here() if not served.lacking(name)]
    return built + [name for name in TARGETS if name in emulated]


def batch(classes: int, dtype: torch.dtype, width: int) -> fae.AttentionBatch:
    generator = torch.Generator().manual_seed(classes * 100 + width)
    lengths = torch.tensor(LENGTHS).repeat(2)[torch.randperm(2 * len(LENGTHS), generator=generator)]
    items = int(lengths.sum())
    weights = (2 * torch.randn(items, generator=generator)).exp()
    return fae.AttentionBatch(
        torch.randn(items, width, generator=generator).to(dtype),
        torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        weights=weights * (torch.rand(items, generator=generator) > 0.1),
        head_weight=torch.randn(classes, width, generator=generator) / width**0.5,
        head_bias=0.2 * torch.randn(len(lengths), classes, generator=generator),
    )


def results(problem: fae.AttentionBatch, target: str) -> dict[str, Tensor]:
    """What neither exponentials nor logarithms go into."""
    name = runners.native(target)
    keys = torch.linspace(-1, 1, len(problem.values)).sin()
    rankings = (*RANKINGS, keys)
    without = fae.erase_prefixes(problem, rankings, backend=name)
    run = fae.sweep(
        problem, rankings, curves=("mass",), orders=True, logits=True, weights=True, backend=name
    )
    assert run.single is not None
    assert run.minimal is not None
    moved = fae.permute(problem, 20, backend=name)
    rows = torch.stack([problem.weights, keys.abs()])
    found = {"reweighed": fae.reweigh(problem, rows, backend=name)}
    found |= {"curve mass": run.prefixes.curves["mass"], "single flip": run.single.flip_label}
    found |= {"permuted: label": moved.label, "permuted: flips": moved.flips}
    for key in ("label", "first_flip", "flip_label", "removed_mass"):
        found[f"without curves: {key}"] = getattr(without, key)
        found[key] = getattr(run.prefixes, key)
    for key in ("status", "order", "logits", "weights"):
        found[key] = getattr(run.prefixes, key)
    for key in ("size", "flip_label", "order"):
        found[f"minimal {key}"] = getattr(run.minimal, key)
    return found


@pytest.mark.parametrize(
    ("classes", "dtype", "width"),
    [
        (2, torch.float32, 100),
        (5, torch.bfloat16, 33),
        (10, torch.float32, 140),
        (16, torch.float16, 7),
    ],
)
def test_targets_give_the_same_bits(classes: int, dtype: torch.dtype, width: int) -> None:
    targets = here()
    if len(targets) < 2:
        pytest.skip(f"bits of targets: this machine runs {' '.join(targets) or 'none of them'}")
    problem = batch(classes, dtype, width)
    first = results(problem, targets[0])
    assert (first["first_flip"] > 0).any()
    for target in targets[1:]:
        for name, ours in results(problem, target).items():
            assert same(ours, first[name]), f"{name} of {target} differs from {targets[0]}'s"
