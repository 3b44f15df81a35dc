"""Sequences one after another, without padding: `[T, ...]` with lengths `[B]`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def offsets_of(lengths: Tensor) -> Tensor:
    """Give where each sequence starts, and the end of the last: `[B]` int64 → `[B + 1]`."""
    return F.pad(lengths.cumsum(0), (1, 0))


def gather(values: Tensor, index: Tensor) -> Tensor:
    """Give rows by index: `[T, D]`, `[...]` int64 → `[..., D]`.

    The embedding lookup: unlike indexing, its backward pass is parallel on CPUs, and the same from
    run to run on GPUs.
    """
    return F.embedding(index, values)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the items of a mask, exact at any magnitude of the scores.

    `a_i = exp(e_i - max e) / Σ_j exp(e_j - max e)` over the items in the mask; 0 outside, and for a
    row without items.

    Args:
        scores: `[..., N]`, floating point; -inf inside the mask is weight zero.
        mask: `[..., N]`, bool.

    Returns:
        `[..., N]`, the weights.

    Example:
        >>> masked_softmax(torch.tensor([1.0, 1.0, 100.0]), torch.tensor([True, True, False]))
        tensor([0.5000, 0.5000, 0.0000])
    """
    scores = scores.masked_fill(~mask, -torch.inf)  # [..., N]
    top = scores.detach().amax(-1, keepdim=True)  # [..., 1]
    top = top.masked_fill(top == -torch.inf, 0.0)
    weights = (scores - top).exp()  # [..., N]
    total = weights.sum(-1, keepdim=True)  # [..., 1], at least 1 where an item has a finite score
    return weights / total.masked_fill(total == 0, 1.0)


def segment_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Softmax within each sequence.

    Args:
        scores: `[T]`, floating point.
        lengths: `[B]`, int64, sum `T`; 0 is allowed.

    Returns:
        `[T]`, the weights; those of a sequence add to 1.

    Example:
        >>> segment_softmax(torch.tensor([0.0, 0.0, 7.0]), torch.tensor([2, 0, 1]))
        tensor([0.5000, 0.5000, 1.0000])
    """
    if len(scores) == 0:
        return scores
    columns = torch.arange(int(lengths.max()), device=lengths.device)  # [N]
    mask = columns < lengths[:, None]  # [B, N]
    padded = scores.new_zeros(mask.shape).masked_scatter(mask, scores)  # [B, N]
    return masked_softmax(padded, mask)[mask]  # [T]


def segment_log_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Logarithm of the softmax within each sequence; finite also where weights underflow.

    Args:
        scores: `[T]`, floating point.
        lengths: `[B]`, int64, sum `T`; 0 is allowed.

    Returns:
        `[T]`.

    Example:
        >>> segment_log_softmax(torch.tensor([0.0, -1000.0]), torch.tensor([2])).tolist()
        [0.0, -1000.0]
    """
    if len(scores) == 0:
        return scores
    columns = torch.arange(int(lengths.max()), device=lengths.device)  # [N]
    mask = columns < lengths[:, None]  # [B, N]
    padded = scores.new_full(mask.shape, -torch.inf).masked_scatter(mask, scores)  # [B, N]
    return padded.log_softmax(1)[mask]  # [T]


def segment_pool(values: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """Weighted sum of each sequence's items: `c_b = Σ_i a_i h_i`.

    Args:
        values: `[T, D]`, floating point.
        weights: `[T]`, same dtype.
        lengths: `[B]`, int64, sum `T`; a sequence of length 0 gives zeros.

    Returns:
        `[B, D]`.

    Example:
        >>> segment_pool(torch.eye(2), torch.tensor([3.0, 4.0]), torch.tensor([2, 0]))
        tensor([[3., 4.],
                [0., 0.]])
    """
    if len(values) == 0:
        return values.new_zeros(len(lengths), values.shape[1])
    return F.embedding_bag(
        torch.arange(len(values), device=values.device),
        values,
        offsets_of(lengths),
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )
