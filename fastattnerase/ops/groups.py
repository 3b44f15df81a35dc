"""Items that are erased together: sentences, regions, the pieces of a word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.plan import RankingLike
from fastattnerase.ops.results import _Record
from fastattnerase.tensor_checks import check_devices, check_tensor, shape_of

# What a block of features of the items takes in float64 while it is averaged.
_BLOCK_BYTES = 64 * 2**20


@dataclass(eq=False, repr=False)
class Groups(_Record):
    """Which items of a batch are erased together.

    Axes: `G` groups of `B` instances, one instance after the other, those of an instance in the
    order in which their first items stand; `T` items.

    Attributes:
        ids: [G], int64: the number that the caller gave the group.
        offsets: [B + 1], int64: where each instance's groups begin.
        of_item: [T], int64: the row, 0 … G - 1, of each item's group.
        items: [T], int64: the rows of the items, group after group, by position within one.
        item_offsets: [G + 1], int64: where each group's items begin in `items`.
    """

    ids: Tensor
    offsets: Tensor
    of_item: Tensor
    items: Tensor
    item_offsets: Tensor

    @property
    def sizes(self) -> Tensor:
        """[G], int64: items of each group."""
        return self.item_offsets.diff()

    def spread(self, per_group: Tensor) -> Tensor:
        """Give every item what its group has: [G, …] to [T, …]."""
        return per_group[self.of_item]

    def first(self, order: Tensor, count: Tensor) -> Tensor:
        """Mark the items of the first `count` groups of an order.

        Args:
            order: positions of groups within their instance, such as a minimal set's, [G], int64.
            count: groups of each instance, [B], int64; -1 for none.

        Returns:
            [T], bool.
        """
        instance = torch.repeat_interleave(self.offsets.diff(), output_size=len(self.ids))  # [G]
        begins = self.offsets[instance]  # [G]
        rank = torch.arange(len(order), device=order.device) - begins  # [G]
        taken = torch.zeros_like(order, dtype=torch.bool)
        taken[begins + order] = rank < count[instance]
        return self.spread(taken)

    def of_groups(self, rankings: Iterable[RankingLike]) -> list[RankingLike]:
        """Sum ranking scores of items over each group; names, and what is of groups, stay."""
        G, T = len(self.ids), len(self.of_item)
        found: list[RankingLike] = []
        for ranking in rankings:
            if isinstance(ranking, Tensor) and ranking.shape == (T,) and G != T:
                if not ranking.is_floating_point():
                    raise ValueError(
                        f"rankings: given an order [{T}] of items, needed one of groups [{G}], or "
                        f"ranking scores [{T}] or [{G}] of a float type"
                    )
                check_devices(self.items, rankings=ranking)
                by_group = ranking.detach().double()[self.items]  # [T]
                ranking = _sums(by_group[:, None], self.item_offsets)[:, 0]  # [G]
            found.append(ranking)
        return found

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(group=len(self.ids), item=len(self.of_item))


def group_items(batch: AttentionBatch, groups: Tensor) -> tuple[AttentionBatch, Groups]:
    """Make a batch whose items are groups of items, for every function that takes a batch.

    A group has the weight `a_g = Σ_i a_i` of its items and the value `Σ_i a_i h_i / a_g` (each
    head its own), so that erasing the group is erasing its items; a group without mass has weight
    0 and the mean of its items' values. With scores given the group's is `log Σ_i exp(e_i)`.
    Memory: the groups' values, and a block of features of all items.

    Args:
        batch: B instances of T items in all, with any head.
        groups: the group of each item, [T], int64, any numbers: items of an instance with the same
            number are one group, wherever they stand; instances share none. Of padded input
            `groups[mask]`, as the scores of a ranking.

    Returns:
        The batch of G groups, whose values are float64 where the items' are, else float32, and
        `Groups`. Its positions, and the orders and numbers of items in results, count groups.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.25, 0.5, 0.25]),
    ...     head_weight=torch.eye(3),
    ... )
    >>> grouped, groups = fae.group_items(batch, torch.tensor([7, -1, 7]))
    >>> grouped.weights.tolist(), grouped.values.tolist(), groups.ids.tolist()
    ([0.5, 0.5], [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]], [7, -1])
    >>> groups.first(torch.tensor([0, 1]), torch.tensor([1])).tolist()
    [True, False, True]
    """
    if not isinstance(batch, AttentionBatch):
        raise TypeError(f"batch: given {type(batch).__name__}, needed an AttentionBatch")
    T = batch.num_items
    check_tensor("groups", groups, torch.int64)
    if groups.shape != (T,):
        padded = groups.ndim == 2 and groups.shape[0] == len(batch)
        way = "; of padded ids those that the mask keeps, groups[mask.bool()]" if padded else ""
        raise ValueError(f"groups: given {shape_of(groups)}, needed [{T}], one for each item{way}")
    check_devices(batch.values, groups=groups)
    values, attention, *parts = _group_op(*batch.packed, groups)
    found = Groups(*parts)
    other = batch[:]
    other.offsets, other._values, other._attention = found.offsets, values, attention
    other._positions = other._width = other._plain = None
    return other, found


def _group(
    values: Tensor, offsets: Tensor, attention: Tensor, is_scores: bool, groups: Tensor
) -> list[Tensor]:
    """Find the groups, and average the values of each."""
    (T, H, D), device, B = values.shape, values.device, len(offsets) - 1
    instance = torch.repeat_interleave(offsets.diff(), output_size=T)  # [T]
    by_id = groups.argsort(stable=True)  # [T]
    rows = by_id[instance[by_id].argsort(stable=True)]  # [T], by instance, id, position
    begins = torch.ones(T, dtype=torch.bool, device=device)
    begins[1:] = (groups[rows][1:] != groups[rows][:-1]) | (
        instance[rows][1:] != instance[rows][:-1]
    )
    firsts = rows[begins]  # [G], the first item of each group
    G = len(firsts)
    place = firsts.argsort()  # [G]
    number = torch.empty_like(place)
    number[place] = torch.arange(G, device=device)
    of_item = torch.empty_like(groups)
    of_item[rows] = number[begins.cumsum(0) - 1]
    items = of_item.argsort(stable=True)  # [T]
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    item_offsets = torch.cat([zero, torch.bincount(of_item, minlength=G).cumsum(0)])  # [G + 1]
    firsts = firsts[place]
    counts = torch.bincount(instance[firsts], minlength=B)  # [B]
    group_offsets = torch.cat([zero, counts.cumsum(0)])  # [B + 1]
    weights, attention = _weights_within(attention[items].double(), is_scores, item_offsets)
    real = torch.float64 if values.dtype == torch.float64 else torch.float32
    pooled = values.new_empty((G, H, D), dtype=real)
    width = max(1, _BLOCK_BYTES // (8 * max(1, T)))
    for h in range(H):
        for d in range(0, D, width):
            block = values[:, h, d : d + width][items].double()  # [T, width]
            block *= weights[:, h, None]
            pooled[:, h, d : d + width] = _sums(block, item_offsets)
    return [pooled, attention, groups[firsts], group_offsets, of_item, items, item_offsets]


def _weights_within(
    attention: Tensor, is_scores: bool, item_offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute each item's share of its group [T, H], and the groups' attention [G, H]."""
    lengths = item_offsets.diff()  # [G]
    group = torch.repeat_interleave(lengths, output_size=len(attention))  # [T]
    equal = (1.0 / lengths.double())[group, None]  # [T, 1]
    if is_scores:
        top = _reduced(attention, "max", lengths)  # [G, H]
        whole = top.masked_fill(top == -torch.inf, 0)  # [G, H]
        weights = (attention - whole[group]).exp()  # [T, H]
        sums = _sums(weights, item_offsets)  # [G, H]
        own = top + sums.log()
    else:
        weights, sums = attention, _sums(attention, item_offsets)
        # One negative weight is as much a mistake as it is alone.
        least = _reduced(attention, "min", lengths)  # [G, H]
        own = torch.where(least < 0, least, sums)
    return torch.where(sums[group] == 0, equal, weights / sums[group]), own


def _sums(terms: Tensor, item_offsets: Tensor) -> Tensor:
    """Sum the rows [T, K] of each group, one after the other: [G, K]."""
    return _reduced(terms, "sum", item_offsets.diff())


def _reduced(terms: Tensor, how: str, lengths: Tensor) -> Tensor:
    if not len(lengths):
        return terms.new_empty(0, terms.shape[1])
    reduced: Tensor = torch.segment_reduce(terms, how, lengths=lengths, axis=0, unsafe=True)
    return reduced


def _group_fake(
    values: Tensor, offsets: Tensor, attention: Tensor, is_scores: bool, groups: Tensor
) -> list[Tensor]:
    """Make results of the right shapes; how many groups there are is known from the ids alone."""
    G = _library.get_ctx().new_dynamic_size()
    T, H, D = values.shape
    real = torch.float64 if values.dtype == torch.float64 else torch.float32
    integers = [offsets.new_empty(n) for n in (G, offsets.shape[0], T, T, G + 1)]
    pooled = values.new_empty((G, H, D), dtype=real)
    return [pooled, attention.new_empty((G, H), dtype=torch.float64), *integers]


# torch.library comes without annotations.
_library: Any = torch.library
_LIBRARY = _library.Library("fastattnerase", "FRAGMENT")
_LIBRARY.define(
    "group(Tensor values, Tensor offsets, Tensor attention, bool is_scores, Tensor groups) "
    "-> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("group", _group, "CompositeExplicitAutograd")
_library.register_fake("fastattnerase::group", _group_fake, lib=_LIBRARY)
_group_op = torch.ops.fastattnerase.group.default
