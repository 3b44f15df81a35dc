"""A metric in the form of Captum's, answered by the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastattnerase.interop.attention_model import AttentionModel
from fastattnerase.interop.prefixes import (
    measured,
    packed_attributions,
    read_classes,
    require_inputs,
    require_measure,
    require_model,
)
from fastattnerase.plurals import counted


def prefix_erasure(
    forward_func: AttentionModel | Callable[..., Tensor],
    inputs: Tensor | tuple[Tensor],
    attributions: Tensor | tuple[Tensor],
    *,
    target: int | Tensor | list[int] | None = None,
    measure: str = "aopc_comprehensiveness",
    **options: Any,
) -> Tensor:
    """Measure attributions by erasing their prefixes, in the form of Captum's `infidelity`.

    Captum's metrics call a black box again and again; this one has the curve over every prefix from
    one call of the engine, so it takes the attention layer itself.

    Args:
        forward_func: an `interop.AttentionModel`, or its `forward`.
        inputs: its `inputs`, [B, N] or [B, 1, N], or a tuple of them alone.
        attributions: [B, N], [B, 1, N] or [B, N, E] (summed over features), or a tuple of one: what
            any of Captum's methods gives. What stands where no item is, is not read.
        target: the class, one or one an instance; default: the decision.
        measure: "aopc_comprehensiveness", "comprehensiveness", "deletion_area",
            "aopc_sufficiency", "sufficiency" or "insertion_area"; see `measures.find` for their
            directions.
        options: of the measure, such as `preset="every"` or `fraction=0.2`.

    Returns:
        [B], float64, NaN where undefined.

    Raises:
        TypeError: `forward_func` is a black box; a target that is no integer; an option that the
            measure does not have.
        ValueError: an unknown measure; inputs that are not the model's; attributions of another
            shape, or NaN, naming the instance; a class that does not exist; a model of one output.

    Example:
        >>> import torch, fastattnerase as fae
        >>> from fastattnerase.interop import AttentionModel
        >>> from fastattnerase.interop.captum import prefix_erasure
        >>> batch = fae.AttentionBatch(
        ...     torch.eye(2), torch.tensor([0, 2]), weights=torch.tensor([0.25, 0.75]),
        ...     head_weight=torch.eye(2),
        ... )
        >>> model = AttentionModel(batch)
        >>> scores = torch.tensor([[0.0, 1.0]])
        >>> found = prefix_erasure(model, model.inputs, scores, measure="deletion_area")
        >>> round(found.item(), 3)
        0.415
    """
    model = require_model(forward_func, "forward_func")
    require_measure(measure)
    batch = model.batch
    require_inputs(model, _only("inputs", inputs))
    scores = packed_attributions(batch, model.inputs.shape[1], _only("attributions", attributions))
    classes = None
    if target is not None:
        classes = read_classes("target", target)
        if classes.numel() == 1:
            classes = classes.expand(len(batch))
    return torch.from_numpy(measured(batch, scores, classes, measure, options).values)


def _only(name: str, given: Tensor | tuple[Tensor]) -> Tensor:
    """Take the tensor out of Captum's tuples of one."""
    if not isinstance(given, tuple):
        return given
    if len(given) != 1:
        raise ValueError(f"{name}: given {counted(len(given), 'tensor')}, needed one")
    return given[0]
