"""The last layer at the classifying position as items, and what maps their average to logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fastattnerase.huggingface.families import Family
from fastattnerase.models.base import without_dropout

_HEAD_BYTES = 1 << 24  # of the head's intermediate results, for a part of its rows
_FLOAT = 4


class LastLayer(nn.Module):
    """The rest of the last layer and the model's head, for the classifying position alone.

    Args:
        family: the model's architecture.
        residual: `[B, hidden]`, what the layer was given at the classifying position of each text.
    """

    def __init__(self, family: Family, residual: Tensor) -> None:
        super().__init__()
        self.model = family.model  # its modes are this module's
        self._family = family
        self._residual = residual
        widest = max(max(part.weight.shape) for part in _linear(family.layer))
        self._rows = max(1, _HEAD_BYTES // (_FLOAT * 4 * widest))

    def forward(self, pooled: Tensor, instance: Tensor) -> Tensor:
        """Map what heads average, `[M, H, d]`, of texts `[M]` to logits `[M, C]`.

        Rows are taken some at a time, so that what lies between takes 16 MiB at most. Dropout is
        off, also where the model trains.
        """
        starts = range(0, max(1, len(pooled)), self._rows)
        with without_dropout(self.model):
            parts = [self._some(pooled, instance, slice(i, i + self._rows)) for i in starts]
        return torch.cat(parts)

    def _some(self, pooled: Tensor, instance: Tensor, rows: slice) -> Tensor:
        x_p = self._residual[instance[rows]]  # [m, hidden]
        hidden = self._family.after(pooled[rows].flatten(1), x_p)  # [m, hidden]
        return self._family.classify(hidden)  # [m, C]


def _linear(layer: nn.Module) -> list[nn.Linear]:
    return [part for part in layer.modules() if isinstance(part, nn.Linear)]


def projected(family: Family, states: Tensor) -> tuple[Tensor, Tensor]:
    """Compute what the classifying position attends to, and how much.

    `e_{h,i} = q_h · k_{h,i} / √d`.

    Args:
        family: the architecture.
        states: `[b, L, hidden]`, what the last layer is given.

    Returns:
        Values `[b, L, H, d]` and scores `[b, L, H]`.
    """
    to_query, to_key, to_value = family.projections
    H = family.heads
    query = to_query(states[:, 0]).unflatten(-1, (H, -1))  # [b, H, d]
    keys = to_key(states).unflatten(-1, (H, -1))  # [b, L, H, d]
    values = to_value(states).unflatten(-1, (H, -1))  # [b, L, H, d]
    scores = torch.einsum("bhd,blhd->blh", query, keys) / query.shape[-1] ** 0.5
    return values, scores


def merged(values: Tensor, scores: Tensor, item: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Make one item of several positions that are erased together.

    An item's score is `log Σ exp(e_i)` of its positions, its value their average by the softmax of
    their scores, for each head: what any set of whole items gives attention is the same. An item
    without positions has the score -inf and the value 0. The derivative by an item's weight is the
    average of its positions' derivatives, not their sum: a word of two pieces that are alike is as
    sensitive as one of a single piece.

    Args:
        values: `[P, H, d]`, floating point, of positions.
        scores: `[P, H]`.
        item: `[P]`, int64, the item of each position.
        count: items, N.

    Returns:
        Values `[N, H, d]`, and scores `[N, H]`.

    Example:
        >>> values, scores = torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[0.0], [0.0]])
        >>> merged(values, scores, torch.tensor([0, 0]), 1)[0].tolist()
        [[[2.0]]]
    """
    H = scores.shape[1]
    index = item[:, None].expand(-1, H)  # [P, H]
    top = scores.new_full((count, H), -torch.inf).scatter_reduce(0, index, scores, "amax")
    share = (scores - top[item]).exp()  # [P, H]
    total = scores.new_zeros(count, H).index_add(0, item, share)  # [N, H]
    weight = share / total[item]  # [P, H]
    shares = weight[..., None] * values  # [P, H, d]
    found = values.new_zeros(count, *values.shape[1:]).index_add(0, item, shares)
    return found, top + total.log()
