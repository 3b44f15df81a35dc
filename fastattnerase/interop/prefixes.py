"""What the engine answers in the forms of other libraries: a measure of prefixes an instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastattnerase import measures
from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import Direction
from fastattnerase.interop.attention_model import AttentionModel
from fastattnerase.measures.base import Floats, Measured
from fastattnerase.measures.thresholds import thresholds
from fastattnerase.ops import erase_prefixes
from fastattnerase.tensor_checks import check_tensor, shape_of

# Of each measure of curves, which words its curve erases: the first, or all but the first.
DIRECTIONS: dict[str, Direction] = {
    "aopc_comprehensiveness": "erase",
    "comprehensiveness": "erase",
    "deletion_area": "erase",
    "aopc_sufficiency": "keep",
    "sufficiency": "keep",
    "insertion_area": "keep",
}


def require_model(model: object, name: str) -> AttentionModel:
    """Give the attention model that was given, bare or wrapped; refuse anything else.

    Raises:
        TypeError: it is a black box.
    """
    found = getattr(model, "__self__", model)  # of the bound method `forward`
    if not isinstance(found, AttentionModel):
        raise TypeError(
            f"{name}: given {type(model).__name__}, needed an interop.AttentionModel: all prefixes "
            "are answered at once from an attention layer's values, weights and head, which a "
            "black box does not show; erasing its inputs takes a forward pass a prefix "
            "(input_erasure.erase_inputs, quantus.PixelFlipping)"
        )
    return found


def require_measure(name: str) -> Direction:
    """Give the direction of a measure of curves.

    Raises:
        ValueError: it is none.
    """
    if name not in DIRECTIONS:
        raise ValueError(f"measure: given {name!r}, needed one of {', '.join(DIRECTIONS)}")
    return DIRECTIONS[name]


def read_classes(name: str, given: Any) -> Tensor:
    """Give classes as they are counted, int64 in one dimension.

    Raises:
        TypeError: they are no integers.
    """
    try:
        classes = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:  # such as None among them
        raise TypeError(f"{name}: given {given!r:.60}, needed integers, the classes") from error
    if classes.dtype == torch.bool or classes.is_floating_point() or classes.is_complex():
        raise TypeError(f"{name}: given {classes.dtype}, needed integers, the classes")
    return classes.to(torch.int64).reshape(-1)


def label_curve(
    batch: AttentionBatch, scores: Tensor, target: Tensor | None, direction: Direction
) -> tuple[Floats, np.ndarray[Any, np.dtype[np.int64]]]:
    """Compute the probability of a class after every prefix, from one call of the engine.

    Args:
        batch: B instances of T items.
        scores: [T], a float type.
        target: [B], int64, the classes; None: the decisions.
        direction: "erase" or "keep".

    Returns:
        [T + B], the curves, and [B + 1], where each begins.

    Raises:
        ValueError: a class that does not exist, one output, NaN in the scores.
    """
    found = erase_prefixes(batch, scores, curves="label_prob", direction=direction)
    if found.probabilities.shape[1] == 1:
        raise ValueError(
            "model: given one output, whose probability is always 1, needed two or more (of one "
            "logit for two classes: fae.binary_head)"
        )
    offsets = found.curve_offsets.cpu().numpy()
    curve = found.curves["label_prob"][0]
    if target is not None:
        classes = found.probabilities.shape[1]
        if target.shape != (len(batch),) or ((target < 0) | (target >= classes)).any():
            raise ValueError(
                f"target: given {target.tolist()!s:.60}, needed [{len(batch)}] of 0 to "
                f"{classes - 1}"
            )
        target = target.to(found.label.device)
        other = target != found.label  # [B]
        if bool(other.any()):
            points = batch.lengths + 1
            of, changed = (x.repeat_interleave(points) for x in (target, other))  # [T + B]
            logits = erase_prefixes(batch, scores, curves="logits", direction=direction)
            p = logits.curves["logits"][0].softmax(1)  # [T + B, C]
            # An instance's curve does not depend on the classes asked of others.
            curve = torch.where(changed, p.gather(1, of[:, None])[:, 0], curve)
    return curve.double().cpu().numpy(), offsets


def measured(
    batch: AttentionBatch,
    scores: Tensor,
    target: Tensor | None,
    measure: str,
    options: dict[str, Any],
) -> Measured:
    """Compute a measure of curves for every instance.

    Args:
        batch: B instances of T items.
        scores: [T].
        target: [B], or None for the decisions.
        measure: its name.
        options: of the measure, such as `preset`.
    """
    curve, offsets = label_curve(batch, scores, target, require_measure(measure))
    if "preset" in options and thresholds(options["preset"]).only_positive:
        above = np.concatenate([[0], np.cumsum(scores.cpu().numpy() > 0)])
        options = {"positive": np.diff(above[batch.offsets.cpu().numpy()])} | options
    found: Measured = measures.find(measure)(curve, offsets, **options)
    return found


def packed_attributions(batch: AttentionBatch, width: int, attributions: Tensor) -> Tensor:
    """Pack attributions of padded instances, `[B, N]`, `[B, 1, N]` or `[B, N, E]`: `[T]`.

    Args:
        batch: B instances of T items.
        width: N.
        attributions: summed over E features.

    Raises:
        ValueError: another shape, NaN.
        TypeError: no tensor of real numbers.
    """
    check_tensor("attributions", attributions)
    if attributions.is_complex():
        raise TypeError(f"attributions: given {attributions.dtype}, needed real numbers")
    B, N = len(batch), width
    rows = attributions
    if rows.ndim == 3 and rows.shape[1] == 1 and N != 1:
        rows = rows.squeeze(1)
    if rows.ndim == 3 and rows.shape[:2] == (B, N):
        rows = rows.sum(2)
    if rows.shape != (B, N):
        raise ValueError(
            f"attributions: given {shape_of(attributions)}, needed [{B}, {N}], [{B}, 1, {N}] or "
            f"[{B}, {N}, E], as the model's inputs"
        )
    scores = rows.detach().to(batch.device)[batch.instance_of_item, batch.positions]  # [T]
    wrong = scores.isnan()
    if wrong.any():
        item = int(wrong.int().argmax())
        raise ValueError(
            f"attributions: given NaN in instance {int(batch.instance_of_item[item])} at "
            f"{int(batch.positions[item])}, needed numbers"
        )
    return scores if scores.is_floating_point() else scores.double()


def require_inputs(model: AttentionModel, inputs: Tensor) -> None:
    """Check that inputs are those of the model, in which nothing is erased yet.

    Raises:
        ValueError: they are not.
    """
    check_tensor("inputs", inputs)
    B, N = model.inputs.shape
    rows = inputs.squeeze(1) if inputs.ndim == 3 and inputs.shape[1] == 1 else inputs
    if rows.shape != (B, N):
        raise ValueError(f"inputs: given {shape_of(inputs)}, needed [{B}, {N}] or [{B}, 1, {N}]")
    same = (rows.to(model.inputs) == model.inputs).all(1)  # [B]
    if not same.all():
        row = int((~same).int().argmax())
        raise ValueError(
            f"inputs: given others than model.inputs in row {row}, needed 1 where an item is and 0 "
            "elsewhere: erasing starts from whole instances"
        )
