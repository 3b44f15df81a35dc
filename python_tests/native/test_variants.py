"""Every instruction-set variant decides the same, on orders that are prescribed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from contract import runners

import fastattnerase as fae
from fastattnerase import _C

LENGTHS = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 129, 300, 511, 512, 513, 1025)
NEAR_TIE = int(fae.Status.NEAR_TIE)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = _C.cpu_variant()
    yield
    _C.cpu_select_variant(before)


def batch(classes: int, width: int, dtype: torch.dtype, scores: bool) -> fae.AttentionBatch:
    generator = torch.Generator().manual_seed(classes * 1000 + width)
    items = sum(LENGTHS)
    attention = torch.randn(items, generator=generator) * 2
    attention[::11] = -torch.inf if scores else 0.0
    return fae.AttentionBatch(
        torch.randn(items, width, generator=generator).to(dtype),
        torch.tensor([0, *LENGTHS]).cumsum(0),
        **({"scores": attention} if scores else {"weights": attention.abs()}),
        head_weight=torch.randn(classes, width, generator=generator) / width**0.5,
        head_bias=0.2 * torch.randn(classes, generator=generator),
    )


FLAGS = {  # of the processor, as Linux names them
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"},
    "avx2": {"avx2", "fma"},
    "neon": set(),
    "plain": set(),
}
CPUINFO = Path("/proc/cpuinfo")


@pytest.mark.skipif(not CPUINFO.exists(), reason="no /proc/cpuinfo")
def test_what_the_processor_has_is_run() -> None:
    """No variant is missing for another reason than the processor, or a person's who hides it."""
    lines = CPUINFO.read_text().splitlines()
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    hidden = os.environ.get("FASTATTNERASE_TEST_HIDE", "").split(",")
    built = _C.cpu_variants_built()
    runs = [name for name in built if FLAGS[name] <= flags and name not in hidden]
    assert _C.cpu_variants() == runs


def test_plain_is_there_and_the_fastest_is_first() -> None:
    variants = _C.cpu_variants()
    assert [name for name in _C.cpu_variants_built() if name in variants] == variants
    assert variants[-1] == "plain"
    assert len(set(variants)) == len(variants)
    for name in variants:
        _C.cpu_select_variant(name)
        assert _C.cpu_variant() == name
    _C.cpu_select_variant("baseline")  # what plain was called
    assert _C.cpu_variant() == "plain"
    with pytest.raises(ValueError, match=r"^name: given vax, needed one that this machine runs"):
        _C.cpu_select_variant("vax")


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize(
    ("classes", "width", "dtype"),
    [
        (2, 256, torch.float32),
        (5, 100, torch.float32),
        (8, 3, torch.bfloat16),
        (10, 131, torch.float16),
        (16, 20, torch.float32),
        (17, 20, torch.float32),
        (3, 7, torch.float64),
    ],
)
def test_variants_decide_the_same(
    cpu_variant: str, classes: int, width: int, dtype: torch.dtype, scores: bool
) -> None:
    problem = batch(classes, width, dtype, scores)
    names = ("attention", "gradient", "product", "random", "renormalized_gradient", "minimal")
    plain = runners.native("plain")
    orders = [fae.rank(problem, name, backend=plain) for name in names]
    curves = ("js", "kl", "mass")
    want = fae.sweep(problem, orders, curves=curves, backend=plain)
    assert (want.prefixes.first_flip > 0).any()
    assert (want.prefixes.first_flip < 0).any()
    assert want.single is not None
    assert want.minimal is not None
    name = runners.native(cpu_variant)
    short = fae.erase_prefixes(problem, names[:4], backend=name)
    other = fae.sweep(problem, orders, curves=curves, backend=name)
    near = (want.prefixes.status | other.prefixes.status) & NEAR_TIE != 0
    assert near.sum() <= 2
    clear = ~near
    assert other.single is not None
    assert other.minimal is not None
    torch.testing.assert_close(other.prefixes.label, want.prefixes.label)
    assert torch.equal(short.label, want.prefixes.label)
    for field in ("first_flip", "flip_label"):
        ours, theirs = getattr(other.prefixes, field), getattr(want.prefixes, field)
        assert torch.equal(ours[:, clear], theirs[:, clear])
    torch.testing.assert_close(
        other.prefixes.removed_mass, want.prefixes.removed_mass, rtol=0, atol=1e-12,
        equal_nan=True,
    )  # fmt: skip
    assert torch.equal(other.minimal.size[clear], want.minimal.size[clear])
    items = torch.repeat_interleave(clear, torch.tensor(LENGTHS))
    assert torch.equal(other.single.flip[items], want.single.flip[items])
    for field in curves:
        ours, theirs = other.prefixes.curves[field], want.prefixes.curves[field]
        assert ((ours - theirs).abs() <= 4e-6 * (1 + theirs)).all()
    random = names.index("random")
    assert torch.equal(short.first_flip[3, clear], want.prefixes.first_flip[random, clear])


def test_results_do_not_depend_on_threads_or_neighbours(cpu_variant: str) -> None:
    problem = batch(10, 100, torch.float32, True)
    names = ("attention", "gradient", "product", "random")
    before = torch.get_num_threads()
    name = runners.native(cpu_variant)
    runs = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            runs.append(fae.sweep(problem, names, curves=("js",), backend=name))
    finally:
        torch.set_num_threads(before)
    parts = [
        fae.sweep(problem[b : b + 1], names, curves=("js",), backend=name)
        for b in range(len(problem))
    ]
    for run in runs[1:]:
        assert torch.equal(run.prefixes.curves["js"], runs[0].prefixes.curves["js"])
        assert torch.equal(run.prefixes.first_flip, runs[0].prefixes.first_flip)
        assert run.single is not None
        assert runs[0].single is not None
        assert torch.equal(run.single.js, runs[0].single.js)
    alone = torch.cat([part.prefixes.curves["js"] for part in parts], dim=1)
    assert torch.equal(alone, runs[0].prefixes.curves["js"])
    singles = torch.cat([part.single.js for part in parts if part.single is not None])
    assert runs[0].single is not None
    assert torch.equal(singles, runs[0].single.js)
