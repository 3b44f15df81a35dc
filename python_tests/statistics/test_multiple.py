"""Holm's correction, worked out by hand."""

from __future__ import annotations

import pytest

from fastattnerase.statistics.multiple import holm


def test_by_hand() -> None:
    # Ascending .005, .01, .03, .04 times 4, 3, 2, 1: .02, .03, .06, .04, and none below one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_ends() -> None:
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert holm([0.5, 0.5, 0.9]) == [1.0, 1.0, 1.0]
    assert holm([0.0, 1.0]) == [0.0, 1.0]


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability(wrong: float) -> None:
    with pytest.raises(ValueError, match="probabilities: given"):
        holm([0.5, wrong])
