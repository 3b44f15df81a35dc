"""Erasure beside an item that stays, against erasure of batches in which the item is the bias."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import fastattnerase as fae
from fastattnerase.kept_items import sweep_beside_kept

# Two words and the kept item, one word and the kept item, the kept item alone.
VALUES = torch.tensor([[2.0], [-1.0], [0.5], [-3.0], [1.0], [0.25]])
OFFSETS = torch.tensor([0, 3, 5, 6])
SCORES = torch.tensor([1.0, 2.0, 0.5])


def made() -> fae.AttentionBatch:
    return fae.AttentionBatch(
        VALUES, OFFSETS, weights=torch.ones(6), head_weight=torch.tensor([[0.0], [1.0]]),
        head_bias=torch.zeros(2),
    )  # fmt: skip


def probabilities(*left: list[float]) -> Tensor:
    """The probability of class 1 of the mean of what is left, sigmoid(mean)."""
    return torch.tensor([sum(values) / len(values) for values in left]).sigmoid()


def test_kept_curves_say_that_they_are_of_kept_items() -> None:
    """The first instance orders word 1 (-1) before word 0 (2); the mean of all is 0.5, class 1."""
    erased, kept = (
        sweep_beside_kept(made(), SCORES, curves="label_prob", direction=direction).prefixes
        for direction in ("erase", "keep")
    )
    assert (erased.direction, kept.direction) == ("erase", "keep")
    first = probabilities([2, -1, 0.5], [2, 0.5], [0.5])
    torch.testing.assert_close(erased.curves["label_prob"][0, :3], first)
    first = probabilities([0.5], [-1, 0.5], [2, -1, 0.5])
    torch.testing.assert_close(kept.curves["label_prob"][0, :3], first)
    assert kept.first_flip.tolist() == [[2, 1, -1]]
    found, of_kept = erased.measures(), kept.measures()
    assert {name for name, _ in found.found} == {
        "comprehensiveness", "aopc_comprehensiveness", "deletion_area"
    }  # fmt: skip
    assert {name for name, _ in of_kept.found} == {
        "sufficiency", "aopc_sufficiency", "insertion_area"
    }  # fmt: skip
    # A fifth of two words is one word: 0.622 of all less 0.438 of word 1 and the kept item.
    assert float(of_kept["sufficiency"].values[0, 0]) == pytest.approx(float(first[2] - first[1]))


def test_names_and_tensors_stand_alone_as_in_a_sweep() -> None:
    one = sweep_beside_kept(made(), "attention", curves="js").prefixes
    again = sweep_beside_kept(made(), ["attention"], curves=["js"]).prefixes
    assert one.rankings == again.rankings == ("attention",)
    assert torch.equal(one.curves["js"], again.curves["js"])


def test_bad_arguments_get_one_line() -> None:
    whole = torch.tensor([0, 1, 0])
    for given, options, error, message in (
        ("attention", {"direction": "both"}, ValueError,
         "direction: given 'both', needed 'erase' or 'keep'"),
        ("attention", {"direction": "kepp"}, ValueError,
         "direction: given 'kepp', needed 'erase' or 'keep'"),
        ("random", {"random_orders": 0}, ValueError, "random_orders: given 0, needed 1 or more"),
        ([[0, 1]], {}, TypeError, "rankings: given list, needed a name or a tensor"),
        ([whole.int()], {}, TypeError, "rankings: given a tensor of torch.int32, needed int64"),
        ([whole[:2]], {}, ValueError, "rankings: given a tensor of shape [2], needed [3], one for"),
        ([whole.to("meta")], {}, ValueError, "rankings: given a tensor on meta, needed on cpu as"),
        ([torch.tensor([0, 2, 0])], {}, ValueError, "rankings: given position 2 at position"),
    ):  # fmt: skip
        with pytest.raises(error, match=re.escape(message)):
            sweep_beside_kept(made(), given, **options)  # type: ignore[arg-type]
    other: Any = "batch"
    with pytest.raises(TypeError, match="batch: given str"):
        sweep_beside_kept(other)
    bare = fae.AttentionBatch(
        VALUES[:1], torch.tensor([0, 1, 1]), weights=torch.ones(1), head_weight=torch.ones(2, 1)
    )
    with pytest.raises(ValueError, match="batch: given no item for instance 1, needed the kept"):
        sweep_beside_kept(bare)
