"""What broke neighbouring programs: each test bears the ids of its rows in the list of cases.

Rows about determinism, errors, memory and torch are in the files of those names.
"""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fastattnerase as fae
from contract.cases import CASES, Caps
from contract.harness import Runner
from contract.public import assert_equal, everything, instance_results, one, ragged

NAN, INF = math.nan, math.inf
EMPTY, ZERO_MASS, NON_FINITE = (
    int(fae.Status.EMPTY),
    int(fae.Status.ZERO_MASS),
    int(fae.Status.NON_FINITE),
)


ROWS = {
    "B": "01 02 04 05 07 08 10 11 13 14 16 17 22 25 28 29 34 38 40 41 43 44 49 52 55 56 58 59 61 "
    "62 64 65 67 68 70 92 94 95 97 98 100 101",
    "S": "01 04 05 10 12 13 20 23 25 26",
}


def asserts(function: ast.FunctionDef) -> bool:
    """Whether a function holds an assertion of something, or says what has to be raised."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Call) and re.fullmatch(
            r"(torch\.testing\.)?assert_\w+|pytest\.raises", ast.unparse(node.func)
        ):
            return True
    return False


def test_every_row_has_a_test_that_asserts() -> None:
    trees = [ast.parse(path.read_text()) for path in Path(__file__).parent.glob("test_*.py")]
    tests = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    named = {part for test in tests if asserts(test) for part in test.name.split("_")}
    rows = [letter + n for letter, numbers in ROWS.items() for n in numbers.split()]
    assert not [row for row in rows if row not in named]


@pytest.mark.parametrize("body", ["pass", "...", "assert True", "x = assert_that"])
def test_a_test_that_asserts_nothing_is_none(body: str) -> None:
    function = ast.parse(f"def test_B01(): {body}").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert not asserts(function)


def fast(runner: Runner) -> bool:
    """Whether the backend runs at full size here."""
    return runner.caps == Caps() or runner.name == "reference"


# Masks, empty sets, NaN.


@pytest.mark.parametrize("how", ["length", "mask", "mask and length"])
def test_B01_B05_an_empty_instance_is_visible_and_alone(runner: Runner, how: str) -> None:
    args = ragged([4, 4], device=runner.device)
    values, scores = torch.stack(args["values"]), torch.stack(args["scores"])
    heads = {k: args[k] for k in ("head_weight", "head_bias")}
    full = torch.ones(2, 4, dtype=torch.bool, device=runner.device)
    mask, lengths = full.clone(), torch.tensor([4, 4], device=runner.device)
    if how == "length":
        lengths[1] = 0
    elif how == "mask":
        mask[1] = False
    else:  # each alone leaves items, both together none
        mask[1, :2] = False
        lengths[1] = 2
    batch = fae.AttentionBatch.from_padded(
        values, scores=scores, lengths=lengths, mask=mask, **heads
    )
    got = everything(batch, runner)
    assert got.prefixes.status.tolist() == [int(got.prefixes.status[0]), EMPTY]
    assert not int(got.prefixes.status[0]) & EMPTY
    assert int(got.prefixes.label[1]) == int(args["head_bias"].argmax())
    assert (got.prefixes.first_flip[:, 1] == -1).all()
    alone = fae.AttentionBatch.from_padded(
        values[:1], scores=scores[:1], lengths=lengths[:1], **heads
    )
    want = instance_results(everything(alone, runner), 0)
    assert_equal(want, instance_results(got, 0), "beside an empty instance")


def test_B02_a_high_masked_score_leaves_the_others_their_weight(runner: Runner) -> None:
    """Scores [1, 1, 100] with the third masked: weights 0.5, 0.5, 0."""
    for scores, mask in (([1.0, 1.0, 100.0], True), ([1.0, 1.0, -INF], False)):
        kept = torch.tensor([[True, True, not mask]], device=runner.device)
        batch = fae.AttentionBatch.from_padded(
            torch.eye(3, device=runner.device)[None],
            scores=torch.tensor([scores], device=runner.device),
            mask=kept,
            head_weight=torch.eye(3, device=runner.device),
        )
        order = torch.arange(batch.num_items, device=runner.device)
        mass = fae.erase_prefixes(batch, order, curves=("mass", "logits"), backend=runner.name)
        assert mass.curves["mass"][0, :3].tolist() == [1.0, 0.5, 0.0]
        assert mass.curves["logits"][0, 0].tolist() == [0.5, 0.5, 0.0]


def test_B04_a_row_of_the_lowest_finite_score_is_uniform(runner: Runner) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        low = torch.finfo(dtype).min
        batch = one(runner, [[1.0], [2.0], [3.0], [6.0]], scores=[low] * 4, dtype=dtype)
        result = fae.erase_prefixes(batch, "attention", curves=("mass", "js"), backend=runner.name)
        assert result.curves["mass"][0].tolist() == [1.0, 0.75, 0.5, 0.25, 0.0]
        assert result.curves["js"].isfinite().all()
        assert int(result.status[0]) & ~int(fae.Status.NEAR_TIE) == 0


def test_B07_backends_agree_on_empty_and_masked(runner: Runner) -> None:
    args = ragged([3, 0, 2], device=runner.device)
    args["scores"][2] = torch.full((2,), -INF, device=runner.device)
    got = everything(fae.AttentionBatch.from_list(**args), runner)
    want = everything(fae.AttentionBatch.from_list(**args).to("cpu"), runner_of("reference"))
    assert got.prefixes.status.tolist() == want.prefixes.status.tolist()
    assert int(got.prefixes.status[1]) == EMPTY
    assert int(got.prefixes.status[2]) == ZERO_MASS
    assert torch.equal(got.prefixes.label.cpu(), want.prefixes.label)


def runner_of(name: str) -> Runner:
    from contract.runners import load

    return load(name, torch.cuda.is_available())


@pytest.mark.parametrize("constant", [-1e4, -65504.0, -1e9, -1e20])
def test_B08_mask_constants_in_half_precision(runner: Runner, constant: float) -> None:
    """In float16 the constant may have become -inf: the flips and the mass are those of float32."""
    scores = torch.tensor([0.5, constant, -1.25, constant, 0.75])
    values = torch.tensor([[2.0, 0.0], [0.0, 9.0], [0.0, 1.0], [9.0, 0.0], [0.0, 1.5]])
    found = []
    for dtype in (torch.float32, torch.float16):
        batch = fae.AttentionBatch(
            values.to(runner.device),
            torch.tensor([0, 5], device=runner.device),
            scores=scores.to(dtype).to(runner.device),
            head_weight=torch.eye(2, device=runner.device),
        )
        order = torch.tensor([4, 2, 0, 1, 3], device=runner.device)
        result = fae.erase_prefixes(batch, order, curves=("mass",), backend=runner.name)
        found.append(result)
    assert found[0].label.tolist() == found[1].label.tolist()
    assert found[0].first_flip.tolist() == found[1].first_flip.tolist()
    torch.testing.assert_close(found[0].curves["mass"], found[1].curves["mass"], atol=1e-12, rtol=0)


def test_B10_gradient_ranking_beside_an_empty_instance(runner: Runner) -> None:
    args = ragged([4, 0, 3], device=runner.device)
    result = everything(fae.AttentionBatch.from_list(**args), runner)
    row = result.prefixes.rankings.index("gradient")
    for b in (0, 2):
        points = slice(*(result.prefixes.curve_offsets[b : b + 2].tolist()))
        assert result.prefixes.curves["js"][row, points].isfinite().all()
        alone = fae.AttentionBatch.from_list(
            **args | {"values": [args["values"][b]], "scores": [args["scores"][b]]}
        )
        again = everything(alone, runner, rankings=("gradient",))
        assert again.prefixes.first_flip[0, 0] == result.prefixes.first_flip[row, b]


def test_B13_B16_constant_scores_and_a_head_of_zeros(runner: Runner) -> None:
    """Nothing is undefined: ties go by position, nothing ever flips, divergences are zero."""
    batch = one(
        runner, [[1.0], [2.0], [3.0]], scores=[0.5, 0.5, 0.5], head=((0.0,), (0.0,)), bias=(0.25, 0)
    )
    result = everything(batch, runner)
    assert (result.prefixes.first_flip == -1).all()
    assert (result.prefixes.curves["js"] == 0).all()
    assert result.prefixes.fraction.isnan().all()
    assert result.prefixes.removed_mass.isnan().all()
    assert int(result.minimal.size[0]) == -1
    for ranking in ("attention", "gradient", "product", "renormalized_gradient"):
        assert fae.rank(batch, ranking, backend=runner.name).tolist() == [0, 1, 2], ranking


def test_B17_S20_signed_scores_are_ranked_by_value(runner: Runner) -> None:
    batch = one(runner, [[1.0], [2.0], [3.0]], weights=[1.0, 1.0, 1.0])
    for scores, expected in (([-3.0, 1.0, 2.0], [2, 1, 0]), ([-1.0, -2.0, -3.0], [0, 1, 2])):
        keys = torch.tensor(scores, device=runner.device)
        assert fae.rank(batch, keys, backend=runner.name).tolist() == expected
        result = fae.erase_prefixes(batch, keys, curves=("js",), backend=runner.name)
        assert result.curves["js"].shape == (1, 4)


# Direction.


def test_B22_erasing_and_keeping_the_item_that_decides(runner: Runner) -> None:
    """Item 0 alone decides: erased first it flips at once, kept first it suffices at once."""
    batch = one(
        runner,
        [[9.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]],
        weights=[1.0, 1.0, 1.0, 1.0],
        head=((1.0, 0.0), (0.0, 1.0)),
    )
    first = torch.tensor([0, 1, 2, 3], device=runner.device)
    last = torch.tensor([1, 2, 3, 0], device=runner.device)
    options = {"curves": ("label_prob",), "backend": runner.name}
    erase = fae.erase_prefixes(batch, [first, last], direction="erase", **options)
    keep = fae.erase_prefixes(batch, [first, last], direction="keep", **options)
    # Four items of weight 1/4: [9/4, 3/4], and [9, 0] once the others have gone.
    assert erase.label.tolist() == [0]
    assert erase.first_flip.tolist() == [[1], [-1]]  # b = 0: the tie at the end goes to class 0
    assert keep.first_flip.tolist() == [[1], [4]]
    assert keep.flip_label.tolist() == [[0], [0]]
    assert keep.removed_mass.tolist() == [[0.75], [0.0]]
    drop = erase.curves["label_prob"][:, 0] - erase.curves["label_prob"][:, 1]
    assert drop[0] > 0.5
    assert drop[1] < 0


def test_B38_S23_lists_of_unequal_lengths(runner: Runner) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(n, 4)).astype(np.float32) for n in (3, 5, 1)]
    batch = fae.AttentionBatch.from_list(
        values=[torch.from_numpy(a).to(runner.device) for a in arrays],
        scores=[torch.zeros(len(a), device=runner.device) for a in arrays],
        head_weight=torch.eye(2, 4, device=runner.device),
    )
    result = fae.erase_prefixes(batch, ["attention"], curves=("js",), backend=runner.name)
    assert result.curve_offsets.tolist() == [0, 4, 10, 12]
    assert batch.lengths.tolist() == [3, 5, 1]


def test_B40_shapes_are_taken_or_refused_by_name() -> None:
    offsets, head = torch.tensor([0, 4]), torch.eye(2, 3)
    values = torch.ones(4, 3)
    for wrong in (torch.ones(4), torch.ones(1, 1, 4, 3)):
        with pytest.raises(ValueError, match="values"):
            fae.AttentionBatch(wrong, offsets, weights=torch.ones(4), head_weight=head)
    for wrong in (torch.ones(1, 4), torch.ones(4, 1), torch.ones(4, 2)):
        with pytest.raises(ValueError, match="weights"):
            fae.AttentionBatch(values, offsets, weights=wrong, head_weight=head)
    padded = torch.ones(2, 4, 3)
    for wrong in (torch.ones(2, 4, 1), torch.ones(4), torch.ones(8)):
        with pytest.raises(ValueError, match="scores"):
            fae.AttentionBatch.from_padded(padded, scores=wrong, head_weight=head)


@pytest.mark.parametrize(
    "head",
    [
        lambda pooled, instance: pooled.new_zeros(()),
        lambda pooled, instance: pooled.new_zeros(2),
        lambda pooled, instance: pooled.new_zeros(1, 2),
        lambda pooled, instance: pooled.new_zeros(len(pooled) + 1, 2),
        lambda pooled, instance: [0.0] * len(pooled),
    ],
)
def test_B41_a_head_that_does_not_grow_with_the_batch_is_refused(runner: Runner, head) -> None:
    batch = fae.AttentionBatch(
        torch.ones(4, 3, device=runner.device),
        torch.tensor([0, 3, 4], device=runner.device),
        weights=torch.ones(4, device=runner.device),
        head=head,
    )
    with pytest.raises((ValueError, TypeError), match=r"\bhead\b"):
        fae.erase_prefixes(batch, "attention", backend=runner.name)


# Work.


def test_B43_S12_as_many_prefixes_as_items(runner: Runner) -> None:
    n = 5000 if fast(runner) else 100
    args = ragged([n], device=runner.device)
    result = fae.erase_prefixes(
        fae.AttentionBatch.from_list(**args), "attention", curves=("mass",), backend=runner.name
    )
    mass = result.curves["mass"][0]
    assert len(mass) == n + 1
    assert (mass.diff() <= 0).all()


def test_B44_a_batch_is_one_call_of_the_backend(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch argument is no loop: all instances and rankings reach the backend at once."""
    calls = []
    native = type(runner.backend).sweep

    def counted(self, problem, out) -> None:
        calls.append(len(problem.ids))
        native(self, problem, out)

    monkeypatch.setattr(type(runner.backend), "sweep", counted)
    count = min(30, runner.caps.instances)
    args = ragged([3] * count, device=runner.device)
    fae.sweep(
        fae.AttentionBatch.from_list(**args),
        ("random", "attention", "product"),
        random_orders=3,
        backend=runner.name,
    )
    assert calls == [count]


# Ties, order.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_B55_tied_logits_go_to_the_lowest_class(runner: Runner, dtype: torch.dtype) -> None:
    """[2, 3, 0, 3, 3]: class 1, originally, after erasure and where only the bias is left."""
    logits = [2.0, 3.0, 0.0, 3.0, 3.0]
    eye = torch.eye(5).tolist()
    batch = one(runner, [logits] * 4, weights=[1.0] * 4, head=eye, dtype=dtype)
    result = fae.sweep(batch, "attention", curves=("decision",), backend=runner.name)
    # No mass leaves the zero bias, whose lowest class is 0.
    assert result.prefixes.curves["decision"].tolist() == [[1, 1, 1, 1, 0]]
    assert result.prefixes.first_flip.tolist() == [[4]]
    assert result.minimal.size.tolist() == [4]
    biased = one(runner, [[0.0] * 5] * 4, weights=[1.0] * 4, head=eye, bias=logits, dtype=dtype)
    result = fae.sweep(biased, "attention", curves=("decision",), backend=runner.name)
    assert result.prefixes.curves["decision"].tolist() == [[1] * 5]


def test_B55_a_tie_flips_to_a_lower_class_and_not_to_a_higher(runner: Runner) -> None:
    eye = torch.eye(2).tolist()
    # Erasing item 0 leaves [1, 1].
    for values, label, flips in (
        ([[0.0, 4.0], [1.0, 1.0], [1.0, 1.0]], 1, 1),
        ([[4.0, 0.0], [1.0, 1.0], [1.0, 1.0]], 0, -1),
    ):
        batch = one(runner, values, weights=[2.0, 1.0, 1.0], head=eye)
        result = fae.sweep(batch, "attention", backend=runner.name)
        assert result.prefixes.label.tolist() == [label]
        assert result.prefixes.first_flip.tolist() == [[flips]]
        assert result.minimal.size.tolist() == [flips]
        assert result.single.flip.tolist() == [flips == 1, False, False]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([1.0, 2.0, 3.0, 3.0, 2.0, 1.0], [2, 3, 1, 4, 0, 5]),
        ([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0], [5, 7, 4, 8, 2, 0, 6, 1, 3]),
        ([0.0, -0.0, 0.0, -0.0], [0, 1, 2, 3]),
        ([-INF, INF, -INF, INF, 0.0], [1, 3, 4, 0, 2]),
    ],
)
def test_B56_B62_ties_go_by_position(
    runner: Runner, keys: list[float], expected: list[int]
) -> None:
    for dtype in (torch.float32, torch.float64):
        n = len(keys)
        given = torch.tensor(keys, dtype=dtype, device=runner.device)
        batch = one(runner, [[1.0]] * n, weights=[1.0] * n)
        assert fae.rank(batch, given, backend=runner.name).tolist() == expected
        if given.isfinite().all():
            scored = one(runner, [[1.0]] * n, scores=keys)
            assert fae.rank(scored, "attention", backend=runner.name).tolist() == expected


def test_B62_a_long_run_of_ties_keeps_its_order(runner: Runner) -> None:
    n = 20_000 if fast(runner) else 140
    keys = (torch.arange(n) * 7919 % 5).double()
    expected = torch.from_numpy(np.argsort(-keys.numpy(), kind="stable"))
    batch = fae.AttentionBatch(
        torch.ones(n, 1, device=runner.device),
        torch.tensor([0, n], device=runner.device),
        scores=keys.float().to(runner.device),
        head_weight=torch.tensor([[1.0], [0.0]], device=runner.device),
    )
    assert torch.equal(fae.rank(batch, "attention", backend=runner.name).cpu(), expected)
    given = fae.rank(batch, keys.to(runner.device), backend=runner.name)
    assert torch.equal(given.cpu(), expected)


def test_B59_one_hot_and_zero_one_attention(runner: Runner) -> None:
    values = [[1.0, 0.0], [0.0, 5.0], [0.0, 1.0], [3.0, 0.0]]
    eye = torch.eye(2).tolist()
    hot = fae.sweep(
        one(runner, values, weights=[0.0, 0.0, 1.0, 0.0], head=eye, bias=[0.5, 0.0]),
        "attention",
        curves=("mass", "decision"),
        backend=runner.name,
    )
    assert hot.prefixes.label.tolist() == [1]
    assert hot.prefixes.curves["mass"].tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0]]
    assert hot.prefixes.first_flip.tolist() == [[1]]
    assert hot.minimal.size.tolist() == [1]
    assert hot.minimal.order.tolist() == [2, 0, 1, 3]
    assert hot.single.flip.tolist() == [False, False, True, False]
    half = fae.sweep(
        one(runner, values, weights=[1.0, 1.0, 0.0, 0.0], head=eye),
        "attention",
        curves=("mass", "decision"),
        backend=runner.name,
    )
    # [1, 0] and [0, 5] have half each; erasing item 0 keeps class 1, both leave the zero bias.
    assert half.prefixes.label.tolist() == [1]
    assert half.prefixes.curves["decision"].tolist() == [[1, 1, 0, 0, 0]]
    assert half.minimal.order.tolist()[:2] == [1, 0]
    assert half.minimal.size.tolist() == [1]


# Numbers.


@pytest.mark.parametrize(
    "logits",
    [[0.0, -INF], [1e4, -1e4], [0.0, -745.0], [3e38, -3e38], [0.0, 88.0], [1e-40, 0.0]],
)
def test_B64_S05_divergences_stay_finite_and_within_bounds(
    runner: Runner, logits: list[float]
) -> None:
    """Subnormal and vanishing probabilities: JS in [0, ln 2], never NaN for finite logits."""
    finite = [max(x, -3.4e38) for x in logits]
    batch = one(runner, [finite, [0.0, 0.0]], weights=[1.0, 1.0], head=torch.eye(2).tolist())
    result = fae.sweep(batch, "attention", curves=("js", "kl", "label_prob"), backend=runner.name)
    js, kl = result.prefixes.curves["js"], result.prefixes.curves["kl"]
    assert js.isfinite().all()
    assert ((js >= 0) & (js <= np.float32(math.log(2)))).all()
    assert (kl >= 0).all()
    assert not kl.isnan().any()
    assert ((result.single.js >= 0) & (result.single.js <= np.float32(math.log(2)))).all()


def test_S05_an_infinite_logit_is_reported(runner: Runner) -> None:
    batch = one(runner, [[1.0, 0.0]], weights=[1.0], head=torch.eye(2).tolist(), bias=[0.0, -INF])
    result = fae.sweep(batch, "attention", curves=("js",), backend=runner.name)
    assert int(result.prefixes.status[0]) & NON_FINITE
    assert result.prefixes.curves["js"].isnan().all()


def test_B65_weights_that_do_not_sum_to_one_are_divided_by_their_sum(runner: Runner) -> None:
    head = ((1.0, 0.0), (0.0, 1.0))
    results = [
        fae.sweep(
            one(runner, [[4.0, 0.0], [0.0, 1.0], [0.0, 2.0]], weights=w, head=head),
            "attention",
            curves=("mass", "js"),
            backend=runner.name,
        ).prefixes
        for w in ([0.5, 0.25, 0.25], [8.0, 4.0, 4.0])
    ]
    assert torch.equal(results[0].curves["js"], results[1].curves["js"])
    assert results[1].curves["mass"].tolist() == [[1.0, 0.5, 0.25, 0.0]]
    assert results[1].removed_mass.tolist() == [[0.5]]


@pytest.mark.parametrize("scale", [1e10, 1e-10])
def test_B67_scaled_items(runner: Runner, scale: float) -> None:
    """Decisions do not move, logits scale, to float32's precision."""
    args = ragged([120 if fast(runner) else 40], dtype=torch.float64, device=runner.device)
    args["head_bias"] = torch.zeros(3, device=runner.device)
    options = {"rankings": ("attention",), "curves": ("logits",), "backend": runner.name}
    base = fae.erase_prefixes(fae.AttentionBatch.from_list(**args), **options)
    values = args["values"]
    for dtype in (torch.float32, torch.float64):
        args["values"] = [(v * scale).to(dtype) for v in values]
        got = fae.erase_prefixes(fae.AttentionBatch.from_list(**args), **options)
        want = base.curves["logits"] * scale
        error = (got.curves["logits"].double() - want).abs().max() / want.abs().max()
        assert error < (1e-6 if dtype == torch.float32 else 1e-12)
        assert torch.equal(got.first_flip, base.first_flip)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_B68_half_precision_items_are_summed_wide(runner: Runner, dtype: torch.dtype) -> None:
    """As many halves of 1 as there are: a float16 sum would stop at 2048 or overflow."""
    n = 100_000 if runner.caps == Caps() else 300
    batch = fae.AttentionBatch(
        torch.ones(n, 2, dtype=dtype, device=runner.device),
        torch.tensor([0, n], device=runner.device),
        weights=torch.ones(n, dtype=dtype, device=runner.device),
        head_weight=torch.tensor([[1.0, 0.5], [0.0, 0.25]], dtype=dtype, device=runner.device),
    )
    order = torch.arange(n, device=runner.device)
    got = fae.erase_prefixes(batch, order, curves=("mass", "logits"), backend=runner.name)
    expected = 1 - torch.arange(n + 1, dtype=torch.float64) / n
    torch.testing.assert_close(got.curves["mass"][0].cpu(), expected, atol=1e-10, rtol=0)
    logits = got.curves["logits"][0, :-1].cpu()
    torch.testing.assert_close(logits, torch.tensor([1.5, 0.25]).expand(n, 2), atol=1e-6, rtol=0)


def test_B70_softmax_of_bfloat16_scores_is_that_of_their_values(runner: Runner) -> None:
    args = ragged([50], spread=3.0, device=runner.device)
    scores = args["scores"][0].bfloat16()
    curves = []
    for s in (scores, scores.float(), scores.double()):
        args["scores"] = [s]
        result = fae.erase_prefixes(
            fae.AttentionBatch.from_list(**args), "attention", curves=("mass",), backend=runner.name
        )
        curves.append(result.curves["mass"])
    assert torch.equal(curves[0], curves[1])
    assert torch.equal(curves[0], curves[2])
    want = 1 - scores.double().softmax(0).sort(descending=True, stable=True).values.cumsum(0)
    torch.testing.assert_close(curves[0][0, 1:], want, atol=1e-12, rtol=0)


# Sizes and layouts.


def test_B92_B94_offsets_beyond_31_bits(runner: Runner) -> None:
    """Elements beyond 2^31 of one tensor, by a row stride in place of the memory.

    Rows lie 2^27 elements apart in a sparse file of which only the rows are touched.
    """
    if runner.device != "cpu":
        rows, width = 6, 8
        stride = (1 << 29) + 8
        room = torch.empty((rows - 1) * stride + width, dtype=torch.bfloat16, device=runner.device)
    else:
        rows, width = 24, 8
        stride = (1 << 27) + 8
        storage = torch.UntypedStorage.from_file(*sparse_file(rows * stride * 2))
        room = torch.empty(0, dtype=torch.bfloat16).set_(storage)
    values = room.as_strided((rows, width), (stride, 1))
    assert (rows - 1) * stride > 1 << 31
    g = torch.Generator().manual_seed(0)
    numbers = torch.randn(rows, width, generator=g).bfloat16().to(runner.device)
    values.copy_(numbers)
    results = []
    for v in (values, numbers):
        batch = fae.AttentionBatch(
            v,
            torch.tensor([0, 3, rows], device=runner.device),
            scores=torch.linspace(0, 1, rows, device=runner.device),
            head_weight=torch.randn(3, width, generator=torch.Generator().manual_seed(1)).to(
                runner.device
            ),
        )
        assert batch.values.stride(0) == v.stride(0)
        results.append(everything(batch, runner))
    for b in range(2):
        want, got = (instance_results(r, b) for r in reversed(results))
        for name in want:
            torch.testing.assert_close(got[name], want[name], rtol=0, atol=0, equal_nan=True)


def sparse_file(size: int) -> tuple[str, bool, int]:
    """Arguments of a mapping as large as asked for that takes no room."""
    import tempfile

    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.truncate(size)
    _SPARSE.append(file.name)
    return file.name, True, size


_SPARSE: list[str] = []


@pytest.fixture(autouse=True)
def _remove_sparse_files():
    import os

    yield
    while _SPARSE:
        os.unlink(_SPARSE.pop())


def _layouts(values: Tensor) -> dict[str, Tensor]:
    n, d = values.shape
    wide = torch.full((n, d + 5), NAN, dtype=values.dtype, device=values.device)
    wide[:, 2 : 2 + d] = values
    strided = torch.full((n, d, 2), NAN, dtype=values.dtype, device=values.device)
    strided[..., 1] = values
    rows = torch.full((3 * n, d), NAN, dtype=values.dtype, device=values.device)
    rows[::3] = values
    return {
        "transposed": values.t().contiguous().t(),
        "columns of a wider table": wide[:, 2 : 2 + d],
        "non-unit last stride": strided[..., 1],
        "every third row": rows[::3],
        "unfolded": values.flatten().unfold(0, d, d),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_B95_any_layout_equals_contiguous(runner: Runner, dtype: torch.dtype) -> None:
    """Transposed, sliced, strided: bit-equal results; and no temporary that dies too early."""
    args = ragged([19], features=9, dtype=dtype, device=runner.device)
    values, scores = args["values"][0], args["scores"][0]
    offsets = torch.tensor([0, 8, 19], device=runner.device)
    heads = {k: args[k] for k in ("head_weight", "head_bias")}
    want = everything(fae.AttentionBatch(values, offsets, scores=scores, **heads), runner)
    wide = torch.stack([scores, scores * 2], 1)
    for name, laid in _layouts(values).items():
        assert torch.equal(laid, values)
        batch = fae.AttentionBatch(
            laid,
            torch.stack([offsets, offsets * 0], 1)[:, 0],
            scores=wide[:, 0],
            head_weight=heads["head_weight"].t().contiguous().t(),
            head_bias=torch.stack([heads["head_bias"]] * 2, 1)[:, 0],
        )
        got = everything(batch, runner)
        for b in range(2):
            x, y = instance_results(want, b), instance_results(got, b)
            for key in x:
                torch.testing.assert_close(
                    x[key], y[key], rtol=0, atol=0, equal_nan=True, msg=f"{name}: {key}"
                )


def test_B95_expanded(runner: Runner) -> None:
    row = torch.tensor([[1.0, -2.0, 0.5]], device=runner.device)
    bias = torch.tensor([[0.25, -0.5]], device=runner.device)
    results = []
    for expand in (True, False):
        values, biases = row.expand(6, 3), bias.expand(2, 2)
        if not expand:
            values, biases = values.contiguous(), biases.contiguous()
        batch = fae.AttentionBatch(
            values,
            torch.tensor([0, 2, 6], device=runner.device),
            scores=torch.zeros(1, device=runner.device).expand(6),
            head_weight=torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], device=runner.device),
            head_bias=biases,
        )
        results.append(everything(batch, runner))
    for b in range(2):
        x, y = (instance_results(r, b) for r in results)
        for key in x:
            torch.testing.assert_close(x[key], y[key], rtol=0, atol=0, equal_nan=True)


def test_B97_seventy_thousand_rankings(runner: Runner) -> None:
    """One instance, 70,000 rows (the 70,000 instances are a case of test_contract.py)."""
    count = 70_000 if runner.caps == Caps() else 30
    batch = one(runner, [[4.0], [-1.0], [-2.0]], weights=[2.0, 1.0, 1.0], head=((1.0,), (0.0,)))
    result = fae.erase_prefixes(batch, "random", random_orders=count, seed=1, backend=runner.name)
    assert result.first_flip.shape == (count, 1)
    # It flips where item 0 goes; where that is last, the bias of zero never flips.
    for first_flip in (1, 2, -1):
        share = float((result.first_flip == first_flip).double().mean())
        assert abs(share - 1 / 3) < 4 * (2 / 9 / count) ** 0.5
    some = fae.erase_prefixes(batch, "random", random_orders=7, seed=1, backend=runner.name)
    assert torch.equal(some.first_flip, result.first_flip[:7])


def test_B98_nothing_at_all(runner: Runner) -> None:
    """A batch of 0, all lengths 0, no rankings, no items with rankings."""
    head = torch.eye(2, 3, device=runner.device)
    for offsets in ([0], [0, 0], [0, 0, 0, 0]):
        batch = fae.AttentionBatch(
            torch.zeros(0, 3, device=runner.device),
            torch.tensor(offsets, device=runner.device),
            scores=torch.zeros(0, device=runner.device),
            head_weight=head,
        )
        b = len(offsets) - 1
        result = everything(batch, runner)
        r = len(result.prefixes.rankings)
        assert result.prefixes.first_flip.shape == (r, b)
        assert result.prefixes.curves["logits"].shape == (r, b, 2)
        assert result.prefixes.curves["js"].tolist() == [[0.0] * b] * r
        assert result.minimal.size.tolist() == [-1] * b
        assert result.single.js.shape == (0,)
        assert result.prefixes.status.tolist() == [EMPTY] * b
        none = fae.erase_prefixes(batch, (), backend=runner.name)
        assert none.first_flip.shape == (0, b)


def test_B101_the_sizes_of_the_row() -> None:
    widths = {c.features for c in CASES.values()}
    classes = {c.classes for c in CASES.values()}
    assert {1, 3, 127, 513, 4096, 8192} <= widths
    assert {1, 2, 1000} <= classes


# Defects seen in peers' source.


def test_S01_sign_of_the_gradient_times_attention(runner: Runner) -> None:
    """Keys [0.5, -0.2, 0.1] rank 0, 2, 1: the sign is of the gradient, the order descending."""
    batch = one(runner, [[1.0]] * 3, weights=[0.5, 0.2, 0.1])
    sign = torch.tensor([1.0, -1.0, 1.0], device=runner.device)
    keys = sign * torch.tensor([0.5, 0.2, 0.1], device=runner.device)
    assert fae.rank(batch, keys, backend=runner.name).tolist() == [0, 2, 1]
    # The same by the engine: y = 0 with gradients of signs +, -, + and weights 0.5, 0.2, 0.1.
    signed = one(runner, [[1.0], [-1.0], [1.0]], weights=[0.5, 0.2, 0.1])
    assert fae.rank(signed, "product", backend=runner.name).tolist() == [0, 2, 1]
    assert fae.rank(signed, "gradient", backend=runner.name).tolist() == [0, 2, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_S04_what_is_left_far_below_one_ulp_is_scaled_up(
    runner: Runner, dtype: torch.dtype
) -> None:
    """a = [1, 1e-20, 1e-20], item 0 erased: the mean of the last two."""
    batch = one(
        runner,
        [[8.0, 0.0], [0.0, 1.0], [0.0, 3.0]],
        weights=[1.0, 1e-20, 1e-20],
        head=((1.0, 0.0), (0.0, 1.0)),
        dtype=dtype,
    )
    result = fae.sweep(batch, "attention", curves=("logits",), backend=runner.name)
    torch.testing.assert_close(
        result.prefixes.curves["logits"][0].double().cpu(),
        torch.tensor([[8.0, 0.0], [0.0, 2.0], [0.0, 3.0], [0.0, 0.0]], dtype=torch.float64),
        rtol=0,
        atol=1e-6,
    )
    assert result.prefixes.first_flip.tolist() == [[1]]
    assert result.single.flip.tolist() == [True, False, False]
    # What is left when item 0 goes is half and half, whatever 1 - a_0 says.
    expected = js_of([8.0, 0.0], [0.0, 2.0])
    assert float(result.single.js[0]) == pytest.approx(expected, abs=1e-6)


def js_of(p: list[float], q: list[float]) -> float:
    a, b = (np.exp(np.array(z) - max(z)) for z in (p, q))
    a, b = a / a.sum(), b / b.sum()
    m = (a + b) / 2
    return float((a * np.log(a / m) + b * np.log(b / m)).sum() / 2)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_S10_a_bad_item_leaves_no_trace_once_erased(runner: Runner, bad: float) -> None:
    values = [[2.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, 0.5]]
    eye = torch.eye(2).tolist()
    spoilt = [list(v) for v in values]
    spoilt[1][0] = bad
    order = torch.tensor([1, 0, 2, 3], device=runner.device)
    got, want = (
        fae.sweep(
            one(runner, v, weights=[1.0] * 4, head=eye),
            [order],
            curves=("logits", "decision", "js", "mass"),
            backend=runner.name,
        )
        for v in (spoilt, values)
    )
    assert int(got.prefixes.status[0]) & NON_FINITE
    assert int(got.prefixes.label[0]) == -1
    assert got.prefixes.first_flip.tolist() == [[-1]]
    assert got.prefixes.curves["logits"][0, 0].isnan().all()
    assert torch.equal(got.prefixes.curves["logits"][0, 1:], want.prefixes.curves["logits"][0, 1:])
    assert got.prefixes.curves["decision"].tolist() == [[-1, 0, 0, 1, 0]]
    assert torch.equal(got.prefixes.curves["mass"], want.prefixes.curves["mass"])
    assert got.prefixes.curves["js"].isnan().all()
    assert got.minimal.size.tolist() == [-1]
    assert got.single.flip.tolist() == [False] * 4


def test_S25_peaked_attention_at_every_prefix(runner: Runner) -> None:
    """n = 1000, score deviation 4 and 12: logits within 1e-5 of float64, at every prefix."""
    n = 1000 if fast(runner) else 120
    g = torch.Generator().manual_seed(3)
    for deviation in (4.0, 12.0):
        scores = torch.randn(n, generator=g) * deviation
        values, head = torch.randn(n, 8, generator=g), torch.randn(3, 8, generator=g)
        batch = fae.AttentionBatch(
            values.to(runner.device),
            torch.tensor([0, n], device=runner.device),
            scores=scores.to(runner.device),
            head_weight=head.to(runner.device),
        )
        order = fae.rank(batch, "attention", backend=runner.name)
        got = fae.erase_prefixes(batch, order, curves=("logits",), backend=runner.name)
        by_rank = order.cpu()
        for k in range(0, n, 37 if fast(runner) else 7):
            left = by_rank[k:]
            exact = scores[left].double().softmax(0) @ (values[left].double() @ head.double().T)
            torch.testing.assert_close(
                got.curves["logits"][0, k].double().cpu(), exact, rtol=1e-5, atol=1e-5
            )


def test_S26_bfloat16_weights_sum_to_one_and_tie_by_position(runner: Runner) -> None:
    """bfloat16 softmax of 1000 scores: few distinct weights, sum off by 0.002; divided, stable."""
    n = 1000 if runner.caps == Caps() else 140
    g = torch.Generator().manual_seed(4)
    weights = torch.randn(n, generator=g).softmax(0).bfloat16()
    assert len(weights.unique()) < n
    batch = fae.AttentionBatch(
        torch.randn(n, 4, generator=g).to(runner.device),
        torch.tensor([0, n], device=runner.device),
        weights=weights.to(runner.device),
        head_weight=torch.randn(3, 4, generator=g).to(runner.device),
    )
    expected = np.argsort(-weights.double().numpy(), kind="stable")
    order = fae.rank(batch, "attention", backend=runner.name)
    assert order.tolist() == expected.tolist()
    mass = fae.erase_prefixes(batch, order, curves=("mass",), backend=runner.name).curves["mass"]
    assert float(mass[0, 0]) == pytest.approx(1.0, abs=1e-12)
    share = weights.double() / weights.double().sum()
    assert float(mass[0, 1]) == pytest.approx(1 - float(share.max()), abs=1e-12)
