"""Erasure of items beside one that is never erased: the last item of each instance.

Special tokens of a transformer are such an item: they stay when all words are erased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName, CurveName, Direction
from fastattnerase.ops import ItemErasure, PrefixErasure, Sweep, rank, sweep
from fastattnerase.ops.callable_head import orders_callable
from fastattnerase.ops.plan import plan_rankings
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, check_batch, check_seed
from fastattnerase.status import Status
from fastattnerase.tensor_checks import check_tensor

RankingLike = str | Tensor


def sweep_beside_kept(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = ("random", "attention", "gradient", "product"),
    *,
    curves: CurveName | Sequence[CurveName] = (),
    direction: Direction = "erase",
    logits: bool = False,
    seed: int = 0,
    random_orders: int = 1,
    single: bool = False,
    single_kl: bool = False,
    backend: BackendName = "auto",
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Sweep[Any, Any]:
    """Erase items, but never the last of each instance: `fae.sweep` of the others.

    The last item stands last in every order and is there at every point, `k = 0 … m` of the other
    `m` items erased (kept, with direction "keep": `k` of them and the last). An instance is `EMPTY`
    where `m = 0` and `SINGLE` where `m = 1`; a flip that erasing the last item would make is none.

    Args:
        batch: `B` instances of `m_b + 1` items.
        rankings: names, as of `fae.sweep`, or tensors [M] of the `M = Σ m_b` other items: orders,
            int64, or scores.
        direction: "erase" or "keep"; both take two calls.
        curves, logits, seed, random_orders, single, single_kl, backend, max_bytes: as of
            `fae.sweep`.

    Returns:
        The results of the other items alone: `offsets` are theirs, orders are there.

    Raises:
        ValueError, TypeError: an instance without items, another direction; what `fae.sweep`
            refuses.

    Example:
        >>> import torch, fastattnerase as fae
        >>> from fastattnerase.kept_items import sweep_beside_kept
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[2.0], [-1.0], [0.5]]), torch.tensor([0, 3]),
        ...     weights=torch.ones(3), head_weight=torch.tensor([[0.0], [1.0]]),
        ...     head_bias=torch.zeros(2))
        >>> found = sweep_beside_kept(batch, ["attention"], curves=["decision"]).prefixes
        >>> found.first_flip.tolist(), found.curves["decision"].tolist()
        ([[1]], [[1, 0, 1]])
    """
    check_batch(batch)
    if direction not in ("erase", "keep"):
        raise ValueError(f"direction: given {direction!r}, needed 'erase' or 'keep'")
    if random_orders < 1:
        raise ValueError(f"random_orders: given {random_orders}, needed 1 or more")
    rankings = (rankings,) if isinstance(rankings, (str, Tensor)) else rankings
    curves = (curves,) if isinstance(curves, str) else curves
    if bool((batch.lengths < 1).any()):
        row = int((batch.lengths < 1).nonzero()[0])
        raise ValueError(f"batch: given no item for instance {row}, needed the kept one at least")
    known = _named(batch, rankings, seed, random_orders, backend, max_bytes)
    names, orders = _orders(batch, rankings, known, random_orders, direction == "keep")
    asked = list(dict.fromkeys((*curves, "decision", "mass")))
    found = sweep(
        batch,
        orders,
        curves=asked,
        orders=True,
        logits=logits,
        seed=seed,
        single=single,
        single_kl=single_kl,
        minimal=False,
        backend=backend,
        max_bytes=max_bytes,
    )
    prefixes = _of_others(found.prefixes, names, direction)
    prefixes.curves = {name: prefixes.curves[name] for name in curves}
    items = None if found.single is None else _items_of_others(found.single, prefixes)
    why = "an item that is never erased: the sort that finds the set is exact without one"
    return Sweep(prefixes, items, None, why)


def others(batch: AttentionBatch, per_item: Tensor) -> Tensor:
    """Leave the last item of each instance out of one number an item: `[T]` to `[M]`."""
    return per_item[..., _is_other(batch.offsets)]


def _is_other(offsets: Tensor) -> Tensor:
    """Say of each item whether it is not the last of its instance: `[T]`, bool."""
    mask = torch.ones(int(offsets[-1]), dtype=torch.bool, device=offsets.device)
    mask[offsets[1:] - 1] = False
    return mask


def _named(
    batch: AttentionBatch,
    rankings: Sequence[RankingLike],
    seed: int,
    random_orders: int,
    backend: BackendName,
    max_bytes: int,
) -> dict[str, list[Tensor]]:
    """Order all items by the rankings that are given as names; nothing is erased yet."""
    names = list(dict.fromkeys(name for name in rankings if isinstance(name, str)))
    counts = [random_orders if name == "random" else 1 for name in names]
    if batch.head is None:
        return {
            name: [rank(batch, name, seed=seed, order=i) for i in range(count)]
            for name, count in zip(names, counts, strict=True)
        }
    if not names:
        return {}
    check_seed(seed)
    plan = plan_rankings(batch, names, random_orders)
    validate = batch.device.type == "cpu"
    rows = iter(orders_callable(batch, plan, seed, backend, validate, max_bytes))
    return {
        name: [next(rows) for _ in range(count)] for name, count in zip(names, counts, strict=True)
    }


def _orders(
    batch: AttentionBatch,
    rankings: Sequence[RankingLike],
    known: dict[str, list[Tensor]],
    random_orders: int,
    backwards: bool,
) -> tuple[list[str], list[Tensor]]:
    """Make orders of all items, `[T]` each, in which the last of each instance stands last."""
    names: list[str] = []
    found: list[Tensor] = []
    other = _is_other(batch.offsets)  # [T]
    start = batch.offsets[batch.instance_of_item]  # [T]
    last = (batch.lengths - 1)[batch.instance_of_item]  # [T], the place of the last item
    given = 0
    for ranking in rankings:
        orders = []
        if isinstance(ranking, str):
            orders = known[ranking]
            several = ranking == "random" and random_orders > 1
            names += [f"random[{i}]" for i in range(len(orders))] if several else [ranking]
        else:
            _check_given(ranking, int(other.sum()), batch.device)
            whole = ranking.new_zeros(len(other))  # [T]
            if ranking.is_floating_point():
                whole[other], whole[~other] = ranking, -torch.inf
                orders = [rank(batch, whole)]
            else:
                whole[other], whole[~other] = ranking, last[~other]
                orders = [whole]
            names.append(f"given[{given}]")
            given += 1
        found += [_last_last(order, start, last, batch.lengths, backwards) for order in orders]
    if given == 1:
        names = ["given" if name == "given[0]" else name for name in names]
    return names, found


def _check_given(ranking: object, M: int, device: torch.device) -> None:
    """Refuse what is no order and no scores of the items that are erased."""
    if not isinstance(ranking, Tensor):
        raise TypeError(f"rankings: given {type(ranking).__name__}, needed a name or a tensor")
    check_tensor("rankings", ranking)
    if ranking.shape != (M,):
        raise ValueError(
            f"rankings: given a tensor of shape {list(ranking.shape)}, needed [{M}], one for each "
            "item that is erased"
        )
    if ranking.device != device:
        raise ValueError(
            f"rankings: given a tensor on {ranking.device}, needed on {device} as the batch"
        )
    if ranking.dtype != torch.int64 and not ranking.is_floating_point():
        raise TypeError(
            f"rankings: given a tensor of {ranking.dtype}, needed int64 (an order) or floats "
            "(ranking scores)"
        )


def _last_last(
    order: Tensor, start: Tensor, last: Tensor, lengths: Tensor, backwards: bool
) -> Tensor:
    """Put the last item of each instance at the end of an order `[T]`; the others may be turned."""
    T = len(order)
    place = torch.arange(T, device=order.device) - start  # [T], in the order
    key = torch.where(order == last, T, -place if backwards else place)
    instance = torch.repeat_interleave(lengths, output_size=T)
    sorting = (instance * (2 * T + 2) + key).argsort()
    return order[sorting]


def _of_others(found: PrefixErasure, names: list[str], direction: Direction) -> PrefixErasure:
    """Leave out what is of the last items; with "keep" read erased points as kept ones."""
    backwards = direction == "keep"
    B = len(found.label)
    m = found.offsets.diff() - 1  # [B]
    offsets = torch.nn.functional.pad(m.cumsum(0), (1, 0))  # [B + 1]
    instance = torch.repeat_interleave(m + 1)  # [M + B], of each point
    starts = offsets[:-1] + torch.arange(B, device=m.device)  # [B], where points begin
    k = torch.arange(len(instance), device=m.device) - starts[instance]  # [M + B]
    erased = m[instance] - k if backwards else k
    points = found.curve_offsets[:-1][instance] + erased  # [M + B]
    curves = {name: curve[:, points] for name, curve in found.curves.items()}
    label = found.label[instance]  # [M + B]
    decision = curves["decision"]
    hit = (decision == label) == backwards  # [R, M + B]
    hit &= (k >= 1) & (label >= 0) & (decision >= 0)
    beyond = len(k) + 1
    R = len(decision)
    first = torch.full((R, B), beyond, device=m.device).scatter_reduce(
        1, instance.expand(R, -1), torch.where(hit, k, beyond), "amin"
    )  # [R, B]
    never = first == beyond
    at = (starts + first).masked_fill(never, 0)  # [R, B]
    mass = curves["mass"]
    status = found.status & ~int(Status.EMPTY | Status.SINGLE)
    status = status | torch.where(m == 0, int(Status.EMPTY), 0)
    status = status | torch.where(m == 1, int(Status.SINGLE), 0)
    assert found.order is not None  # asked for
    order = found.order[:, _is_other(found.offsets)]  # the last stands last: its place is its own
    if backwards:
        row = torch.repeat_interleave(m)  # [M]
        within = torch.arange(len(row), device=m.device) - offsets[row]
        order = order[:, offsets[row] + m[row] - 1 - within]
    none = torch.zeros((R, B), device=m.device, dtype=torch.int64)
    return replace(
        found,
        rankings=tuple(names),
        status=status,
        first_flip=torch.where(never, -1, first),
        flip_label=torch.where(never, -1, decision.gather(1, at) if len(k) else none),
        removed_mass=torch.where(never, torch.nan, 1 - mass.gather(1, at) if len(k) else torch.nan),
        curves=curves,
        offsets=offsets,
        order=order,
        direction=direction,
    )


def _items_of_others(found: ItemErasure, prefixes: PrefixErasure) -> ItemErasure:
    """Leave out what erasing the last items alone does."""
    other = _is_other(found.offsets)
    return ItemErasure(
        found.flip_label[other],
        found.js[other],
        found.label_prob_drop[other],
        found.label,
        prefixes.status,
        prefixes.offsets,
        None if found.kl is None else found.kl[other],
    )
