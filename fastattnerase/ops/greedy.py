"""The greedy order of long instances, and the first of its items alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName
from fastattnerase.exact_problems import GreedyOutputs
from fastattnerase.ops.emptied import Empty, emptied, gives_bias
from fastattnerase.ops.exact_library import greedy_op
from fastattnerase.ops.groups import Groups, group_items
from fastattnerase.ops.results import _Record, _table
from fastattnerase.ops.running import check_batch
from fastattnerase.ops.terms import terms_of
from fastattnerase.ops.zeroed import greedy_zeroed


@dataclass(eq=False, repr=False)
class GreedyOrder(_Record):
    """Items in the order in which greedy removal takes them.

    Axes: `B` instances, `T` items in all.

    Attributes:
        order: [T], int64: positions within the instance; the first `removed` of an instance are
            those that were removed, the rest are by position. A ranking as it stands.
        removed: [B], int64: how many were removed; with `until_flip` the first flip where the
            last of them flips. -1 where there is nothing to remove (no items, something not
            finite, scores that span more than 600).
        certain: [B], int64: steps before the first near-tie, where the next best item leaves a
            margin within 3e-6 of the scale of the logits: from there another backend may go
            another way. `removed` where there is none.
        label: [B], int64: the original decision, -1 where something is not finite.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
        groups: which items each group holds, a `Groups`, where groups were removed, which `T`,
            orders and numbers then count; else None.
    """

    order: Tensor
    removed: Tensor
    certain: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor
    groups: Groups | None = None

    def to_pandas(self) -> object:
        """Make a table with a row per instance.

        Columns: instance (the row of the batch), n, label, status, status_names, removed, certain.
        """
        return _table(
            {
                "instance": torch.arange(len(self.label)),
                "n": self.offsets.diff(),
                "label": self.label,
                "status": self.status,
                "removed": self.removed,
                "certain": self.certain,
            }
        )

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(instance=len(self.label), item=len(self.order))


def greedy_order(
    batch: AttentionBatch,
    *,
    steps: int | None = None,
    until_flip: bool = False,
    groups: Tensor | None = None,
    renormalize: bool = True,
    empty: Empty = "bias",
    backend: BackendName = "auto",
    validate: bool | None = None,
) -> GreedyOrder:
    """Remove at each step the item whose erasure leaves the least `min_{c≠y} (z_y − z_c)`.

    The order of the ranking "greedy", ties by position, in less than O(n^2): with `Z = Σ a_j` and
    `N = Σ a_j m_j` over the survivors item `i` leaves the slope `(N − a_i m_i) / (Z − a_i)` of the
    line from the point `(a_i, a_i m_i)` to `(Z, N)`, least at a vertex of the points' upper hull.
    Of one output the item that leaves the least output is removed.

    Args:
        batch: B instances of T items in all, with a linear head and one attention head (any number
            with `renormalize=False`).
        steps: items removed of each instance at most, 0 or more; None: all.
        until_flip: whether to stop at the first flip of the decision (of one output, below 0).
        groups: as of `erase_prefixes`: whole groups are removed, and `T` counts groups.
        renormalize: False: the survivors' weights stay as they are, as of `erase_prefixes`. A sort
            where there are two classes or one output, else a pass over the items a step, `O(n^2)`.
        empty: what is there where no mass is left, as of `erase_prefixes`.
        backend: "auto" or the name of one, "cpu" or "reference" (with `renormalize=False` any);
            see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.

    Returns:
        A `GreedyOrder`.

    Raises:
        ValueError: naming the argument, what was given and what is needed; for a callable head and
            for several attention heads.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: greedy removal as of Samek et al. 2017, "Evaluating the Visualization of What a Deep
    Neural Network Has Learned", with every item tried at every step.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.2, 0.5, 0.3]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> found = fae.greedy_order(batch, until_flip=True)
    >>> found.order.tolist(), found.removed.tolist()
    ([2, 1, 0], [2])
    """
    if steps is not None and steps < 0:
        raise ValueError(f"steps: given {steps}, needed 0 or more")
    made = None
    check_batch(batch)
    if groups is not None:
        batch, made = group_items(batch, groups)
    if not gives_bias(batch, empty, renormalize):
        assert not isinstance(empty, str)
        batch = emptied(batch, empty, backend)
    if not renormalize:
        most = -1 if steps is None else steps
        found, label, status = greedy_zeroed(batch, most, until_flip, backend, validate)
        return GreedyOrder(
            found.order, found.removed, found.certain, label, status, batch.offsets, made
        )
    terms = terms_of(batch, "a greedy order", backend, validate)
    own, empty = terms.margins()  # [T, K], [B, K]
    wins = (terms.rivals() < terms.label[:, None]).long()  # [B, C - 1]
    if not wins.shape[1]:
        wins = torch.zeros_like(empty, dtype=torch.int64)  # [B, 1]
    found = GreedyOutputs(
        *greedy_op(
            batch.offsets,
            terms.status,
            terms.weights,
            own.contiguous(),
            empty.contiguous(),
            wins,
            terms.tolerance(),
            -1 if steps is None else steps,
            until_flip,
            backend if backend in ("cpu", "reference") else "auto",
        )
    )
    return GreedyOrder(
        found.order, found.removed, found.certain, terms.label, terms.status, batch.offsets, made
    )
