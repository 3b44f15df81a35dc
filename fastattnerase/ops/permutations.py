"""Attention weights permuted within each instance, by the words of the ranking `random`."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.functions import rank

# Permutation p is the order of number 2^33 + p of the ranking "random", which nobody draws.
FIRST_PERMUTATION = 2**33


def permutation_order(batch: AttentionBatch, permutation: int, *, seed: int = 0) -> Tensor:
    """Draw a permutation of each instance: the random order of number `2^33 + permutation`.

    It depends on the seed, the number, the instance's id and its length alone: on the backend and
    on what else is in the batch it does not.

    Args:
        batch: B instances of T items in all.
        permutation: its number, 0 or more.
        seed: 0 … 2^63 - 1.

    Returns:
        [T], int64, on the CPU: `π(i)` of each item, positions within the instance.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.zeros(5, 1), torch.tensor([0, 3, 5]), scores=torch.zeros(5),
        ...     head_weight=torch.zeros(2, 1))
        >>> order = permutation_order(batch, 4, seed=7)
        >>> bool((order == fae.rank(batch, "random", seed=7, order=2**33 + 4)).all())
        True
    """
    if permutation < 0:
        raise ValueError(f"permutation: given {permutation}, needed 0 or more")
    nothing = torch.zeros(batch.num_items, 1)  # what is permuted has no part in the order
    blank = AttentionBatch(
        nothing,
        batch.offsets.cpu(),
        weights=nothing[:, 0],
        head_weight=torch.zeros(2, 1),
        ids=batch.ids.cpu(),
    )
    return rank(blank, "random", seed=seed, order=FIRST_PERMUTATION + permutation)


def permuted(
    batch: AttentionBatch,
    per_item: Tensor,
    permutation: int,
    *,
    seed: int = 0,
    among: Tensor | None = None,
) -> Tensor:
    """Permute what items have within each instance: item `i` is given that of item `π(i)`.

    Args:
        batch: B instances of T items in all.
        per_item: [T] or [T, H], such as weights or scores; heads move together.
        permutation: its number, 0 or more; see `permutation_order`.
        seed: 0 … 2^63 - 1.
        among: [T], bool: the items that take part; the others keep theirs. All by default.

    Returns:
        As `per_item`.

    Source: Jain and Wallace 2019, section 4.2.1.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.zeros(5, 1), torch.tensor([0, 3, 5]), scores=torch.zeros(5),
        ...     head_weight=torch.zeros(2, 1))
        >>> moved = permuted(batch, torch.arange(5), 0)
        >>> moved[:3].sort().values.tolist(), moved[3:].sort().values.tolist()
        ([0, 1, 2], [3, 4])
    """
    order = permutation_order(batch, permutation, seed=seed).to(batch.device)
    items = batch.offsets[batch.instance_of_item] + order  # [T], a permutation of all
    if among is None:
        return per_item[items]
    moved = per_item.clone()
    moved[among] = per_item[items[among[items]]]
    return moved
