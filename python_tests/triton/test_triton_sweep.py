"""The Triton backend as a whole: against the reference, against itself, and what it refuses."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import fields, replace
from importlib import import_module

import pytest
import torch
from sweep_problems import DEVICE, EVERY, K, assert_as_reference, problem, run, same
from torch import Tensor

from fastattnerase.backends.triton import BACKEND
from fastattnerase.problem import RESULTS, Problem

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NaN in the interpreter
adapter = import_module("fastattnerase.backends.triton")
NAN, INF = float("nan"), float("inf")


def kl_of_logits(new: float, old: float) -> float:
    """KL(q || p) of two classes whose logits are (0, new) for q and (0, old) for p."""
    q, p = 1 / (1 + math.exp(-new)), 1 / (1 + math.exp(-old))
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def test_hand_worked_prefixes() -> None:
    """Two classes, values that are the class-1 logit; weights 1/2, 1/4, 1/8, 1/8.

    Margins of class 0 against 1: label 1 while the weighted sum of values is positive. Erasing by
    position: (2 - 1 - .5 + 0)/1 = .5; (-1 - .5)/.5; -.5/.25; 0: tie, class 0; nothing left: bias.
    """

    def change(tensors: dict[str, Tensor]) -> None:
        tensors["values"][:, 0, 0] = torch.tensor([4.0, -4.0, -4.0, 0.0])
        tensors["attention"][:, 0] = torch.tensor([4.0, 2.0, 1.0, 1.0])
        tensors["head_weight"][:, 0, 0] = torch.tensor([0.0, 1.0])
        tensors["head_bias"][:] = torch.tensor([0.0, 0.0])
        tensors["order"][:] = torch.arange(4)

    given = problem([4], 1, 2, scores=False, rankings=(K.GIVEN_ORDER,), change=change)
    out = run(given)
    assert out.label.tolist() == [1]
    assert out.curve_decision.tolist() == [[1, 0, 0, 0, 0]]
    assert out.curve_mass.tolist() == [[1, 0.5, 0.25, 0.125, 0]]
    logits = out.curve_logits[0, :, 1]
    assert logits.tolist() == pytest.approx([0.5, -3.0, -2.0, 0.0, 0.0])
    assert (out.first_flip.item(), out.flip_label.item(), out.removed_mass.item()) == (1, 0, 0.5)
    assert (out.minimal_size.item(), out.minimal_flip_label.item()) == (1, 0)
    assert out.single_flip_label.tolist() == [0, -1, -1, -1]
    assert out.logits.tolist() == [[0.0, 0.5]]
    assert out.weights.tolist() == [[0.5], [0.25], [0.125], [0.125]]
    # Without an item: -1.5 / .5, 1.5 / .75, 1 / .875 and .5 / .875.
    expected = [kl_of_logits(z, 0.5) for z in (-3.0, 2.0, 8 / 7, 4 / 7)]
    assert out.single_kl.tolist() == pytest.approx(expected, rel=1e-6)

    kept = run(replace(given, keep=True))
    assert kept.curve_decision.tolist() == [[0, 1, 1, 1, 1]]
    assert (kept.first_flip.item(), kept.flip_label.item(), kept.removed_mass.item()) == (1, 1, 0.5)


def test_original_and_singles_where_nothing_flips() -> None:
    """Empty, a bad value, a bad score, a score of -inf, and scores of -inf alone."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors["values"][1] = INF
        tensors["attention"][:, 0] = torch.tensor([1.0, 1, NAN, 1, 2, -INF, -INF, -INF])
        tensors["values"][4:] = 1.0
        tensors["head_weight"][:] = torch.eye(2)[:, None]
        tensors["head_bias"][:] = torch.tensor([0.25, 0.5])

    given = problem([0, 2, 2, 2, 2], 2, 2, rankings=(), change=change)
    out = run(given)
    assert out.status.tolist() == [1, 8, 8, 0, 4]
    bias, nan = [0.25, 0.5], [NAN, NAN]
    logits = torch.tensor([bias, nan, nan, [1.25, 1.5], bias])
    torch.testing.assert_close(out.logits.cpu(), logits, rtol=0, atol=0, equal_nan=True)
    weights = torch.tensor([0.5, 0.5, NAN, 1, 1, 0, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(out.weights[:, 0].cpu(), weights, rtol=0, atol=0, equal_nan=True)
    # Without the only weight the bias decides, by as much as before.
    kl = torch.tensor([NAN, NAN, NAN, NAN, 0, 0, 0, 0])
    torch.testing.assert_close(out.single_kl.cpu(), kl, rtol=0, atol=1e-15, equal_nan=True)


def by_hand(
    values: list[float], head: list[float], order: list[int] | None = None, keep: bool = False
) -> Problem:
    """One instance of items that weigh the same, each of one value, and no biases."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors["values"][:, 0, 0] = torch.tensor(values)
        tensors["attention"].fill_(1)
        tensors["head_weight"][:, 0, 0] = torch.tensor(head)
        tensors["head_bias"].zero_()
        tensors["order"][:] = torch.tensor(order or range(len(values)))

    return problem(
        [len(values)], 1, 2, scores=False, rankings=(K.GIVEN_ORDER,), keep=keep, change=change
    )


@pytest.mark.parametrize(("head", "first"), [([0.0, 1.0], 1), ([1.0, 0.0], 2)])
def test_a_tie_is_the_lower_class(head: list[float], first: int) -> None:
    """1 + 1 - 1, then 1 - 1, then -1: the tie flips to class 0, not from it."""
    out = run(by_hand([1.0, 1.0, -1.0], head))
    assert (out.first_flip.item(), out.minimal_size.item(), out.status.item()) == (first, first, 32)


@pytest.mark.parametrize("keep", [False, True])
def test_a_tie_behind_the_first_flip_is_none(keep: bool) -> None:
    """Erasing: sums 3, -1 (flips), 0, 1. Keeping: 1 (flips), 0, 1, 2."""
    given = by_hand([1.0, -1, 1, 1] if keep else [4.0, -1, -1, 1], [1.0, -1.0], keep=keep)
    few = replace(run(given), **{f"minimal_{x}": None for x in ("size", "flip_label", "order")})
    few = replace(few, **{f"single_{x}": None for x in ("flip_label", "js", "kl", "drop")})
    BACKEND.sweep(given, few)
    assert (few.first_flip.item(), few.status.item()) == (1, 0)


def test_everything_kept_is_the_label_whatever_the_order_rounds_to() -> None:
    """2^53 + 1 - 2^53 + 3 - 3, each by 1/8: 0 by position, a tie; 3 first, every sum is above."""
    given = by_hand(
        [2.0**53, 1, -(2.0**53), 0, 3, -3, 0, 0], [0.0, 1], [4, 0, 2, 1, 3, 5, 6, 7], keep=True
    )
    out = run(given)
    assert out.curve_decision[0, 8].item() == out.label.item()
    # A GPU may add up in an order that is no tie; then class 1 is the label from the first item on.
    assert out.first_flip.item() == (8 if out.label.item() == 0 else 1)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.long_where(these=lambda p: p["scores"] != p["keep"])
def test_all_rankings_and_results(scores: bool, keep: bool) -> None:
    # 45 items are more than a one-warp tile of three classes, 133 more than a four-warp tile.
    assert_as_reference(problem([5, 0, 1, 45, 133], scores=scores, keep=keep, own_bias=keep))


@pytest.mark.parametrize(
    ("dtype", "classes"),
    [(torch.float64, 2), (torch.bfloat16, 5), (torch.float16, 1), (torch.float32, 12)],
)
def test_types_and_numbers_of_classes(dtype: torch.dtype, classes: int) -> None:
    assert_as_reference(problem([6, 20], 7, classes, dtype))


@pytest.mark.parametrize("spread", [1.0, 500.0])
def test_greedy(spread: float) -> None:
    given = problem([1, 3, 6], spread=spread, rankings=(K.GREEDY, K.ATTENTION, K.GREEDY))
    assert_as_reference(given)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.long_where(these=lambda p: p["keep"])
def test_weights_that_underflow(keep: bool) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["attention"][3] = -INF
        tensors["values"][8] = NAN

    out = assert_as_reference(problem([5, 8, 1], spread=500.0, keep=keep, change=change))
    assert out.status.tolist() == [16, 16 | 8, 2]


def test_what_is_not_finite_stays_in_its_instance() -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["values"][1] = INF
        tensors["attention"][6] = NAN
        tensors["attention"][10:12] = -INF
        tensors["head_bias"][3, 0] = NAN

    out = assert_as_reference(problem([5, 4, 3, 2], own_bias=True, change=change))
    assert out.status.tolist() == [8, 8, 0, 8]
    assert out.label[:2].tolist() == [-1, -1]


def test_no_mass() -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["attention"][:4] = 0

    out = assert_as_reference(problem([4, 3], scores=False, change=change))
    assert out.status.tolist() == [4, 0]
    assert out.first_flip[:, 0].tolist() == [-1] * len(EVERY)


def test_unusable_instances_are_invalid() -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["attention"][1] = -1
        tensors["order"][5] = 3
        tensors["keys"][9] = NAN

    rankings = (K.GIVEN_ORDER, K.GIVEN_KEYS, K.ATTENTION)
    out = assert_as_reference(problem([3, 4, 3, 2], scores=False, rankings=rankings, change=change))
    assert out.status.tolist() == [64, 64, 64, 0]
    assert out.logits.isnan().any(1).tolist() == [True] * 3 + [False]
    assert out.weights.isnan()[:, 0].tolist() == [True] * 10 + [False] * 2
    assert out.single_kl.isnan().tolist() == [True] * 10 + [False] * 2
    assert out.order[:, :10].tolist() == [[-1] * 10] * 3


def test_offsets_that_lie_reach_no_foreign_memory() -> None:
    given = problem([3, 4, 2])
    lying = replace(given, offsets=torch.tensor([0, 7, 3, 2**40], device=DEVICE))
    out = run(lying)
    assert out.status.tolist() == [0, 64, 64]


def test_checks_stop_before_anything_is_written() -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["attention"][1] = -0.5

    given = replace(problem([3], scores=False, change=change), validate=True)
    with pytest.raises(ValueError, match=r"weights: given -0\.5 at position 1 of instance 0"):
        run(given)


def test_empty_batches() -> None:
    assert run(problem([])).label.shape == (0,)
    assert run(problem([0, 0])).status.tolist() == [1, 1]
    assert run(problem([3], rankings=())).minimal_order.shape == (3,)


def test_results_do_not_depend_on_the_batch() -> None:
    """Bit for bit: alone, among others, and with values that are not where they were."""
    lengths = [40, 3, 140, 7]
    given = problem(lengths, 5, 2)
    whole = run(given)
    offsets = given.offsets.tolist()
    for b in (0, 3):
        items = slice(offsets[b], offsets[b + 1])
        wide = torch.zeros(lengths[b], 1, 9, device=DEVICE)
        wide[:, :, 2:7] = given.values[items]
        alone = run(
            replace(
                given,
                values=wide[:, :, 2:7],
                offsets=torch.tensor([0, lengths[b]], device=DEVICE),
                attention=given.attention[items],
                ids=given.ids[b : b + 1],
                orders=tuple(order[items] for order in given.orders),
                keys=tuple(key[items] for key in given.keys),
            )
        )
        for line in RESULTS:
            got, among = getattr(alone, line.name), getattr(whole, line.name)
            got = got[line.place(0, slice(0, lengths[b]))]
            among = among[line.place(b, items)]
            assert same(got, among), line.name


def test_only_what_is_wanted_is_computed() -> None:
    given = problem([6, 40], rankings=(K.ATTENTION,))
    full = run(given)
    optional = [f.name for f in fields(full) if f.default is None]
    few = replace(full, **dict.fromkeys(optional))
    few = replace(few, first_flip=torch.full_like(full.first_flip, -9))
    BACKEND.sweep(given, few)
    assert torch.equal(few.first_flip, full.first_flip)


def test_rankings_beyond_the_second_axis_of_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem([6, 3])
    whole = run(given)
    monkeypatch.setattr(import_module("fastattnerase.kernels.triton.launch"), "MAX_ROWS", 2)
    parts = run(given)
    for line in RESULTS:
        assert same(getattr(parts, line.name), getattr(whole, line.name)), line.name


def test_more_heads_and_classes_than_the_kernels_have_are_refused() -> None:
    given = problem([2], 4, 2)
    assert BACKEND.unsupported(given) == []
    two = replace(given, values=given.values.view(2, 2, 2), attention=torch.ones(2, 2))
    assert BACKEND.unsupported(two) == ["it takes one attention head, these are 2"]
    many = replace(given, head_weight=torch.ones(5000, 1, 4))
    assert BACKEND.unsupported(many) == ["it takes at most 4096 classes, these are 5000"]


def test_reasons_why_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.unavailable() == []
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert BACKEND.unavailable() == ["torch finds no GPU and TRITON_INTERPRET=1 is not set"]
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    assert BACKEND.unavailable()[0] == "Triton is not installed"
    monkeypatch.setattr(adapter.sys, "platform", "darwin")
    assert BACKEND.unavailable()[0] == "Triton has no release for darwin"
    assert BACKEND.devices == ("cuda",)


def test_the_adapter_imports_without_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from fastattnerase.backends.triton import BACKEND\n"
        "print(BACKEND.name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "triton\n"
