"""Shapley values of attention pooling, without sampling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName
from fastattnerase.exact_problems import ShapleyOutputs
from fastattnerase.ops.exact_library import shapley_op
from fastattnerase.ops.results import _Record, _table
from fastattnerase.ops.terms import terms_of


@dataclass(eq=False, repr=False)
class ShapleyValues(_Record):
    """What each item adds to the logits, averaged over all orders in which items can join.

    Axes: `B` instances, `T` items, `C` classes. Reals are NaN where an instance has something that
    is not finite.

    Attributes:
        values: [T, C], float64: of each logit; their sum over an instance is its logits less the
            bias.
        error: [B], float64: the largest change of a value by the last refinement of the nodes,
            which bounds the error of the rule before it; that of the values is far smaller.
        efficiency: [B], float64: the largest distance, over classes, of the sum of the values from
            the logits less the bias, a check that knows the answer.
        nodes: [B], int64: nodes of the integral in the last refinement, -1 where there is no
            answer.
        label: [B], int64: the original decision, -1 where something is not finite.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
    """

    values: Tensor
    error: Tensor
    efficiency: Tensor
    nodes: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor

    def to_pandas(self) -> object:
        """Make a table with a row per instance; items stay out.

        Columns: instance (the row of the batch), n, label, status, status_names, error,
        efficiency, nodes.
        """
        return _table(
            {
                "instance": torch.arange(len(self.label)),
                "n": self.offsets.diff(),
                "label": self.label,
                "status": self.status,
                "error": self.error,
                "efficiency": self.efficiency,
                "nodes": self.nodes,
            }
        )

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(instance=len(self.label), item=len(self.values))


def shapley_values(
    batch: AttentionBatch,
    *,
    tolerance: float = 1e-9,
    backend: BackendName = "auto",
    validate: bool | None = None,
) -> ShapleyValues:
    """Compute the Shapley values of the pooled logits, of all items at once.

    `φ_i = Σ_S |S|! (n − |S| − 1)! / n! [v(S ∪ i) − v(S)]` over the sets `S` without `i`, with
    `v(S) = Σ_S a_j W h_j / Σ_S a_j + b`, and `b` of the empty set. As
    `1 / Σ_S a = ∫ exp(−u Σ_S a) du`, it is an integral over `u` and the probability `p` with which
    every other item is kept, of products over items; the trapezoidal rule in transformed variables
    is refined until it stands still. A node costs O(n C): no sampling, and no limit on n. Items
    without weight have zero.

    Args:
        batch: B instances of T items in all, with a linear head and one attention head.
        tolerance: change of a value by the last refinement, and distance of their sum from what it
            has to be, of the instance's largest value, at which refining ends, 1e-9 by default;
            `error` and `efficiency` say what was reached.
        backend: "auto" or the name of one, "cpu" or "reference"; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.

    Returns:
        A `ShapleyValues`.

    Raises:
        ValueError: naming the argument, what was given and what is needed; for a callable head and
            for several attention heads.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: Shapley 1953, "A Value for n-Person Games".

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.tensor([[3.0], [0.0]]), torch.tensor([0, 2]),
    ...     weights=torch.tensor([0.5, 0.5]), head_weight=torch.tensor([[1.0]]),
    ... )
    >>> fae.shapley_values(batch).values[:, 0].round(decimals=9).tolist()
    [2.25, -0.75]
    """
    if not tolerance > 0:
        raise ValueError(f"tolerance: given {tolerance}, needed above 0")
    terms = terms_of(batch, "Shapley values", backend, validate)
    _, _, attention, is_scores = batch.packed  # [T, 1]
    logs = terms.weights.log()  # [T]
    if is_scores:  # weights may underflow, scores do not
        logs = attention[:, 0].double()
    chosen = backend if backend in ("cpu", "reference") else "auto"
    found: list[Tensor] = shapley_op(
        batch.offsets, terms.status, logs, terms.contributions, tolerance, chosen
    )
    return ShapleyValues(
        **vars(ShapleyOutputs(*found)),
        label=terms.label,
        status=terms.status,
        offsets=batch.offsets,
    )
