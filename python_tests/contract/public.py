"""Small batches for tests of the public functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import fastattnerase as fae
from contract.harness import Runner, same
from fastattnerase.problem import Problem

RANKINGS = ("random", "attention", "gradient", "product", "renormalized_gradient", "leave_one_out")
CURVES = ("js", "kl", "label_prob", "mass", "decision", "logits")


def batch_of(problem: Problem) -> fae.AttentionBatch:
    """The batch of a case, as a user would build it."""
    one = problem.values.shape[1] == 1
    attention = problem.attention[:, 0] if one else problem.attention
    head = problem.head_weight[:, 0] if one else problem.head_weight
    return fae.AttentionBatch(
        problem.values[:, 0] if one else problem.values,
        problem.offsets,
        **{"scores" if problem.is_scores else "weights": attention},
        head_weight=head,
        head_bias=problem.head_bias,
        ids=problem.ids,
    )


def ragged(
    lengths: list[int],
    *,
    features: int = 6,
    classes: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    spread: float = 1.0,
    device: str = "cpu",
) -> dict[str, Any]:
    """Random lists of values and scores with a head, as arguments of `from_list`."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    return {
        "head_weight": normal(classes, features).to(dtype).to(device),
        "head_bias": (normal(classes) / 4).float().to(device),
        "values": [normal(n, features).to(dtype).to(device) for n in lengths],
        "scores": [(spread * normal(n)).float().to(device) for n in lengths],
    }


def one(
    runner: Runner,
    values: Any,
    *,
    scores: Any = None,
    weights: Any = None,
    head: Any = ((1.0,), (0.0,)),
    bias: Any = None,
    dtype: torch.dtype = torch.float32,
) -> fae.AttentionBatch:
    """A batch of one instance from literal numbers, on the runner's device."""

    def tensor(x: Any) -> Tensor | None:
        return None if x is None else torch.tensor(x, dtype=dtype, device=runner.device)

    h = tensor(values)
    assert h is not None
    return fae.AttentionBatch(
        h,
        torch.tensor([0, len(h)], device=runner.device),
        scores=tensor(scores),
        weights=tensor(weights),
        head_weight=tensor(head),
        head_bias=tensor(bias),
    )


def results(sweep: fae.Sweep) -> dict[str, Tensor]:
    """Every tensor of a sweep by name."""
    found = {}
    for part in ("prefixes", "single", "minimal"):
        record = getattr(sweep, part)
        if record is None:
            continue
        for name, value in vars(record).items():
            if isinstance(value, Tensor) and not name.startswith("_"):
                found[f"{part}.{name}"] = value
            elif isinstance(value, dict):
                found |= {f"{part}.{name}.{key}": t for key, t in value.items()}
    return found


def everything(batch: fae.AttentionBatch, runner: Runner, **options: Any) -> fae.Sweep:
    """All results of a batch on one backend."""
    rankings = RANKINGS[: min(len(RANKINGS), runner.caps.rankings)]
    options = {"rankings": rankings, "curves": CURVES, "seed": 5} | options
    return fae.sweep(batch, options.pop("rankings"), backend=runner.name, **options)


def instance_results(sweep: fae.Sweep, b: int) -> dict[str, Tensor]:
    """Every number that belongs to one instance."""
    offsets = sweep.prefixes.offsets.tolist()
    items = slice(offsets[b], offsets[b + 1])
    points = slice(offsets[b] + b, offsets[b + 1] + b + 1)
    per_item = ("single.flip_label", "single.js", "single.label_prob_drop", "minimal.order")
    found = {}
    for name, t in results(sweep).items():
        if name.endswith("offsets"):
            continue
        if name in per_item:
            found[name] = t[items]
        elif ".curves." in name:
            found[name] = t[:, points]
        elif name.split(".")[1] in ("first_flip", "flip_label", "removed_mass") and t.dim() == 2:
            found[name] = t[:, b]
        else:
            found[name] = t[b]
    return found


def assert_equal(a: dict[str, Tensor], b: dict[str, Tensor], why: str) -> None:
    """Bit for bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert same(a[name], b[name]), f"{name} differs {why}: {a[name]} against {b[name]}"
