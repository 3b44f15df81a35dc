"""Short instances, which a variant may sweep several at a time: results beside plain's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from contract import runners
from torch import Tensor

import fastattnerase as fae
from fastattnerase import _C

NAMES = ("random", "attention", "gradient", "product")
CURVES = ("js", "kl", "label_prob", "mass")
NEAR_TIE = int(fae.Status.NEAR_TIE)
# One class other than the label, then full and just more than full quarters of four.
CLASSES = (2, 5, 6, 9, 10, 16)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = _C.cpu_variant()
    yield
    _C.cpu_select_variant(before)


def batch(classes: int, scores: bool, seed: int, longest: int = 17) -> fae.AttentionBatch:
    """Instances of 0 … `longest` items, one item in seven without weight, biases of their own."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, longest + 1, (150,), generator=generator)
    items = int(lengths.sum())
    attention = 2 * torch.randn(items, generator=generator)
    absent = torch.rand(items, generator=generator) < 1 / 7
    attention = attention.masked_fill(absent, -torch.inf) if scores else attention.exp() * ~absent
    return fae.AttentionBatch(
        torch.randn(items, 24, generator=generator),
        torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        **({"scores": attention} if scores else {"weights": attention}),
        head_weight=torch.randn(classes, 24, generator=generator) / 24**0.5,
        head_bias=0.3 * torch.randn(150, classes, generator=generator),
    )


def swept(problem: fae.AttentionBatch, variant: str, orders: int = 1) -> dict[str, Tensor]:
    """Everything a sweep gives and the built-in orders, by name."""
    name = runners.native(variant)
    run = fae.sweep(problem, NAMES, curves=CURVES, random_orders=orders, backend=name)
    assert run.single is not None
    assert run.minimal is not None
    results = {f"curve {key}": value for key, value in run.prefixes.curves.items()}
    results |= {f"order {key}": fae.rank(problem, key, backend=name) for key in NAMES}
    for key in ("label", "status", "probabilities", "first_flip", "flip_label", "removed_mass"):
        results[key] = getattr(run.prefixes, key)
    for key in ("flip", "flip_label", "js", "label_prob_drop"):
        results[f"single {key}"] = getattr(run.single, key)
    for key in ("size", "flip_label", "order"):
        results[f"minimal {key}"] = getattr(run.minimal, key)
    return results


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("classes", CLASSES)
def test_short_instances_equal_those_of_plain(cpu_variant: str, classes: int, scores: bool) -> None:
    problem = batch(classes, scores, seed=classes)
    lengths = problem.offsets.diff()
    want = swept(problem, "plain", orders=3)
    assert (want["first_flip"] > 0).any()
    assert (want["first_flip"] < 0).any()
    assert (want["minimal size"] > 0).any()
    got = swept(problem, cpu_variant, orders=3)
    clear = (want["status"] | got["status"]) & NEAR_TIE == 0
    assert (~clear).sum() <= 1
    own = torch.repeat_interleave(clear, lengths)
    points = torch.repeat_interleave(clear, lengths + 1)
    for key, theirs in want.items():
        ours = got[key]
        assert ours.shape == theirs.shape, key
        if ours.shape[-1] == points.numel():
            ours, theirs = ours[..., points], theirs[..., points]
        elif ours.shape[-1] == own.numel():
            ours, theirs = ours[..., own], theirs[..., own]
        elif key != "probabilities":
            ours, theirs = ours[..., clear], theirs[..., clear]
        if key in ("removed_mass", "curve mass"):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12, equal_nan=True)
        elif key == "curve kl":
            assert ((ours - theirs).abs() <= 2e-6 * (1 + theirs)).all()
        elif ours.is_floating_point():
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
        else:
            assert torch.equal(ours, theirs), key


@pytest.mark.parametrize("classes", [5, 16])
def test_short_instances_do_not_depend_on_their_neighbours(cpu_variant: str, classes: int) -> None:
    problem = batch(classes, True, seed=classes + 100)
    B = len(problem)
    backwards = fae.AttentionBatch.cat([problem[b : b + 1] for b in reversed(range(B))])
    together = swept(problem, cpu_variant)
    for key, alone in swept(backwards, cpu_variant).items():
        whole = together[key]
        if key == "probabilities" or alone.shape[-1] == B:
            turned = alone.flip(0) if key == "probabilities" else alone.flip(-1)
        else:
            extra = int(alone.shape[-1] != problem.offsets[-1])
            sizes = (backwards.offsets.diff() + extra).tolist()
            turned = torch.cat(alone.split(sizes, dim=-1)[::-1], dim=-1)
        assert torch.equal(turned.nan_to_num(-7), whole.nan_to_num(-7)), (cpu_variant, key)


def test_equal_items_keep_their_positions(cpu_variant: str) -> None:
    lengths = torch.arange(1, 17)
    items = int(lengths.sum())
    problem = fae.AttentionBatch(
        torch.ones(items, 3),
        torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        scores=torch.zeros(items),
        head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]),
        head_bias=torch.tensor([0.0, 0.25]),
    )
    positions = torch.cat([torch.arange(int(n)) for n in lengths])
    got = swept(problem, cpu_variant)
    for key in ("order attention", "order gradient", "order product", "minimal order"):
        assert torch.equal(got[key], positions), (cpu_variant, key)
    # Every survivor is for class 0 by 1 - 0.75; the bias alone, once all are erased, for 1.
    assert torch.equal(got["label"], torch.zeros(16, dtype=torch.int64))
    assert torch.equal(got["first_flip"], lengths.expand(4, 16))
    assert torch.equal(got["minimal size"], lengths)
    assert torch.equal(got["minimal flip_label"], torch.ones(16, dtype=torch.int64))
    assert torch.equal(got["single flip"].nonzero().flatten(), torch.tensor([0]))
