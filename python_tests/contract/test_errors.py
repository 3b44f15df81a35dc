"""Callers' mistakes raise and name the argument and the instance (engine contract, section 7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastattnerase as fae
from contract.harness import Runner
from contract.public import ragged


def batch(**changes: Any) -> fae.AttentionBatch:
    """Three instances of 2, 3 and 1 items with some arguments replaced."""
    args: dict[str, Any] = {
        "values": torch.ones(6, 4),
        "offsets": torch.tensor([0, 2, 5, 6]),
        "weights": torch.ones(6),
        "head_weight": torch.eye(2, 4),
        "head_bias": torch.zeros(2),
    } | changes
    return fae.AttentionBatch(
        args.pop("values"), args.pop("offsets"), **{k: v for k, v in args.items() if v is not None}
    )


WRONG_BATCHES = {
    "values": [
        {"values": torch.ones(6)},
        {"values": torch.ones(6, 4, dtype=torch.int64)},
        {"values": torch.ones(6, 4, dtype=torch.complex64)},
        {"values": [[1.0]]},
    ],
    "offsets": [
        {"offsets": torch.tensor([0, 2, 5])},
        {"offsets": torch.tensor([0, 2, 5, 7])},
        {"offsets": torch.tensor([1, 2, 5, 6])},
        {"offsets": torch.tensor([0, 5, 2, 6])},
        {"offsets": torch.tensor([0.0, 2.0, 5.0, 6.0])},
        {"offsets": torch.tensor([0, 2, 5, 6], dtype=torch.int32)},
        {"offsets": torch.zeros(0, dtype=torch.int64)},
        {"offsets": torch.tensor([[0, 6]])},
        {"offsets": [0, 6]},
    ],
    "weights": [
        {"weights": torch.ones(5)},
        {"weights": torch.ones(6, 1)},
        {"weights": torch.ones(6, dtype=torch.int64)},
        {"weights": torch.ones(6), "scores": torch.ones(6)},
        {"weights": None},
        {"weights": torch.ones(6, device="meta")},
    ],
    "scores": [{"weights": None, "scores": torch.ones(7)}],
    "head_weight": [
        {"head_weight": torch.eye(2, 5)},
        {"head_weight": torch.ones(4)},
        {"head_weight": torch.ones(0, 4)},
        {"head_weight": torch.ones(2, 4, dtype=torch.int64)},
        {"head_weight": None},
        {"head_weight": torch.ones(2, 4, device="meta")},
    ],
    "head_bias": [
        {"head_bias": torch.ones(3)},
        {"head_bias": torch.ones(4, 2)},
        {"head_bias": torch.ones(2, dtype=torch.int64)},
        {"head_bias": torch.ones(2, device="meta")},
    ],
    "ids": [
        {"ids": torch.arange(2)},
        {"ids": torch.arange(3.0)},
        {"ids": torch.arange(3, device="meta")},
    ],
    "head": [
        {"head": lambda pooled, instance: pooled},
        {"head_weight": None, "head_bias": None, "head": 3},
    ],
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [(name, changes) for name, wrong in WRONG_BATCHES.items() for changes in wrong],
)
def test_wrong_batch(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
        batch(**changes)


def test_B52_B100_devices_are_named() -> None:
    """B52, B100: one tensor elsewhere is named with both devices."""
    with pytest.raises(ValueError, match=r"weights.*meta.*cpu"):
        batch(weights=torch.ones(6, device="meta"))
    order = torch.zeros(6, dtype=torch.int64, device="meta")
    with pytest.raises(ValueError, match=r"rankings.*meta.*cpu"):
        fae.erase_prefixes(batch(), order)


def test_one_class_warns_where_it_is_asked_for_flips() -> None:
    one_output = batch(head_weight=torch.ones(1, 4), head_bias=None)
    with pytest.warns(UserWarning, match="binary_head"):
        fae.sweep(one_output, ["attention"])


@pytest.mark.parametrize(
    ("options", "name", "error"),
    [
        ({"rankings": ["atention"]}, "rankings", ValueError),
        ({"rankings": [3]}, "rankings", TypeError),
        ({"rankings": [torch.zeros(5)]}, "rankings", ValueError),
        ({"rankings": [torch.zeros(6, 1)]}, "rankings", ValueError),
        ({"rankings": [torch.zeros(6, dtype=torch.int32)]}, "rankings", TypeError),
        ({"rankings": [torch.zeros(6, dtype=torch.bool)]}, "rankings", TypeError),
        ({"curves": ("jensen",)}, "curves", ValueError),
        ({"direction": "remove"}, "direction", ValueError),
        ({"direction": 90}, "direction", (ValueError, TypeError)),
        ({"seed": -1}, "seed", ValueError),
        ({"random_orders": 0}, "random_orders", ValueError),
        ({"random_orders": -3}, "random_orders", ValueError),
        ({"backend": "gpu"}, "backend", ValueError),
    ],
)
def test_B25_wrong_options(options: dict[str, Any], name: str, error: type[Exception]) -> None:
    """B25: what is kept and what is removed is a word, and unknown words are refused."""
    options = {"rankings": ["attention"]} | options
    with pytest.raises(error, match=rf"\b{name}\b"):
        fae.erase_prefixes(batch(), options.pop("rankings"), **options)


def test_wrong_batch_type_and_order_number() -> None:
    with pytest.raises(TypeError, match="batch"):
        fae.erase_each(torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="order"):
        fae.rank(batch(), "random", order=-1)


def on(runner: Runner, **changes: Any) -> fae.AttentionBatch:
    return batch(**changes).to(runner.device)


def test_negative_weight_names_the_instance(runner: Runner) -> None:
    weights = torch.tensor([1.0, 1.0, 0.5, -0.25, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"weights(?=.*-0\.25).*instance 1\b"):
        fae.erase_each(on(runner, weights=weights), backend=runner.name, validate=True)


def test_what_was_changed_since_the_batch_was_made_is_checked_again(runner: Runner) -> None:
    given = on(runner)
    given.offsets[1] = 6
    with pytest.raises(ValueError, match=r"offsets.*instance 1\b"):
        fae.erase_each(given, backend=runner.name, validate=True)
    given.offsets[1] = 2
    given.weights[4] = -2
    with pytest.raises(ValueError, match=r"weights(?=.*-2\b).*instance 1\b"):
        fae.erase_each(given, backend=runner.name, validate=True)
    given.weights[4] = 1
    fae.erase_each(given, backend=runner.name, validate=True)


def test_B11_S13_nan_ranking_scores_name_the_instance(runner: Runner) -> None:
    """B11, S13: no silent order for a NaN."""
    keys = torch.tensor([1.0, 2.0, 0.0, 1.0, float("nan"), 3.0], device=runner.device)
    with pytest.raises(ValueError, match=r"(?=.*NaN)rankings.*instance 1\b"):
        fae.erase_prefixes(on(runner), ["attention", keys], backend=runner.name, validate=True)


@pytest.mark.parametrize(
    "order",
    [[0, 1, 0, 1, 1, 0], [0, 1, 0, 1, 3, 0], [0, 1, -1, 1, 2, 0], [0, 1, 0, 1, 1 << 40, 0]],
)
def test_no_permutation_names_the_instance(runner: Runner, order: list[int]) -> None:
    given = torch.tensor(order, device=runner.device)
    with pytest.raises(ValueError, match=r"(?=.*permutation)rankings.*instance 1\b"):
        fae.erase_prefixes(on(runner), given, backend=runner.name, validate=True)


def test_errors_leave_the_backend_usable(runner: Runner) -> None:
    bad = torch.tensor([0, 1, 0, 1, 1, 0], device=runner.device)
    with pytest.raises(ValueError, match="permutation"):
        fae.erase_prefixes(on(runner), bad, backend=runner.name, validate=True)
    good = torch.tensor([0, 1, 2, 1, 0, 0], device=runner.device)
    result = fae.erase_prefixes(on(runner), good, backend=runner.name, validate=True)
    assert result.label.tolist() == [0, 0, 0]


def unvalidated(call: Callable[[], Any], refusal: str) -> Any:
    """The result, or None where the backend checks anyway and says what `refusal` matches."""
    try:
        return call()
    except ValueError as error:
        said = str(error)
    assert re.search(refusal, said), said
    return None


def test_unvalidated_mistakes_are_visible_and_contained(runner: Runner) -> None:
    """Without validation a wrong instance is INVALID, or refused; the others are as ever."""
    args = ragged([4, 5, 3], device=runner.device)
    args["weights"] = [s.exp() for s in args.pop("scores")]
    clean = fae.AttentionBatch.from_list(**args)
    args["weights"] = [w.clone() for w in args["weights"]]
    args["weights"][1][2] = -1.0
    spoilt = fae.AttentionBatch.from_list(**args)
    expected = fae.sweep(clean, ("attention",), backend=runner.name)
    got = unvalidated(
        lambda: fae.sweep(spoilt, ("attention",), backend=runner.name, validate=False),
        r"weights.*instance 1\b",
    )
    if got is None:
        return
    assert int(got.prefixes.status[1]) & int(fae.Status.INVALID)
    assert int(got.prefixes.label[1]) == -1
    assert int(got.prefixes.first_flip[0, 1]) == -1
    assert int(got.minimal.size[1]) == -1
    for b in (0, 2):
        assert int(got.prefixes.first_flip[0, b]) == int(expected.prefixes.first_flip[0, b])
        assert int(got.minimal.size[b]) == int(expected.minimal.size[b])
        assert not int(got.prefixes.status[b]) & int(fae.Status.INVALID)


@pytest.mark.parametrize("order", [[0, 0, 0, 0, 0], [0, 1, 2, 3, 9], [-7, 1, 2, 3, 4]])
def test_unvalidated_orders_never_leave_memory(runner: Runner, order: list[int]) -> None:
    args = ragged([4, 5, 3], device=runner.device)
    clean = fae.AttentionBatch.from_list(**args)
    given = torch.tensor([3, 2, 1, 0, *order, 2, 1, 0], device=runner.device)
    got = unvalidated(
        lambda: fae.erase_prefixes(clean, given, backend=runner.name, validate=False),
        r"rankings.*instance 1\b",
    )
    if got is None:
        return
    assert int(got.status[1]) & int(fae.Status.INVALID)
    assert got.first_flip[0, 1] == -1
    reverse = torch.tensor([3, 2, 1, 0, 4, 3, 2, 1, 0, 2, 1, 0], device=runner.device)
    expected = fae.erase_prefixes(clean, reverse, backend=runner.name)
    for b in (0, 2):
        assert got.first_flip[0, b] == expected.first_flip[0, b]


def test_minimal_set_is_refused_where_it_is_not_exact(runner: Runner) -> None:
    heads = fae.AttentionBatch(
        torch.ones(3, 2, 4, device=runner.device),
        torch.tensor([0, 3], device=runner.device),
        weights=torch.ones(3, 2, device=runner.device),
        head_weight=torch.ones(2, 2, 4, device=runner.device),
    )
    with pytest.raises(ValueError, match=r"minimal.*head"):
        fae.sweep(heads, minimal=True, backend=runner.name)
    with pytest.raises(ValueError, match=r"minimal"):
        fae.rank(heads, "minimal", backend=runner.name)


def test_a_backend_that_cannot_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"given 'cuda', needed one that can run"):
        fae.erase_each(batch(), backend="cuda")
    reasons = fae.backends()
    assert reasons["reference"] == []
    assert all(isinstance(r, list) for r in reasons.values())
