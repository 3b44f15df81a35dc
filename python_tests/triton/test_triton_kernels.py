"""Each Triton kernel by itself, between guard bands: interpreted here, compiled where a GPU is."""

from __future__ import annotations

import math
from importlib import import_module

import pytest
import torch
from sweep_problems import DEVICE, guarded, intact
from torch import Tensor

from fastattnerase.backends.reference import BACKEND as REFERENCE
from fastattnerase.backends.triton import BACKEND as TRITON
from fastattnerase.problem import PooledProblem
from fastattnerase.rankings.random import random_keys

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NaN in the interpreter


def kernel(name: str):
    return import_module(f"fastattnerase.kernels.triton.{name}")


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("features", "classes"), [(1, 1), (3, 2), (100, 5), (130, 3), (300, 18)])
def test_contributions_and_norms(dtype: torch.dtype, features: int, classes: int) -> None:
    exact = dtype == torch.float64
    real = torch.float64 if exact else torch.float32
    values = normal(37, features, dtype=dtype)  # [T, D]
    head = normal(classes, features, dtype=real, seed=1)  # [C, D]
    contributions, norms = guarded((37, classes), real), guarded((37,), torch.float64)
    kernel("project").project(values, head, contributions, norms)
    assert intact(contributions)
    assert intact(norms)
    expected = values.double() @ head.double().T  # [T, C]
    scale = (values.double().abs() @ head.double().abs().T).amax()
    error = (contributions.double() - expected).abs().max() / scale
    assert error < (1e-14 if exact else 5e-7)
    torch.testing.assert_close(norms, values.double().norm(dim=1), rtol=1e-5, atol=0)


def test_long_sums_keep_float32_accuracy_of_short_ones() -> None:
    """Small features that vanish beside a large one in float32: at most 128 of 20,000 may."""
    features = 20_001
    values = torch.full((1, features), 2.0**-25, device=DEVICE)
    values[0, 0] = 1
    contributions, norms = guarded((1, 1), torch.float32), guarded((1,), torch.float64)
    kernel("project").project(values, torch.ones_like(values), contributions, norms)
    assert contributions.item() == pytest.approx(1 + 20_000 * 2.0**-25, abs=130 * 2.0**-25)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_norms_beyond_the_squares_of_float32(size: float) -> None:
    values = torch.tensor([[3.0, 4.0], [3 * size, 4 * size], [0.0, 0.0]], device=DEVICE)
    contributions, norms = guarded((3, 1), torch.float32), guarded((3,), torch.float64)
    kernel("project").project(values, torch.ones(1, 2, device=DEVICE), contributions, norms)
    assert norms.tolist() == pytest.approx([5.0, 5 * size, 0.0], rel=1e-6, abs=0)


@pytest.mark.parametrize("lengths", [[0, 1, 2, 31, 32, 33, 40], [128, 129, 300], [1000]])
def test_sort_is_stable_and_descending(lengths: list[int]) -> None:
    items = sum(lengths)
    generator = torch.Generator().manual_seed(3)
    keys = torch.randint(-3, 4, (2, items), generator=generator).to(DEVICE)  # many ties
    keys[1] = keys[1] * (2**61)  # the ends of the range
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(DEVICE)
    status = torch.zeros(len(lengths), dtype=torch.int64, device=DEVICE)
    order = guarded((2, items), torch.int64)
    kernel("sort").sort(keys, offsets, status, order)
    assert intact(order)
    for begin, n in zip(offsets.tolist(), lengths, strict=False):
        for row in range(2):
            part = keys[row, begin : begin + n]
            expected = part.argsort(descending=True, stable=True)
            assert torch.equal(order[row, begin : begin + n], expected)


def test_sort_marks_invalid_instances() -> None:
    keys = torch.tensor([[1, 2, 3, 1, 2]], device=DEVICE)
    offsets = torch.tensor([0, 2, 5], device=DEVICE)
    order = guarded((1, 5), torch.int64)
    kernel("sort").sort(keys, offsets, torch.tensor([64, 0], device=DEVICE), order)
    assert order.tolist() == [[-1, -1, 0, 2, 1]]


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
def test_random_keys_are_the_documented_ones(seed: int) -> None:
    ids = torch.tensor([0, -4, 2**40], device=DEVICE)
    offsets = torch.tensor([0, 3, 3, 8], device=DEVICE)
    keys = guarded((2, 8), torch.int64)
    kernel("random_keys").random_keys(ids, offsets, keys, seed, 5)
    assert intact(keys)
    for row in range(2):
        expected = [*random_keys(seed, 5 + row, 0, 3), *random_keys(seed, 5 + row, 2**40, 5)]
        assert [key + 2**63 for key in keys[row].tolist()] == expected


def test_orders_that_are_no_permutation_are_found() -> None:
    orders = [[1, 0, 2], [0, 0, 1], [0, 1, 3], [-1, 0, 1], [], [0], [2**40]]
    lengths = [len(order) for order in orders]
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(DEVICE)
    row = torch.tensor([place for order in orders for place in order], device=DEVICE)
    scratch = guarded((len(row),), torch.int32)
    invalid = torch.zeros(7, dtype=torch.int32, device=DEVICE)
    kernel("given").check_given(row, offsets, scratch, invalid)
    assert intact(scratch)
    assert invalid.tolist() == [0, 1, 1, 1, 0, 0, 1]


def test_keys_of_scores_keep_their_order() -> None:
    scores = [math.nan, math.inf, 1e300, 1.0, 5e-324, 0.0, -0.0, -5e-324, -1.0, -math.inf]
    row = torch.tensor(scores, dtype=torch.float64, device=DEVICE)
    keys, invalid = guarded((10,), torch.int64), torch.zeros(2, dtype=torch.int32, device=DEVICE)
    kernel("given").check_given(row, torch.tensor([0, 1, 10], device=DEVICE), keys, invalid)
    assert intact(keys)
    assert invalid.tolist() == [1, 0]
    values = keys.tolist()
    assert values[5] == values[6]
    assert values[:5] + values[6:] == sorted(values[:5] + values[6:], reverse=True)
    assert len(set(values)) == 9


def pooled_pair(
    begin: int, points: int, keep: bool = False, spread: float = 1.0, heads: int = 1
) -> tuple[Tensor, Tensor]:
    lengths = [4, 0, 19, 1]
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(DEVICE)
    attention = normal(24, heads, seed=2) * spread
    attention[6] = -math.inf
    attention[21] = math.nan
    generator = torch.Generator().manual_seed(5)
    order = torch.cat([torch.randperm(n, generator=generator) for n in lengths]).to(DEVICE)
    problem = PooledProblem(
        normal(24, heads, 70, seed=1), offsets, attention, True, order, keep, begin
    )
    result, expected = guarded((points, heads, 70), torch.float32), torch.empty(points, heads, 70)
    TRITON.pooled_prefixes(problem, result)
    assert intact(result)
    REFERENCE.pooled_prefixes(problem, expected)
    return result.cpu(), expected


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("begin", "points"), [(0, 28), (2, 11), (7, 3), (27, 1), (4, 0)])
def test_pooled_prefixes(begin: int, points: int, keep: bool) -> None:
    result, expected = pooled_pair(begin, points, keep)
    torch.testing.assert_close(result, expected, equal_nan=True)


@pytest.mark.parametrize("spread", [1.0, 500.0])
def test_pooled_prefixes_of_two_heads(spread: float) -> None:
    result, expected = pooled_pair(3, 20, spread=spread, heads=2)
    torch.testing.assert_close(result, expected, equal_nan=True)


def test_pooled_prefixes_survive_an_order_that_is_none() -> None:
    order = torch.tensor([-1, 0, 2**40], device=DEVICE)
    problem = PooledProblem(
        torch.ones(3, 1, 2, device=DEVICE), torch.tensor([0, 3], device=DEVICE),
        torch.ones(3, 1, device=DEVICE), False, order, True, 0,
    )  # fmt: skip
    result = guarded((4, 1, 2), torch.float32)
    TRITON.pooled_prefixes(problem, result)
    assert intact(result)
    assert result[0].tolist() == [[0, 0]]
    assert bool(result[1:].isnan().all())
