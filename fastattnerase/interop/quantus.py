"""A metric of Quantus, answered by the engine; the extra `quantus` installs it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastattnerase import measures
from fastattnerase.extras import needs
from fastattnerase.interop.attention_model import AttentionModel
from fastattnerase.interop.prefixes import (
    label_curve,
    measured,
    packed_attributions,
    read_classes,
    require_inputs,
    require_measure,
    require_model,
)

with needs("quantus"):
    from quantus.helpers.enums import DataType, EvaluationCategory, ModelType, ScoreDirection
    from quantus.metrics.base import Metric


class PrefixErasure(Metric):  # type: ignore[misc]  # its types are not published
    """Erase every prefix of an attribution's order: Pixel-Flipping of an attention layer at once.

    The metric's model is an `interop.AttentionModel`, `x_batch` its `inputs`. The curve of the
    probability of `y_batch` over every prefix is that of `quantus.PixelFlipping` with
    `perturb_baseline=0.0` and `softmax=True`, from one call of the engine a batch.

    Args:
        measure: "curve", the probabilities after 1 … n items are erased, as PixelFlipping returns
            them; or a measure of it: "aopc_comprehensiveness", "comprehensiveness",
            "deletion_area", "aopc_sufficiency", "sufficiency", "insertion_area".
        options: of the measure, such as `{"preset": "every"}`.
        abs: whether attributions count by their absolute values.
        normalise: whether attributions are normalised first, which does not change an order but
            for `abs` and negative largest values; default: not.
        normalise_func: Quantus' default where None.
        normalise_func_kwargs: of it.
        return_aggregate: whether one number over all instances is returned.
        aggregate_func: that makes it; default: the mean.
        disable_warnings: kept for the form.
        display_progressbar: whether a progress bar is shown.

    Raises:
        ValueError: an unknown measure.

    Example:
        >>> from fastattnerase.interop.quantus import PrefixErasure  # doctest: +SKIP
        >>> metric = PrefixErasure(return_aggregate=True)  # doctest: +SKIP
        >>> metric(model=model, x_batch=model.inputs.numpy(), y_batch=labels,
        ...        a_batch=attributions)  # doctest: +SKIP
        [0.41]
    """

    name = "Prefix Erasure"
    data_applicability = {DataType.IMAGE, DataType.TIMESERIES, DataType.TABULAR, DataType.TEXT}  # noqa: RUF012
    model_applicability = {ModelType.TORCH}  # noqa: RUF012
    score_direction = ScoreDirection.HIGHER  # of the default measure; instances have their own's
    evaluation_category = EvaluationCategory.FAITHFULNESS

    def __init__(
        self,
        measure: str = "aopc_comprehensiveness",
        *,
        options: dict[str, Any] | None = None,
        abs: bool = False,
        normalise: bool = False,
        normalise_func: Callable[..., Any] | None = None,
        normalise_func_kwargs: dict[str, Any] | None = None,
        return_aggregate: bool = False,
        aggregate_func: Callable[..., Any] | None = None,
        disable_warnings: bool = False,
        display_progressbar: bool = False,
    ) -> None:
        if measure != "curve":
            require_measure(measure)
        super().__init__(
            abs=abs,
            normalise=normalise,
            normalise_func=normalise_func,
            normalise_func_kwargs=normalise_func_kwargs,
            return_aggregate=return_aggregate,
            aggregate_func=aggregate_func,
            default_plot_func=None,
            disable_warnings=disable_warnings,
            display_progressbar=display_progressbar,
        )
        self.measure = measure
        self.options = dict(options or {})
        better = "lower" if measure == "curve" else measures.find(measure).better
        self.score_direction = ScoreDirection(better)

    def __call__(
        self,
        model: AttentionModel,
        x_batch: NDArray[Any],
        y_batch: NDArray[Any],
        a_batch: NDArray[Any] | None = None,
        s_batch: NDArray[Any] | None = None,
        channel_first: bool | None = None,
        explain_func: Callable[..., Any] | None = None,
        explain_func_kwargs: dict[str, Any] | None = None,
        model_predict_kwargs: dict[str, Any] | None = None,
        softmax: bool | None = True,
        device: str | None = None,
        batch_size: int = 64,
        **kwargs: Any,
    ) -> list[Any]:
        """Evaluate attributions, with the arguments of every Quantus metric.

        Args:
            model: an `interop.AttentionModel` of B instances.
            x_batch: its `inputs`, [B, N] or [B, 1, N].
            y_batch: [B], the classes.
            a_batch: attributions in the form of `x_batch`; None where `explain_func` makes them.
                What stands where no item is, is not read.
            s_batch: not read.
            channel_first: as Quantus has it.
            explain_func: Quantus', called for all instances at once.
            explain_func_kwargs: of it.
            model_predict_kwargs: not read: the engine decides.
            softmax: whether probabilities are wanted, which is all there is.
            device: as Quantus has it.
            batch_size: instances at a time.
            kwargs: Quantus'.

        Returns:
            A score (or curve) for each instance, or their aggregate in a list of one.

        Raises:
            TypeError: the model is a black box; classes that are no integers.
            ValueError: `softmax=False`, inputs that are not the model's, attributions of another
                shape or NaN, a class that does not exist, a model of one output.
        """
        model = require_model(model, "model")
        if not softmax:
            raise ValueError("softmax: given False, needed True: curves are of probabilities")
        require_inputs(model, torch.as_tensor(np.asarray(x_batch)))
        rows = np.asarray(x_batch).reshape(len(x_batch), 1, -1)  # [B, 1, N]
        if a_batch is None and explain_func is not None:
            a_batch = explain_func(
                model=model, inputs=rows, targets=y_batch, **(explain_func_kwargs or {})
            )
        if a_batch is not None:
            a_batch = np.where(rows != 0, _in_rows(np.asarray(a_batch), rows.shape), 0)
        found: list[Any] = super().__call__(
            model=model,
            x_batch=rows,
            y_batch=read_classes("y_batch", np.asarray(y_batch)).numpy(),
            a_batch=a_batch,
            s_batch=s_batch,
            custom_batch=np.arange(len(rows)),
            channel_first=True if channel_first is None else channel_first,
            explain_func=explain_func,
            explain_func_kwargs=explain_func_kwargs,
            softmax=softmax,
            device=device,
            model_predict_kwargs=model_predict_kwargs,
            batch_size=batch_size,
            **kwargs,
        )
        return found

    def evaluate_batch(
        self,
        model: Any,
        y_batch: NDArray[Any],
        a_batch: NDArray[Any],
        custom_batch: NDArray[np.int64],
        **kwargs: Any,
    ) -> list[Any]:
        """Evaluate the instances of consecutive numbers, `custom_batch`; Quantus calls it."""
        whole = require_model(model.get_model() if hasattr(model, "get_model") else model, "model")
        first, last = int(custom_batch[0]), int(custom_batch[-1])
        part = whole.batch[first : last + 1]
        given = torch.as_tensor(np.ascontiguousarray(a_batch))
        scores = packed_attributions(part, whole.inputs.shape[1], given)
        target = torch.as_tensor(y_batch)
        if self.measure != "curve":
            values = measured(part, scores, target, self.measure, self.options).values
            return list(values.tolist())
        curve, offsets = label_curve(part, scores, target, "erase")
        return [curve[begin + 1 : end].tolist() for begin, end in pairwise(offsets.tolist())]


def _in_rows(given: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Bring attributions into the form [B, 1, N] of the inputs."""
    B, _, N = shape
    if given.shape not in ((B, N), (B, 1, N), (B, N, 1)):
        raise ValueError(
            f"a_batch: given {list(given.shape)}, needed [{B}, {N}] or [{B}, 1, {N}], as x_batch"
        )
    return given.reshape(shape)
