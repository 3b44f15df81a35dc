"""Both tests on one batch: what erasing does to each instance, as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.extras import needs
from fastattnerase.rankings.random import first_keys
from fastattnerase.sources import Chunk
from fastattnerase.statistics.attention import divergences_from_uniform, sums_of
from fastattnerase.studies.serrano_smith.config import (
    ASCENDING,
    EXCLUSIONS,
    LEAST_DIFFERENCE,
    NEVER,
    RANKINGS,
    SINGLE_RANKINGS,
    Config,
    RandomItem,
)
from fastattnerase.studies.serrano_smith.instance_tables import (
    CURVED,
    ERASED,
    INSTANCES,
    MULTI,
    SINGLE,
)
from fastattnerase.studies.serrano_smith.item_table import of_items
from fastattnerase.studies.serrano_smith.prefixes import curves, decisions, lasting_flips
from fastattnerase.studies.serrano_smith.swept import (
    erasable_weights,
    labels_of_nothing,
    shares,
    sweep,
)

with needs("text"):
    import pyarrow as pa

_ITEM_DRAWS = 1 << 32  # random orders number from 0, draws of single items from here

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def measure(chunk: Chunk, config: Config, *, first_row: int = 0) -> dict[str, pa.Table]:
    """Run both tests on one batch.

    Single-weight, with `i*` the top item of a ranking and `r` the random one:
    `ΔJS = JS(p, q_{i*}) − JS(p, q_r)` and `Δα = α_{i*} − α_r`; `others_*` are means over all
    items but `i*`. Multi-weight: first flip `k`, its fraction `k / n`, the original attention
    mass of the erased items, and the gap `k / minimal size`.

    Args:
        chunk: the batch, labels and decisions.
        config: the experiment.
        first_row: number of the first instance in its source.

    Returns:
        The tables `instances` (a row each), `single` (a row for each analysed instance and
        ranking), `multi` (for each analysed instance, ranking and order; the minimal set is the
        ranking `minimal`, absent with several attention heads or a head that is a function;
        `ascending` is attention, least
        first; then those of `config.rankings`) and `erased` (items erased alone: places 1, 2, -1
        and -2 of attention, 1 and 2 of gradient and product, 1 of each random order). A first flip
        of -1 means "never"; missing labels are null. `kl` is KL(erased‖original), natural
        logarithm. Where `config.items` asks for it the table `items`, too: see `items_schema`.

    Source:
        Serrano and Smith 2019, equation 1 and section 5.1.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.sources import Chunk
        >>> from fastattnerase.studies.serrano_smith.config import Config
        >>> from fastattnerase.studies.serrano_smith.erasure import measure
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[2.0], [-1.0]]), torch.tensor([0, 2]),
        ...     weights=torch.tensor([0.5, 0.5]),
        ...     head_weight=torch.tensor([[0.0], [1.0]]), head_bias=torch.zeros(2))
        >>> measure(Chunk(batch), Config())["single"]["flip_label"].to_pylist()
        [0, 0, 0]
    """
    return tables_of(erased(chunk, config), config, first_row=first_row)


@dataclass(frozen=True)
class Erased:
    """What the engine found for a batch, on the batch's device.

    Attributes:
        chunk: the batch with what is known beside it.
        weights: `[T]`, attention, as an array.
        sweep: of all rankings.
        again: decisions on every prefix of the sweep's orders.
    """

    chunk: Chunk
    weights: Floats
    sweep: fae.Sweep
    again: fae.PrefixErasure


def erased(chunk: Chunk, config: Config, host: fae.AttentionBatch | None = None) -> Erased:
    """Have the engine erase a batch; of a batch on a GPU its work is queued, and not waited for.

    Args:
        chunk: the batch.
        config: the experiment.
        host: the same batch in the CPU's memory, where there is one.

    Returns:
        What `tables_of` makes tables of.
    """
    batch = chunk.batch
    weights = erasable_weights(chunk, host)
    # Weights of an instance that is not finite are of no use, and no ranking either.
    known = np.where(np.isfinite(weights), weights, 0.0)
    least_first = torch.from_numpy(-known).to(batch.device)
    w = sweep(
        chunk,
        (*RANKINGS, least_first, *config.rankings),
        CURVED,
        config,
        random_orders=config.random_orders,
        single=True,
        minimal=None,  # where there is one
        single_kl=True,
    )
    return Erased(chunk, weights, w, decisions(batch, w, config))


def tables_of(
    found: Erased, config: Config, *, first_row: int = 0, with_curves: bool = True
) -> dict[str, pa.Table]:
    """Make the tables of `measure` of what the engine found.

    Args:
        found: by `erased`.
        config: the experiment.
        first_row: number of the first instance in its source.
        with_curves: whether the table `curves` is among them.

    Returns:
        The tables.
    """
    chunk, weights, w = found.chunk, found.weights, found.sweep
    batch = chunk.batch
    assert w.prefixes.logits is not None  # asked for
    offsets = as_ints(w.prefixes.offsets)
    n = np.diff(offsets)
    ids = as_ints(batch.ids)
    status = as_ints(w.prefixes.status)
    excluded = np.select(
        [n == 0, n == 1, (status & int(fae.Status.NON_FINITE | fae.Status.INVALID)) != 0],
        [*EXCLUSIONS],
        "",
    )
    kept = np.flatnonzero(excluded == "")
    rows = first_row + np.arange(len(n))
    uniform_kl, uniform_js = divergences_from_uniform(shares(chunk, weights, offsets), offsets)

    instances = pa.table(
        [
            rows,
            ids,
            n,
            _labels(chunk.gold, len(n)),
            as_ints(w.prefixes.label),
            _labels(chunk.model_label, len(n)),
            as_ints(labels_of_nothing(w)) if chunk.keeps_last else _bias_labels(batch),
            _lists(as_floats(w.prefixes.probabilities)),
            _lists(as_floats(w.prefixes.logits)),
            uniform_kl,
            uniform_js,
            status,
            pa.array(excluded.tolist()),
        ],
        schema=INSTANCES,
    )
    alone = _Alone(w, weights, offsets, kept)
    tables = {"items": of_items(chunk, w, config, weights, rows)} if config.items else {}
    if with_curves:
        tables["curves"] = curves(w, config, kept, rows)
    return tables | {
        "instances": instances,
        "single": _single(alone, config, rows, ids),
        "multi": _multi(
            w, config, kept, rows, n, offsets, weights, lasting_flips(w, found.again, kept)
        ),
        "erased": _erased(alone, config, rows),
    }


class _Alone:
    """What erasing one item does, of the analysed instances of a batch."""

    def __init__(self, w: fae.Sweep, weights: Floats, offsets: Ints, kept: Ints) -> None:
        assert w.single is not None  # asked for
        assert w.single.kl is not None
        assert w.prefixes.order is not None
        self.orders = as_ints(w.prefixes.order)  # [R, T]
        self.js = as_floats(w.single.js)  # [T]
        self.kl = as_floats(w.single.kl)  # [T]
        self.flip_label = as_ints(w.single.flip_label)  # [T]
        self.weights, self.offsets, self.kept = weights, offsets, kept
        self.lengths = np.diff(offsets)  # [B]
        self.begin, self.n = offsets[kept], self.lengths[kept]

    def place(self, row: int, place: int) -> Ints:
        """Find the item at a place of a ranking's order, 1 the first, -1 the last; `[K]`."""
        index = place - 1 if place > 0 else self.n + place
        return np.asarray(self.orders[row][self.begin + index])

    def columns(self, items: Ints) -> list[Any]:
        """Give alpha, js, kl and flip_label of positions [..., K], one row after another."""
        i = (self.begin + items).ravel()
        return [self.weights[i], self.js[i], self.kl[i], self.flip_label[i]]

    def mean_of_others(self, values: Floats, left_out: Ints) -> Floats:
        """Average `values` [T] over all items of each analysed instance but one; `[K]`."""
        others = values.copy()
        others[left_out] = 0.0  # left out, not subtracted: nothing cancels
        totals = sums_of(others, self.offsets)
        return np.asarray(totals[self.kept] / (self.n - 1))

    def counts(self, where: Bools) -> Ints:
        """Count the items of each analysed instance that are so; `[T]` to `[K]`."""
        counted = np.zeros_like(self.lengths)
        some = self.lengths > 0
        if len(where):
            counted[some] = np.add.reduceat(where, self.offsets[:-1][some], dtype=np.int64)
        return np.asarray(counted[self.kept])


def random_items(top: Ints, n: Ints, ids: Ints, *, rule: RandomItem, seed: int, draw: int) -> Ints:
    """Draw the random item `r` of the single-weight test, one for each instance.

    The draw depends on (seed, draw, the instance's id) alone, so batches do not matter.

    Args:
        top: `[B]`, position of the top item `i*`.
        n: `[B]`, items of the instance, at least 2.
        ids: `[B]`, ids of the instances.
        rule: `different`: uniform over the positions but `i*`. `uniform`: over all positions.
            `legacy`: over the positions after the first, so that `r = i*` can happen and the first
            item is never drawn; with two items always the second.
        seed: of the draws.
        draw: number of the draw, one for each ranking.

    Returns:
        `[B]` positions.

    Source:
        Serrano and Smith 2019, sections 4.1, 4.2 and figure 9; `legacy`: their published code.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.studies.serrano_smith.erasure import random_items
        >>> one = np.array([1])
        >>> random_items(one, one + 1, one, rule="different", seed=0, draw=0).tolist()
        [0]
        >>> random_items(one, one + 1, one, rule="legacy", seed=0, draw=0).tolist()
        [1]
    """
    choices = n if rule == "uniform" else n - 1
    # The upper word of key times choices: n is below 2^32, so that both halves fit a word each.
    keys = first_keys(seed, _ITEM_DRAWS + draw, ids)  # [B]
    count, half = choices.astype(np.uint64), np.uint64(32)
    low = (keys & np.uint64(0xFFFFFFFF)) * count >> half
    drawn = (((keys >> half) * count + low) >> half).astype(np.int64)  # [B]
    if rule == "different":
        return np.asarray(drawn + (drawn >= top))
    return drawn + 1 if rule == "legacy" else drawn


def _single(alone: _Alone, config: Config, rows: Ints, ids: Ints) -> pa.Table:
    kept, n = alone.kept, alone.n
    flips = alone.flip_label >= 0  # [T]
    flipping = alone.counts(flips)  # [K]
    later_flips = (flipping - flips[alone.begin]) / (n - 1)
    found: list[list[Any]] = []
    for draw, _ in enumerate(SINGLE_RANKINGS):
        top = alone.place(config.random_orders + draw, 1)
        other = random_items(
            top, n, ids[kept], rule=config.random_item, seed=config.seed, draw=draw
        )
        own, others = alone.columns(top), alone.columns(other)
        i = alone.begin + top
        bound = np.full(len(alone.lengths), np.inf)
        bound[kept] = own[1] + LEAST_DIFFERENCE
        found.append(
            [
                rows[kept],
                top,
                *own,
                other,
                *others,
                own[0] - others[0],
                own[1] - others[1],
                alone.mean_of_others(alone.weights, i),
                alone.mean_of_others(alone.js, i),
                (flipping - flips[i]) / (n - 1),
                later_flips,
                alone.counts(alone.js > np.repeat(bound, alone.lengths)) / (n - 1),
            ]
        )
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    columns.insert(1, _named(SINGLE_RANKINGS, len(kept)))
    return pa.table(columns, schema=SINGLE)


def _erased(alone: _Alone, config: Config, rows: Ints) -> pa.Table:
    places = [("random", order, order, 1) for order in range(config.random_orders)]
    for number, (ranking, wanted) in enumerate(
        (("attention", (1, 2, -1, -2)), ("gradient", (1, 2)), ("product", (1, 2)))
    ):
        places += [(ranking, 0, config.random_orders + number, place) for place in wanted]
    items = np.array([alone.place(row, place) for _, _, row, place in places])  # [P, K]
    count = len(alone.kept)
    return pa.table(
        [
            np.tile(rows[alone.kept], len(places)),
            _named([ranking for ranking, _, _, _ in places], count),
            np.repeat([order for _, order, _, _ in places], count),
            np.repeat([place for _, _, _, place in places], count),
            items.ravel(),
            *alone.columns(items),
        ],
        schema=ERASED,
    )


def _named(rankings: Sequence[str], count: int) -> pa.Array:
    """Give each ranking's name `count` times, one ranking after another."""
    return pa.concat_arrays([pa.repeat(ranking, count) for ranking in rankings])


def _lists(rows: Floats) -> pa.Array:
    """Give the rows of `[B, C]` as lists."""
    ends = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(rows.ravel()))


def _multi(
    w: fae.Sweep,
    config: Config,
    kept: Ints,
    rows: Ints,
    n: Ints,
    offsets: Ints,
    weights: Floats,
    lasting: Ints,
) -> pa.Table:
    first_flip = as_ints(w.prefixes.first_flip)[:, kept]  # [R, K]
    flip_label = as_ints(w.prefixes.flip_label)[:, kept]
    mass = as_floats(w.prefixes.removed_mass)[:, kept]
    orders = [("random", order) for order in range(config.random_orders)]
    orders += [(ranking, 0) for ranking in (*SINGLE_RANKINGS, ASCENDING, *config.rankings)]
    never = NEVER[config.never_flips]
    smallest = np.full(len(kept), np.nan)
    known = np.ones(len(orders), dtype=bool)
    if w.minimal is not None:
        size = as_ints(w.minimal.size)[kept]
        smallest = np.where(size > 0, size, np.nan)
        orders.append(("minimal", 0))
        first_flip = np.concatenate([first_flip, size[None]])
        flip_label = np.concatenate([flip_label, as_ints(w.minimal.flip_label)[kept][None]])
        erased = _prefix_mass(weights, as_ints(w.minimal.order), offsets[kept], size)
        mass = np.concatenate([mass, erased[None]])
        # The smallest set says nothing of what is erased after it.
        lasting = np.concatenate([lasting, np.zeros_like(size)[None]])
        known = np.append(known, False)
    flips = first_flip > 0  # [R, K]
    items = np.where(flips, first_flip, np.nan)
    return pa.table(
        [
            np.tile(rows[kept], len(orders)),
            _named([ranking for ranking, _ in orders], len(kept)),
            np.repeat([order for _, order in orders], len(kept)),
            first_flip.ravel(),
            flip_label.ravel(),
            np.where(flips, items / n[kept], never).ravel(),
            np.where(flips, mass, never).ravel(),
            (items / smallest).ravel(),
            pa.array(lasting.ravel(), mask=np.repeat(~known, len(kept))),
        ],
        schema=MULTI,
    )


def _prefix_mass(weights: Floats, order: Ints, begin: Ints, size: Ints) -> Floats:
    """Sum the weights of the first `size` items of each order, 0 where size is -1; `[K]`."""
    ends = np.concatenate([[0], np.cumsum(np.maximum(size, 0))])  # [K + 1]
    place = np.arange(ends[-1]) + np.repeat(begin - ends[:-1], np.diff(ends))
    item = order[place] + np.repeat(begin, np.diff(ends))
    return sums_of(weights[item], ends)


def as_ints(tensor: Tensor) -> Ints:
    """Give an integer tensor as an array of int64."""
    return np.asarray(tensor.cpu().numpy(), dtype=np.int64)


def as_floats(tensor: Tensor) -> Floats:
    """Give a float32 or float64 tensor as an array of float64."""
    return np.asarray(tensor.cpu().numpy(), dtype=np.float64)


def _labels(labels: Tensor | None, count: int) -> pa.Array:
    if labels is None:
        return pa.nulls(count, pa.int64())
    values = as_ints(labels)
    return pa.array(values, mask=values < 0)  # -1 is no label


def head_bias(batch: fae.AttentionBatch) -> Tensor:
    """Give the bias of the classifier in float64, `[C]` or `[B, C]`.

    Of a head that is a function that is what it makes of nothing.
    """
    if batch.head_bias is not None:
        return batch.head_bias.cpu().double()  # [C] or [B, C]
    nothing = batch.values.new_zeros(len(batch), batch.num_heads, batch.values.shape[-1])
    with torch.no_grad():
        return (
            batch.call_head(nothing, torch.arange(len(batch), device=batch.device)).cpu().double()
        )  # [B, C]


def _bias_labels(batch: fae.AttentionBatch) -> Ints:
    """Find the decision without any item, `argmax(b)`; `[B]`."""
    decisions = head_bias(batch).argmax(dim=-1)  # [] or [B]
    return as_ints(decisions.expand(len(batch.offsets) - 1))
