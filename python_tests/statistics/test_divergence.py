"""Divergences of two models' outputs and attention, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fastattnerase.statistics.divergence import attention_shape, divergence


class Given:
    """Outputs that are given."""

    def __init__(self, weights: list[float], probability: float) -> None:
        self.log_weights = {7: torch.tensor(weights).log()}
        self.probability = {7: probability}


def test_divergences_by_hand() -> None:
    same = divergence(Given([0.5, 0.5], 0.9), Given([0.5, 0.5], 0.6), [7])
    assert same.tvd == pytest.approx(0.3)
    assert same.attention_jsd == pytest.approx(0.0, abs=1e-12)
    p, q = np.array([0.1, 0.9]), np.array([0.4, 0.6])
    m = (p + q) / 2
    jsd = (np.sum(p * np.log(p / m)) + np.sum(q * np.log(q / m))) / 2
    assert same.output_jsd == pytest.approx(jsd)
    apart = divergence(Given([1 - 1e-30, 1e-30], 0.5), Given([1e-30, 1 - 1e-30], 0.5), [7])
    assert apart.attention_jsd == pytest.approx(np.log(2), abs=1e-6)


def test_attention_s_shape() -> None:
    shape = attention_shape(Given([0.25] * 4, 0.5), [7])
    assert shape.largest_weight == pytest.approx(0.25)
    assert shape.entropy_share == pytest.approx(1.0)
    assert attention_shape(Given([1.0], 0.5), [7]).entropy_share is None
