"""The smallest sets of items that alone give the decision."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName
from fastattnerase.exact_problems import SufficientOutputs
from fastattnerase.ops.exact_library import sufficient_op
from fastattnerase.ops.results import _Record, _table
from fastattnerase.ops.terms import terms_of
from fastattnerase.ops.thresholds import per_instance
from fastattnerase.reference.instance import NEAR_TIE_TOLERANCE
from fastattnerase.status import Status


@dataclass(eq=False, repr=False)
class SufficientSet(_Record):
    """A smallest set of items that alone gives the decision.

    Axes: `B` instances, `T` items in all.

    Attributes:
        size: [B], int64: items of the set, 1 or more; -1 where there is none (no items, no mass,
            something not finite, scores that span more than 600).
        least: [B], int64: no set with fewer items suffices, -1 where there is none.
        order: [T], int64: positions within the instance; the first `size` of an instance are the
            set, the rest are by position.
        label: [B], int64: the original decision, -1 where something is not finite.
        status: [B], int64: bits of `Status`; NEAR_TIE where a sum that decided is one.
        offsets: [B + 1], int64: where each instance's items begin.
    """

    size: Tensor
    least: Tensor
    order: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor

    @property
    def optimal(self) -> Tensor:
        """[B], bool: whether the set is known to be as small as any."""
        return (self.size > 0) & (self.size == self.least)

    def to_pandas(self) -> object:
        """Make a table with a row per instance.

        Columns: instance (the row of the batch), n, label, status, status_names, size, least,
        optimal.
        """
        return _table(
            {
                "instance": torch.arange(len(self.size)),
                "n": self.offsets.diff(),
                "label": self.label,
                "status": self.status,
                "size": self.size,
                "least": self.least,
                "optimal": self.optimal,
            }
        )

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(instance=len(self.size), item=len(self.order))


def minimal_sufficient_set(
    batch: AttentionBatch,
    *,
    threshold: float | Tensor | None = None,
    backend: BackendName = "auto",
    validate: bool | None = None,
) -> SufficientSet:
    """Find a smallest set of items that alone, everything else erased, gives the decision.

    A set `S` gives `y` where `Σ_S a_i m_{i,c} > 0` for every rival `c`, or `= 0` with `c > y`,
    `m_{i,c}` the margin that item `i` gives alone, biases included. A weighted mean never exceeds
    its largest member: one item suffices wherever there is one with all margins ahead, which with
    two classes is always. Of several the one whose nearest rival is farthest is taken. With more
    classes there may be none: then pairs are tried, all of them up to 2,048 items, and beyond two
    items the set is built greedily and spared what it can; `optimal` says where it is proved
    smallest. The empty set, whose logits are the bias, does not count.

    Args:
        batch: B instances of T items in all, with a linear head and one attention head.
        threshold: where there is one output, and needed there: the set keeps it on the side where
            it is with everything, at least the threshold or below it; a number, or one an instance
            [B], a float type.
        backend: "auto" or the name of one, "cpu" or "reference"; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.

    Returns:
        A `SufficientSet`.

    Raises:
        ValueError: naming the argument, what was given and what is needed; for a callable head and
            for several attention heads.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: the sufficiency of DeYoung et al. 2020, "ERASER", section 4, as a set.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.6, 0.3, 0.1]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> found = fae.minimal_sufficient_set(batch)
    >>> found.size.tolist(), found.order.tolist(), found.optimal.tolist()
    ([1], [0, 1, 2], [True])
    """
    terms = terms_of(batch, "a sufficient set", backend, validate)
    C = batch.num_classes
    if (threshold is None) == (C == 1):
        given = "none" if threshold is None else "one"
        raise ValueError(
            f"threshold: given {given} with C = {C}, needed one for one output and none for classes"
        )
    own, empty = terms.margins()  # [T, K], [B, K]
    tolerance = terms.tolerance()  # [B]
    rivals = terms.rivals()  # [B, K]
    wins = (rivals < terms.label[:, None]).long()  # [B, K]
    if threshold is not None:
        t = per_instance(batch, "threshold", threshold)  # [B]
        weighed = terms.weights * own[:, 0]  # [T]
        whole = empty[:, 0] * 0  # [B]
        whole = whole.index_add(0, batch.instance_of_item, weighed)
        below = (whole < t) & (terms.status & int(Status.ZERO_MASS | Status.EMPTY) == 0)  # [B]
        sign = torch.where(below, -1.0, 1.0).double()  # [B]
        own = sign[batch.instance_of_item, None] * (own - t[batch.instance_of_item, None])
        wins, tolerance = below.long()[:, None], tolerance + NEAR_TIE_TOLERANCE * t.abs()
    chosen = backend if backend in ("cpu", "reference") else "auto"
    found = SufficientOutputs(
        *sufficient_op(
            batch.offsets, terms.status, terms.weights, own.contiguous(), wins, tolerance, chosen
        )
    )
    status = terms.status | found.near * int(Status.NEAR_TIE)
    return SufficientSet(found.size, found.least, found.order, terms.label, status, batch.offsets)
