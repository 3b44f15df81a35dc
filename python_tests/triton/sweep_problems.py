"""Problems and guarded outputs for the tests of the Triton kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from fastattnerase.backends.reference import BACKEND as REFERENCE
from fastattnerase.backends.triton import BACKEND as TRITON
from fastattnerase.problem import BIT, Outputs, Problem, RankingKind, allocate, as_outputs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GUARD = 64
CANARY = -77
NEAR_TIE = 32

K = RankingKind
EVERY = (
    K.ATTENTION,
    K.GRADIENT,
    K.PRODUCT,
    K.RENORMALIZED_GRADIENT,
    K.RANDOM,
    K.RANDOM,
    K.LEAVE_ONE_OUT,
    K.LEAVE_ONE_OUT_DROP,
    K.MINIMAL,
    K.GIVEN_KEYS,
)


def guarded(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of canaries in the middle of a larger one, whose ends `intact` looks at."""
    size = torch.Size(shape).numel()
    band = torch.full((size + 2 * GUARD,), CANARY, dtype=dtype, device=DEVICE)
    return band[GUARD : GUARD + size].view(shape)


def intact(tensor: Tensor) -> bool:
    """Whether nothing was written around a guarded tensor."""
    band = tensor.new_empty(0).set_(tensor.untyped_storage())
    return bool((band[:GUARD] == CANARY).all() and (band[-GUARD:] == CANARY).all())


def same(a: Tensor, b: Tensor) -> bool:
    """Whether all numbers are equal, NaN with NaN."""
    return torch.equal(a.nan_to_num(nan=-5), b.nan_to_num(nan=-5))


def problem(
    lengths: list[int],
    features: int = 6,
    classes: int = 3,
    dtype: torch.dtype = torch.float32,
    scores: bool = True,
    spread: float = 1.0,
    rankings: tuple[RankingKind, ...] = EVERY,
    keep: bool = False,
    own_bias: bool = False,
    change: Callable[[dict[str, Tensor]], None] | None = None,
    seed: int = 0,
) -> Problem:
    """A random problem; `change` edits its tensors in place."""
    generator = torch.Generator().manual_seed(seed)
    items, instances = sum(lengths), len(lengths)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    real = torch.float64 if dtype == torch.float64 else torch.float32
    attention = normal(items, 1) * spread
    tensors = {
        "values": normal(items, 1, features).to(dtype),
        "attention": (attention if scores else attention.abs()).float(),
        "head_weight": normal(classes, 1, features).to(real),
        "head_bias": (normal(instances, classes) if own_bias else normal(classes)).to(real),
        "keys": normal(items),
        "order": torch.cat(
            [torch.arange(0), *(torch.randperm(n, generator=generator) for n in lengths)]
        ),
    }
    if change is not None:
        change(tensors)
    randoms = [kind == K.RANDOM for kind in rankings]
    return Problem(
        values=tensors["values"].to(DEVICE),
        offsets=torch.tensor([0, *lengths]).cumsum(0).to(DEVICE),
        attention=tensors["attention"].to(DEVICE),
        is_scores=scores,
        head_weight=tensors["head_weight"].to(DEVICE),
        head_bias=tensors["head_bias"].to(DEVICE),
        ids=torch.arange(instances, device=DEVICE) + 5,
        rankings=rankings,
        ranking_args=tuple(
            sum(randoms[:row]) if randoms[row] else 0 for row in range(len(rankings))
        ),
        orders=(tensors["order"].to(DEVICE),),
        keys=(tensors["keys"].to(DEVICE),),
        seed=7,
        keep=keep,
        validate=False,
    )


def outputs(given: Problem) -> Outputs:
    """Every output there is, guarded."""
    everything = sum(BIT.values())
    results = allocate(
        given.values, given.offsets, len(given.head_weight), len(given.rankings), everything
    )
    return as_outputs([guarded(tuple(t.shape), t.dtype) for t in results], everything)


def run(given: Problem) -> Outputs:
    """The Triton backend's results, nothing written around them."""
    out = outputs(given)
    TRITON.sweep(given, out)
    for field in fields(out):
        assert intact(getattr(out, field.name)), f"wrote around {field.name}"
    return out


def assert_as_reference(given: Problem) -> Outputs:
    """Integers equal, reals within 1e-5, everything written."""
    out, expected = run(given), outputs(given)
    REFERENCE.sweep(given, expected)
    for field in fields(out):
        got, want = getattr(out, field.name), getattr(expected, field.name)
        if got.is_floating_point():
            torch.testing.assert_close(
                got,
                want,
                rtol=1e-5,
                atol=2e-6,
                equal_nan=True,
                msg=lambda m, f=field.name: f"{f}: {m}",
            )
        else:
            assert torch.equal(got, want), f"{field.name}: {got.tolist()} against {want.tolist()}"
    return out
