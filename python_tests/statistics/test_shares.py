"""Intervals of shares, against values worked out by hand."""

from __future__ import annotations

import pytest

from fastattnerase.statistics.shares import wilson


def test_wilsons_interval() -> None:
    low, high = wilson(5, 10)
    assert low == pytest.approx(0.2366, abs=1e-4)
    assert high == pytest.approx(0.7634, abs=1e-4)
    assert wilson(10, 10)[1] == pytest.approx(1)
