"""`fae.reweigh` and permuted weights: brute force in float64, and as citizens of torch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import fastattnerase as fae
from contract.cases import CASES, build
from contract.harness import Runner, same
from contract.oracle import Instance
from contract.public import batch_of, ragged
from fastattnerase.ops.permutations import permutation_order, permuted
from fastattnerase.problem import FIRST_PERMUTATION, Problem
from fastattnerase.rankings.random import random_order

KINDS = [
    "base", "holes", "peaked", "wide-span", "heads-2", "sliced-bfloat16", "zero-mass",
]  # fmt: skip
ROWS = 3


def rows_of(problem: Problem) -> Tensor:
    """Random weights, weights of which many are zero, and none at all: [R, T, H]."""
    g = torch.Generator().manual_seed(5)
    drawn = torch.rand(problem.attention.shape, generator=g, dtype=torch.float64) * 3
    sparse = drawn * (torch.rand(drawn.shape, generator=g) < 0.3)
    return torch.stack([drawn, sparse, torch.zeros_like(drawn)])


def by_brute_force(problem: Problem, weights: Tensor) -> np.ndarray:
    """Average what each instance has, in float64: [R, B, C]."""
    offsets, found = problem.offsets.tolist(), []
    for row in weights.double().numpy():
        logits = []
        for b in range(len(problem.ids)):
            items = slice(offsets[b], offsets[b + 1])
            bias = problem.head_bias if problem.head_bias.ndim == 1 else problem.head_bias[b]
            instance = Instance(
                problem.values[items].double().numpy(),
                row[items],
                False,
                problem.head_weight.double().numpy(),
                bias.double().numpy(),
                narrow=problem.values.dtype != torch.float64,
            )
            point = instance.original
            logits.append(point.logits if point.valid else np.full(len(bias), np.nan))
        found.append(logits)
    return np.array(found, dtype=np.float64)


def packed(problem: Problem, weights: Tensor) -> Tensor:
    """Weights as a user gives them: [R, T] of one head."""
    return weights[:, :, 0] if problem.values.shape[1] == 1 else weights


@pytest.mark.parametrize("name", KINDS)
def test_against_brute_force(permuter: Runner, name: str) -> None:
    problem = build(CASES[name]).problem
    weights = rows_of(problem)
    batch = batch_of(problem)
    got = fae.reweigh(batch, packed(problem, weights), backend=permuter.name)
    want = by_brute_force(problem, weights)
    assert got.shape == (ROWS, *want.shape[1:])
    assert got.dtype == (torch.float64 if problem.values.dtype == torch.float64 else torch.float32)
    scale = np.nanmax(np.abs(want)) if np.isfinite(want).any() else 1.0
    np.testing.assert_allclose(got.double().numpy(), want, rtol=2e-7, atol=2e-7 * scale)


@pytest.mark.parametrize("name", KINDS)
def test_is_the_original_decision_of_those_weights(name: str) -> None:
    """What a sweep of the same items under these weights says of its first point, bit for bit."""
    problem = build(CASES[name]).problem
    for row in packed(problem, rows_of(problem)):
        other = batch_of(problem).with_weights(row if row.ndim == 2 else row[:, None])  # [T, H]
        swept = fae.erase_prefixes(other, "attention", logits=True, backend="reference")
        assert swept.logits is not None
        assert same(fae.reweigh(batch_of(problem), row[None], backend="reference")[0], swept.logits)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_callable_head_equals_the_linear_one(heads: int) -> None:
    g = torch.Generator().manual_seed(3)
    inner = (4,) if heads == 1 else (heads, 4)
    values = torch.randn((9, *inner), generator=g, dtype=torch.float64)
    scores = torch.randn(values.shape[:-1], generator=g)
    offsets = torch.tensor([0, 5, 5, 9])
    weight = torch.randn((3, *inner), generator=g, dtype=torch.float64)
    bias = torch.randn((3, 3), generator=g, dtype=torch.float64)
    linear = fae.AttentionBatch(values, offsets, scores=scores, head_weight=weight, head_bias=bias)

    def head(pooled: Tensor, instance: Tensor) -> Tensor:
        return pooled.flatten(1) @ weight.flatten(1).T + bias[instance]

    called = fae.AttentionBatch(values, offsets, scores=scores, head=head)
    weights = torch.rand((4, *scores.shape), generator=g)
    weights[3] = 0
    want = fae.reweigh(linear, weights)
    for max_bytes in (1, 10**6):
        got = fae.reweigh(called, weights, max_bytes=max_bytes)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    # A slice keeps its rows; weights are of its own items.
    part = fae.reweigh(called[2:], weights[:, 5:])
    torch.testing.assert_close(part, want[:, 2:], rtol=1e-12, atol=1e-12)
    assert torch.equal(want[3], bias)  # no mass: the bias


def test_what_is_not_finite_and_what_is_refused() -> None:
    args = ragged([3, 2, 0, 2])
    args["values"][1][0] = float("nan")
    batch = fae.AttentionBatch.from_list(**args)
    weights = torch.ones(2, 7)
    weights[1, 5] = float("inf")
    found = fae.reweigh(batch, weights).isnan()
    assert found.all(2).tolist() == [[False, True, False, False], [False, True, False, True]]
    assert torch.equal(found.any(2), found.all(2))
    weights[1, 4] = -1
    where = r"weights: given -1(\.0)? at position 1 of instance 1 in row 1, needed "
    for backend in ("cpu", "reference"):
        with pytest.raises(ValueError, match=where):
            fae.reweigh(batch, weights, backend=backend)
    unchecked = fae.reweigh(batch, weights.nan_to_num(posinf=1.0), validate=False)
    assert unchecked[1, 1].isnan().all()
    assert unchecked[1, 3].isfinite().all()
    for wrong in (torch.ones(7), torch.ones(2, 6), torch.ones(0, 7), torch.ones(2, 7, 1)):
        with pytest.raises(ValueError, match=r"weights: given .*, needed \[R, 7\]"):
            fae.reweigh(batch, wrong)
    with pytest.raises(TypeError, match=r"weights: given torch.int64"):
        fae.reweigh(batch, torch.ones(2, 7, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"weights: given on meta, needed on cpu"):
        fae.reweigh(batch, torch.ones(2, 7, device="meta"))
    with pytest.raises(TypeError, match="batch: given list"):
        fae.reweigh([batch], weights)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backend: given 'gpu'"):
        fae.reweigh(batch, weights, backend="gpu")  # type: ignore[arg-type]


def test_empty_batches() -> None:
    args = ragged([])
    batch = fae.AttentionBatch(
        torch.zeros(0, 6), torch.tensor([0]), scores=torch.zeros(0),
        head_weight=args["head_weight"],
    )  # fmt: skip
    assert fae.reweigh(batch, torch.ones(2, 0)).shape == (2, 0, 3)


def test_batches_of_any_composition_agree_bit_for_bit() -> None:
    batch = fae.AttentionBatch.from_list(**ragged([5, 0, 40, 1]))
    weights = torch.rand(3, 46, generator=torch.manual_seed(2))
    whole = fae.reweigh(batch, weights)
    for b in range(4):
        own = weights[:, int(batch.offsets[b]) : int(batch.offsets[b + 1])]
        assert same(fae.reweigh(batch[b], own)[:, 0], whole[:, b])
    for row in range(3):
        assert same(fae.reweigh(batch, weights[row : row + 1])[0], whole[row])


# --- the operator --------------------------------------------------------------------------------


def operator_arguments(dtype: torch.dtype) -> tuple[object, ...]:
    batch = fae.AttentionBatch.from_list(**ragged([5, 0, 9, 1], dtype=dtype))
    weights = torch.rand(2, 15, 1, generator=torch.manual_seed(0))
    values, offsets, *_ = batch.packed
    return (values, offsets, *batch.linear_head, weights, "auto", True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_opcheck(dtype: torch.dtype) -> None:
    torch.library.opcheck(torch.ops.fastattnerase.reweigh.default, operator_arguments(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fake_and_meta_results_have_the_real_shape(dtype: torch.dtype) -> None:
    args = operator_arguments(dtype)
    real = torch.ops.fastattnerase.reweigh(*args)
    with FakeTensorMode() as mode:
        fake = torch.ops.fastattnerase.reweigh(
            *[mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args]
        )
    meta = torch.ops.fastattnerase.reweigh(
        *[a.to("meta") if isinstance(a, Tensor) else a for a in args]
    )
    assert real.shape == fake.shape == meta.shape == (2, 4, 3)
    assert real.dtype == fake.dtype == meta.dtype
    assert real.stride() == fake.stride() == meta.stride()


@pytest.mark.filterwarnings("ignore")
def test_compiles_in_one_graph() -> None:
    torch._dynamo.reset()
    args = ragged([5, 9, 1])
    values, lengths = torch.cat(args["values"]), torch.tensor([0, 5, 14, 15])

    def model(values: Tensor, weights: Tensor) -> Tensor:
        batch = fae.AttentionBatch(
            values, lengths, weights=weights[0], head_weight=args["head_weight"]
        )
        return fae.reweigh(batch, weights)

    weights = torch.rand(2, 15)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(values, weights), model(values, weights))


def test_no_gradient_and_the_random_state_stay() -> None:
    args = ragged([3, 4])
    args["values"] = [v.requires_grad_() for v in args["values"]]
    batch = fae.AttentionBatch.from_list(**args)
    state = torch.get_rng_state()
    weights = torch.full((1, 7), 0.5, requires_grad=True)
    assert not fae.reweigh(batch, weights).requires_grad
    permutation_order(batch, 3)
    assert torch.equal(state, torch.get_rng_state())


# --- permutations --------------------------------------------------------------------------------


def test_permutations_are_the_engine_s_random_orders() -> None:
    batch = fae.AttentionBatch.from_list(**ragged([6, 0, 9, 1]))
    batch = fae.AttentionBatch(
        batch.values, batch.offsets, scores=batch.scores, head_weight=batch.head_weight,
        ids=torch.tensor([4, -2, 2**40, 7]),
    )  # fmt: skip
    for p in (0, 5):
        want = torch.cat(
            [
                random_order(11, 2**33 + p, int(key), int(n))
                for key, n in zip(batch.ids, batch.lengths, strict=True)
            ]
        )
        order = permutation_order(batch, p, seed=11)
        assert torch.equal(order, want)
        assert torch.equal(order[6:15], permutation_order(batch[2], p, seed=11))
        weights = torch.rand(16)
        moved = permuted(batch, weights, p, seed=11)
        for b in range(4):
            own = slice(int(batch.offsets[b]), int(batch.offsets[b + 1]))
            assert torch.equal(moved[own], weights[own][want[own]])
    assert FIRST_PERMUTATION == 2**33
    with pytest.raises(ValueError, match="permutation: given -1, needed 0 or more"):
        permutation_order(batch, -1)


def test_permutations_of_some_items_leave_the_others() -> None:
    batch = fae.AttentionBatch.from_list(**ragged([4, 3]))
    batch = fae.AttentionBatch(
        batch.values, batch.offsets, scores=batch.scores, head_weight=batch.head_weight,
        ids=torch.tensor([0, 1]),
    )  # fmt: skip
    among = torch.tensor([True, False, True, True, False, True, True])
    heads = torch.stack([torch.arange(7), 10 * torch.arange(7)], dim=1)  # [T, H]
    seen: Counter[tuple[int, ...]] = Counter()
    for p in range(600):
        moved = permuted(batch, heads, p, among=among)
        assert torch.equal(moved[:, 1], 10 * moved[:, 0])
        assert moved[~among, 0].tolist() == [1, 4]
        seen[tuple(moved[:4, 0].tolist())] += 1
    # Six orders of three items, each a hundred times: 4 deviations of a binomial are 37.
    assert len(seen) == 6
    assert all(abs(count - 100) < 37 for count in seen.values())


def test_equal_weights_do_not_move() -> None:
    batch = fae.AttentionBatch.from_list(**ragged([6, 3]))
    equal = torch.full((9,), 0.25)
    moved = torch.stack([permuted(batch, equal, p) for p in range(3)])
    logits = fae.reweigh(batch, torch.cat([equal[None], moved]))
    assert all(torch.equal(logits[0], row) for row in logits[1:])
