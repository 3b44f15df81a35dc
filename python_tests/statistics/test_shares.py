"""Intervals of shares, against values worked out by hand."""

from __future__ import annotations

import pytest

from fastattnerase.statistics.shares import f1, hardly_better, majority, wilson


def test_wilsons_interval() -> None:
    low, high = wilson(5, 10)
    assert low == pytest.approx(0.2366, abs=1e-4)
    assert high == pytest.approx(0.7634, abs=1e-4)
    assert wilson(10, 10)[1] == pytest.approx(1)


def test_the_most_frequent_class_among_the_labels_that_are_there() -> None:
    assert majority([2, 0, 2, 2]) == 0.75
    assert majority([-1, 0, 1, 1, -1]) == pytest.approx(2 / 3)
    assert majority([-1]) is None
    assert majority([]) is None


def test_f1_by_hand() -> None:
    assert f1([1, 1, 1, 0], [1, 0, 1, 1]) == pytest.approx(2 / 3)
    assert f1([0, 0], [0, 0]) == 0.0


@pytest.mark.parametrize(
    ("accuracy", "chance", "hardly"),
    [
        (0.55, 0.5, True),
        (0.56, 0.5, False),
        (0.4, 0.5, True),  # worse than chance
        (0.91, 0.9, True),
        (0.92, 0.9, False),
        (1.0, 1.0, True),  # a single class: nothing to be better at
        (0.55, None, False),
        (None, 0.5, False),
    ],
)
def test_what_is_hardly_better_than_one_class_always(
    accuracy: float | None, chance: float | None, hardly: bool
) -> None:
    assert hardly_better(accuracy, chance) is hardly
