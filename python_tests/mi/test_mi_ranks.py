"""How many ranks are measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fastattnerase as fae
from fastattnerase.mi import Config, MeasurementError, RankChoice, choose_ranks, group


def choice(weights: list[list[float]], **options: Any) -> RankChoice:
    batch = fae.AttentionBatch.from_list(
        values=[torch.zeros(len(w), 1) for w in weights],
        weights=[torch.tensor(w, dtype=torch.float64) for w in weights],
        head_weight=torch.zeros(2, 1),
    )
    config = Config(**options)
    with group([batch], max_ranks=config.max_ranks) as ranked:
        return choose_ranks(ranked, config)


EVEN = [[0.25] * 4] * 9 + [[0.2] * 5] * 11  # 20 instances
SMALL = 1e-6


def test_the_tenth_percentile_of_lengths() -> None:
    # Sorted lengths 2, 2, 2, 9, …: of 20 the 10th percentile lies at place 1.9.
    lengths = [2] * 2 + [9] * 18
    found = choice([[1 / n] * n for n in lengths])
    assert (found.ranks, found.by_length, found.by_weight, found.ended_by) == (8, 8, 9, "length")
    assert choice(EVEN, length_percentile=50).by_length == 5


def test_the_share_of_instances_with_a_weight_above_the_threshold() -> None:
    peaked = [[0.5, 0.5 - 2 * SMALL, SMALL, SMALL]] * 2 + [[0.25] * 4] * 8
    assert choice(peaked).by_weight == 4  # exactly 80 %
    peaked = [[0.5, 0.5 - 2 * SMALL, SMALL, SMALL]] * 3 + [[0.25] * 4] * 7
    found = choice(peaked)
    assert (found.ranks, found.by_length, found.by_weight, found.ended_by) == (2, 4, 2, "weights")
    assert choice(peaked, weight_share=0.7).ranks == 4
    assert choice(peaked, weight_threshold=1e-7).ranks == 4
    assert choice(peaked, weight_threshold=SMALL / 2).ranks == 4


def test_instances_that_are_too_short_have_no_such_weight() -> None:
    short = [[1.0]] * 3 + [[0.25] * 4] * 7
    found = choice(short, ranks="weights")
    assert (found.ranks, found.by_length, found.ended_by) == (1, None, "weights")
    assert choice(short, ranks="length", length_percentile=40).ranks == 4


def test_the_share_of_the_selected_weights() -> None:
    # Rank 3 and 4: none of 10 above; of all weights up to rank k: 20 of 20, 20 of 30, 20 of 40.
    peaked = [[0.5, 0.5 - 2 * SMALL, SMALL, SMALL]] * 10
    assert choice(peaked, weight_rule="selected").by_weight == 2
    assert choice(peaked, weight_rule="selected", weight_share=0.6).by_weight == 3
    assert choice(peaked, weight_share=0.6).by_weight == 2


def test_a_number_or_a_limit() -> None:
    assert choice(EVEN, ranks=5) == RankChoice(5, None, None, "given")
    found = choice(EVEN, max_ranks=3)
    assert (found.ranks, found.ended_by) == (3, "max_ranks")
    assert choice(EVEN, max_ranks=30).ended_by == "length"
    with pytest.raises(MeasurementError) as raised:
        choice(EVEN, ranks=6)
    assert "ranks: given 6, needed at most 5, the ranked items of the longest instance" in str(
        raised.value
    )


def test_no_rank_left() -> None:
    with pytest.raises(MeasurementError) as raised:
        choice(EVEN, weight_threshold=0.3)
    assert (
        "no rank is left: fewer than 0.8 of the 20 instances have a largest weight above 0.3; lower"
        in str(raised.value)
    )
