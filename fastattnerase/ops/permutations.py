"""Attention weights permuted within each instance, by the words of the ranking `random`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.functions import rank
from fastattnerase.ops.plan import plan_rankings
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, run
from fastattnerase.problem import BIT, FIRST_PERMUTATION


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
    return rank(_blank(batch), "random", seed=seed, order=FIRST_PERMUTATION + permutation)


def permutation_orders(
    batch: AttentionBatch, permutations: int, seed: int, most: int
) -> Iterator[tuple[slice, Tensor]]:
    """Draw permutations as `permutation_order` does, at most `most` at a time.

    Yields their numbers as a slice, and the orders [m, T], int64, on the CPU.
    """
    blank = _blank(batch)
    for begin in range(0, permutations, most):
        end = min(begin + most, permutations)
        plan = plan_rankings(blank, ("random",), end - begin, FIRST_PERMUTATION + begin)
        out = run(blank, plan, BIT["order"], seed, False, "auto", True, DEFAULT_MAX_BYTES)
        assert out.order is not None  # asked for
        yield slice(begin, end), out.order


def _blank(batch: AttentionBatch) -> AttentionBatch:
    """Keep of a batch what random orders depend on: instances of the same ids and lengths."""
    nothing = torch.zeros(batch.num_items, 1)
    return AttentionBatch(
        nothing,
        batch.offsets.cpu(),
        weights=nothing[:, 0],
        head_weight=torch.zeros(2, 1),
        ids=batch.ids.cpu(),
    )


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
