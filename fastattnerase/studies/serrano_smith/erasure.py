"""Both tests on one batch: what erasing does to each instance, as rows of tables."""

from __future__ import annotations

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
from fastattnerase.statistics.attention import divergences_from_uniform
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
    least_first = torch.from_numpy(-np.nan_to_num(weights)).to(batch.device)
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
            pa.array(list(w.prefixes.probabilities.double().cpu().numpy())),
            pa.array(list(w.prefixes.logits.double().cpu().numpy())),
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
        self.js = w.single.js.double().cpu().numpy()  # [T]
        self.kl = w.single.kl.double().cpu().numpy()  # [T]
        self.flip_label = as_ints(w.single.flip_label)  # [T]
        self.weights, self.offsets, self.kept = weights, offsets, kept
        self.begin, self.n = offsets[kept], np.diff(offsets)[kept]

    def place(self, row: int, place: int) -> Ints:
        """Find the item at a place of a ranking's order, 1 the first, -1 the last; `[K]`."""
        index = place - 1 if place > 0 else self.n + place
        return np.asarray(self.orders[row][self.begin + index])

    def columns(self, items: Ints) -> list[Any]:
        """Give alpha, js, kl and flip_label of positions [K]."""
        i = self.begin + items
        return [self.weights[i], self.js[i], self.kl[i], self.flip_label[i]]


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
    kept, offsets, n = alone.kept, alone.offsets, alone.n
    flips = (alone.flip_label >= 0).astype(np.float64)
    tables = []
    for draw, ranking in enumerate(SINGLE_RANKINGS):
        top = alone.place(config.random_orders + draw, 1)
        other = random_items(
            top, n, ids[kept], rule=config.random_item, seed=config.seed, draw=draw
        )
        alpha, js, kl, flip_label = alone.columns(top)
        r_alpha, r_js, r_kl, r_flip_label = alone.columns(other)
        i = alone.begin + top
        bound = np.full(len(offsets) - 1, np.inf)
        bound[kept] = js + LEAST_DIFFERENCE
        larger = (alone.js > np.repeat(bound, np.diff(offsets))).astype(np.float64)  # [T]
        tables.append(
            pa.table(
                [
                    rows[kept],
                    pa.repeat(ranking, len(kept)),
                    top,
                    alpha,
                    js,
                    kl,
                    flip_label,
                    other,
                    r_alpha,
                    r_js,
                    r_kl,
                    r_flip_label,
                    alpha - r_alpha,
                    js - r_js,
                    _mean_of_others(alone.weights, offsets, kept, i),
                    _mean_of_others(alone.js, offsets, kept, i),
                    _mean_of_others(flips, offsets, kept, i),
                    _mean_of_others(flips, offsets, kept, alone.begin),
                    _mean_of_others(larger, offsets, kept, i),
                ],
                schema=SINGLE,
            )
        )
    return pa.concat_tables(tables)


def _erased(alone: _Alone, config: Config, rows: Ints) -> pa.Table:
    places = [("random", order, order, 1) for order in range(config.random_orders)]
    for number, (ranking, wanted) in enumerate(
        (("attention", (1, 2, -1, -2)), ("gradient", (1, 2)), ("product", (1, 2)))
    ):
        places += [(ranking, 0, config.random_orders + number, place) for place in wanted]
    tables = []
    for ranking, order, row, place in places:
        items = alone.place(row, place)
        count = len(items)
        tables.append(
            pa.table(
                [
                    rows[alone.kept],
                    pa.repeat(ranking, count),
                    pa.repeat(order, count),
                    pa.repeat(place, count),
                    items,
                    *alone.columns(items),
                ],
                schema=ERASED,
            )
        )
    return pa.concat_tables(tables)


def _mean_of_others(values: Floats, offsets: Ints, kept: Ints, left_out: Ints) -> Floats:
    """Average `values` [T] over all items of each kept instance but one; `[K]`."""
    others = values.copy()
    others[left_out] = 0.0  # left out, not subtracted: nothing cancels
    n = np.diff(offsets)
    totals = np.zeros(len(n))
    np.add.at(totals, np.repeat(np.arange(len(n)), n), others)
    return np.asarray(totals[kept] / (n[kept] - 1))


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
    mass = w.prefixes.removed_mass.double().cpu().numpy()[:, kept]
    orders = [("random", order) for order in range(config.random_orders)]
    orders += [(ranking, 0) for ranking in (*SINGLE_RANKINGS, ASCENDING, *config.rankings)]
    never = NEVER[config.never_flips]
    smallest = np.full(len(kept), np.nan)
    if w.minimal is not None:
        size = as_ints(w.minimal.size)[kept]
        smallest = np.where(size > 0, size, np.nan)
        orders.append(("minimal", 0))
        first_flip = np.concatenate([first_flip, size[None]])
        flip_label = np.concatenate([flip_label, as_ints(w.minimal.flip_label)[kept][None]])
        erased = _prefix_mass(weights, as_ints(w.minimal.order), offsets, kept, size)
        mass = np.concatenate([mass, erased[None]])
    tables = []
    for row, (ranking, order) in enumerate(orders):
        flips = first_flip[row] > 0
        items = np.where(flips, first_flip[row], np.nan)
        tables.append(
            pa.table(
                [
                    rows[kept],
                    pa.repeat(ranking, len(kept)),
                    pa.repeat(order, len(kept)),
                    first_flip[row],
                    flip_label[row],
                    np.where(flips, items / n[kept], never),
                    np.where(flips, mass[row], never),
                    items / smallest,
                    # The smallest set says nothing of what is erased after it.
                    pa.array(lasting[row]) if row < len(lasting) else pa.nulls(len(kept)),
                ],
                schema=MULTI,
            )
        )
    return pa.concat_tables(tables)


def _prefix_mass(weights: Floats, order: Ints, offsets: Ints, kept: Ints, size: Ints) -> Floats:
    """Sum the weights of the first `size` items of an order, 0 where size is -1; `[K]`."""
    n = np.diff(offsets)
    instance = np.repeat(np.arange(len(n)), n)
    place = np.arange(len(order)) - offsets[instance]  # place in the order
    sizes = np.zeros(len(n), dtype=np.int64)
    sizes[kept] = size
    chosen = np.flatnonzero(place < sizes[instance])
    totals = np.zeros(len(n))
    np.add.at(totals, instance[chosen], weights[offsets[instance[chosen]] + order[chosen]])
    return np.asarray(totals[kept])


def as_ints(tensor: Tensor) -> Ints:
    """Give an integer tensor as an array of int64."""
    return np.asarray(tensor.cpu().numpy(), dtype=np.int64)


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
