"""The reference, and the oracle itself, against sets erased one at a time and by search."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract.cases import Case, build
from contract.harness import Judge, allocate, on_orders, wanted
from contract.oracle import Instance, divergences, first_flip
from contract.public import ragged
from fastattnerase.backends.reference import BACKEND as REFERENCE


def instance(values, attention, head, bias, is_scores=False) -> Instance:
    """One attention head from literal numbers."""
    return Instance(
        np.asarray(values, float)[:, None],
        np.asarray(attention, float)[:, None],
        is_scores,
        np.asarray(head, float)[:, None],
        np.asarray(bias, float),
    )


def test_oracle_on_a_case_worked_by_hand() -> None:
    """Values are class scores; weights 1/2, 1/4, 1/4; no bias."""
    case = instance([[4, 0], [0, 1], [0, 2]], [2, 1, 1], np.eye(2), [0, 0])
    assert case.label == 0
    np.testing.assert_allclose(case.original.logits.astype(float), [2.0, 0.75])
    points = case.prefixes(np.array([0, 1, 2]))
    np.testing.assert_allclose(points.logits.astype(float), [[2, 0.75], [0, 1.5], [0, 2], [0, 0]])
    np.testing.assert_allclose(points.mass.astype(float), [1, 0.5, 0.25, 0])
    assert case.decisions(points).tolist() == [0, 1, 1, 0]
    flip = first_flip(case, points, keep=False)
    assert (flip.first_flip, flip.flip_label, flip.removed_mass) == (1, 1, 0.5)
    keep = first_flip(case, case.prefixes(np.array([1, 0, 2]), keep=True), keep=True)
    assert (keep.first_flip, keep.flip_label, keep.removed_mass) == (2, 0, 0.25)
    minimal = case.minimal
    assert (minimal.size, minimal.flip_label, minimal.chosen.tolist()) == (1, 1, [0])


def test_oracle_divergences_worked_by_hand() -> None:
    z0, z = np.array([0.0, math.log(3)]), np.array([[0.0, 0.0]])
    p, js, kl, prob = divergences(z0, z, 1)
    np.testing.assert_allclose(p, [0.25, 0.75])
    np.testing.assert_allclose(kl, 0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    m = (0.375, 0.625)
    expected = 0.5 * sum(
        a * math.log(a / c) + b * math.log(b / c) for a, b, c in zip((0.5, 0.5), p, m, strict=True)
    )
    np.testing.assert_allclose(js, expected)
    np.testing.assert_allclose(prob, 0.5)


@pytest.mark.parametrize("attention", ["scores 2", "weights holes 1", "scores span 590"])
def test_oracle_suffix_sums_agree_with_literal_erasure(attention: str) -> None:
    """What the oracle uses on long instances is the erasure of one set after the other."""
    built = build(Case(f"oracle {attention}", lengths=(90,), attention=attention))
    one = built.instance(0)
    order = np.random.default_rng(0).permutation(90)
    for keep in (False, True):
        fast, literal = one.prefixes(order, keep), one.prefixes(order, keep, literal=True)
        np.testing.assert_allclose(
            fast.logits.astype(float), literal.logits.astype(float), rtol=1e-9, atol=1e-12
        )
        assert (one.decisions(fast) == one.decisions(literal)).all()
        np.testing.assert_allclose(fast.mass.astype(float), literal.mass.astype(float), atol=1e-12)
    each = np.array([one.survive(np.delete(np.arange(90), i)).logits for i in range(90)])
    np.testing.assert_allclose(
        one.without_each.logits.astype(float), each.astype(float), rtol=1e-9, atol=1e-12
    )


SEARCHED = [
    Case(
        f"search {c} {bias} {attention}",
        lengths=tuple(range(1, 10)) * 2,
        classes=c,
        bias=bias,
        attention=attention,
        features=4,
        dtype="float64",
    )
    for c in (2, 3, 5)
    for bias in ("zero", "normal", "large", "instance")
    for attention in ("scores 1", "weights holes 1", "scores span 700")
]


@pytest.mark.parametrize("case", SEARCHED, ids=lambda case: case.name)
def test_minimal_set_is_the_smallest_of_all_subsets(case: Case) -> None:
    """All 2^n subsets against the sort of the contract, in the oracle and in the reference."""
    built = build(case)
    want = wanted(case)
    out = allocate(built.problem, want, float("nan"))
    REFERENCE.sweep(built.problem, out)
    for b in range(len(case.lengths)):
        one = built.instance(b)
        smallest = one.minimal_by_search()
        assert one.minimal.size == smallest
        assert int(out.minimal_size[b]) == smallest


@pytest.mark.parametrize("case", SEARCHED[::4], ids=lambda case: case.name)
def test_no_ranking_flips_before_the_minimal_set(case: Case) -> None:
    built = build(case)
    out = allocate(built.problem, wanted(case), float("nan"))
    REFERENCE.sweep(built.problem, out)
    flips = torch.where(out.first_flip < 0, 1 << 40, out.first_flip)
    size = torch.where(out.minimal_size < 0, 1 << 40, out.minimal_size)
    assert ((size <= flips) | (out.status & int(fae.Status.NEAR_TIE) != 0)).all()
    never = out.minimal_size < 0
    assert (out.first_flip[:, never] < 0).all()


def test_product_is_optimal_with_two_classes_and_equal_biases() -> None:
    args = ragged([3 + i % 40 for i in range(300)], classes=2, dtype=torch.float64)
    args["head_bias"] = torch.full((2,), 0.7, dtype=torch.float64)
    result = fae.sweep(fae.AttentionBatch.from_list(**args), ("product",), backend="reference")
    tied = result.prefixes.status & int(fae.Status.NEAR_TIE) != 0
    assert tied.sum() < 5
    assert torch.equal(result.prefixes.first_flip[0][~tied], result.minimal.size[~tied])
    assert (result.minimal.size > 0).sum() > 50


def test_product_is_not_optimal_with_three_classes() -> None:
    """So that the property above says something."""
    args = ragged([3 + i % 40 for i in range(300)], classes=3, dtype=torch.float64)
    result = fae.sweep(fae.AttentionBatch.from_list(**args), ("product",), backend="reference")
    assert (result.prefixes.first_flip[0] > result.minimal.size).any()


def test_minimal_ranking_flips_at_the_minimal_size() -> None:
    args = ragged([1 + i % 30 for i in range(200)], classes=4, dtype=torch.float64)
    result = fae.sweep(fae.AttentionBatch.from_list(**args), ("minimal",), backend="reference")
    tied = result.prefixes.status & int(fae.Status.NEAR_TIE) != 0
    assert torch.equal(result.prefixes.first_flip[0][~tied], result.minimal.size[~tied])


@pytest.mark.parametrize("keep", [False, True])
def test_judge_finds_what_is_wrong(keep: bool) -> None:
    """Every result, changed a little, makes the judge complain: the net has no holes."""
    case = Case("judge", lengths=(9, 4, 30), keep=keep)
    built = build(case)
    problem = built.problem
    out = allocate(problem, wanted(case), float("nan"))
    REFERENCE.sweep(problem, out)
    Judge(built, out).judge()
    for name in vars(out):
        tensor = getattr(out, name)
        kept = tensor.clone()
        if name in ("order", "minimal_order"):
            tensor[..., [9, 12]] = tensor[..., [12, 9]]
            if torch.equal(tensor, kept):
                continue
        elif tensor.is_floating_point():
            tensor[..., -1] += 1e-3
        else:
            tensor[..., -1] += 1
        with pytest.raises(AssertionError):
            Judge(built, out).judge()
        tensor.copy_(kept)
    Judge(built, out).judge()


def test_given_orders_reproduce_named_rankings() -> None:
    case = Case("given", lengths=(9, 4, 30))
    built = build(case)
    named = allocate(built.problem, wanted(case), float("nan"))
    REFERENCE.sweep(built.problem, named)
    given = on_orders(built.problem, named.order)
    out = allocate(given, wanted(case), float("nan"))
    REFERENCE.sweep(given, out)
    assert torch.equal(named.first_flip, out.first_flip)
    assert torch.equal(named.curve_js, out.curve_js)
