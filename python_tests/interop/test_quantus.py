"""The metric of Quantus' form against Quantus' own, on the same layer."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from interop.layers import KINDS, MASK, N, batch_of
from torch import nn

from fastattnerase.interop import AttentionModel
from fastattnerase.interop.captum import prefix_erasure
from fastattnerase.interop.prefixes import DIRECTIONS

# It cannot be imported where its OpenCV finds no libGL.
quantus = pytest.importorskip("quantus", exc_type=ImportError)

from fastattnerase.interop.quantus import PrefixErasure  # noqa: E402


def attributions() -> np.ndarray:
    return np.random.default_rng(4).normal(size=(3, N)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_size", [64, 2])
def test_the_curve_is_that_of_pixel_flipping(kind: str, batch_size: int) -> None:
    """Quantus flips padding as well, where we put it last, and keeps the probability meanwhile."""
    model, scores = AttentionModel(batch_of(kind)).eval(), attributions()
    scores[MASK.numpy() == 0] = -100.0
    x = model.inputs[:, None].numpy()
    y = np.array([0, 2, 1])
    theirs = quantus.PixelFlipping(
        features_in_step=1, normalise=False, perturb_baseline=0.0, disable_warnings=True
    )(model=model, x_batch=x, y_batch=y, a_batch=scores[:, None], channel_first=True, softmax=True,
      device="cpu")  # fmt: skip
    metric = PrefixErasure("curve")
    ours = metric(model=model, x_batch=x, y_batch=y, a_batch=scores, batch_size=batch_size)
    for b, n in enumerate(MASK.sum(1).tolist()):
        assert len(ours[b]) == n
        np.testing.assert_allclose(ours[b], theirs[b][:n], rtol=0, atol=1e-5)
    assert metric.score_direction == quantus.PixelFlipping.score_direction


@pytest.mark.parametrize("measure", DIRECTIONS)
def test_measures_are_those_of_captums_form(measure: str) -> None:
    model, scores = AttentionModel(batch_of("linear")), attributions()
    y = np.array([0, 2, 1])
    expected = prefix_erasure(
        model, model.inputs, torch.from_numpy(scores), target=torch.from_numpy(y), measure=measure
    )
    metric = PrefixErasure(measure)
    found = metric(model=model, x_batch=model.inputs.numpy(), y_batch=y, a_batch=scores)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    aggregated = PrefixErasure(measure, return_aggregate=True)
    mean = aggregated(
        model=model, x_batch=model.inputs.numpy(), y_batch=y, a_batch=scores, batch_size=1
    )
    np.testing.assert_allclose(mean, [expected.mean()], rtol=0, atol=1e-12)
    assert aggregated.all_evaluation_scores == mean


def test_direction_options_and_explanations_made_on_the_way() -> None:
    assert issubclass(PrefixErasure, quantus.Metric)
    higher, lower = quantus.helpers.enums.ScoreDirection
    assert (
        PrefixErasure.score_direction == higher == PrefixErasure("insertion_area").score_direction
    )
    assert PrefixErasure("sufficiency").score_direction == lower
    model, scores = AttentionModel(batch_of("linear")), attributions()
    given = {"model": model, "x_batch": model.inputs.numpy(), "y_batch": np.array([0, 2, 1])}
    every = PrefixErasure(options={"preset": "every"})(**given, a_batch=scores)
    made = PrefixErasure(options={"preset": "every"})(
        **given, explain_func=lambda model, inputs, targets: scores[:, None]
    )
    assert made == every != PrefixErasure()(**given, a_batch=scores)
    absolute = PrefixErasure(options={"preset": "every"}, abs=True)(**given, a_batch=scores)
    assert absolute == PrefixErasure(options={"preset": "every"})(**given, a_batch=np.abs(scores))
    assert absolute != every


def test_what_stands_where_no_item_is_changes_nothing() -> None:
    """Quantus' normalisation divides by the largest value of a row: NaN there would be all."""
    model, scores = AttentionModel(batch_of("linear")), attributions()
    given = {"model": model, "x_batch": model.inputs.numpy(), "y_batch": np.array([0, 2, 1])}
    expected = PrefixErasure("deletion_area")(**given, a_batch=scores)
    scores[MASK.numpy() == 0] = np.nan
    found = PrefixErasure("deletion_area", normalise=True)(**given, a_batch=scores)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_a_black_box_is_refused_with_the_reason() -> None:
    model, scores = AttentionModel(batch_of("linear")), attributions()
    x, y = model.inputs.numpy(), np.array([0, 2, 1])
    metric = PrefixErasure()
    with pytest.raises(
        TypeError, match=r"model: given Linear, needed an interop\.AttentionModel: "
    ):
        metric(model=nn.Linear(N, 2), x_batch=x, y_batch=y, a_batch=scores)
    for change, message in (
        ({"x_batch": x * 0}, "inputs: given others than model.inputs in row 0"),
        ({"y_batch": y + 1}, "target: given [1, 3, 2], needed [3] of 0 to 2"),
        ({"softmax": False}, "softmax: given False, needed True"),
        ({"a_batch": scores.T}, "a_batch: given [6, 3], needed [3, 6] or [3, 1, 6], as x_batch"),
        ({"a_batch": scores[:2]}, "a_batch: given [2, 6], needed [3, 6] or [3, 1, 6]"),
    ):
        given = {"model": model, "x_batch": x, "y_batch": y, "a_batch": scores}
        with pytest.raises(ValueError, match=re.escape(message)):
            metric(**(given | change))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"y_batch: given torch\.float64, needed integers"):
        metric(model=model, x_batch=x, y_batch=y + 0.5, a_batch=scores)
    with pytest.raises(ValueError, match="measure: given 'auc', needed one of aopc_comprehensive"):
        PrefixErasure("auc")
