"""The table `items`: what is known of every item of every instance of a batch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.extras import needs
from fastattnerase.problem import Problem
from fastattnerase.rankings import resolve
from fastattnerase.rankings.base import ByKey, OrderContext, Ranking
from fastattnerase.reference.instance import LinearInstance
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.instance_tables import items_schema, scored

with needs("text"):
    import pyarrow as pa

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def of_items(chunk: Chunk, w: fae.Sweep, config: Config, weights: Floats, rows: Ints) -> pa.Table:
    """Put together what is known of each item of a batch.

    Args:
        chunk: the batch, with the texts of its items where they are known.
        w: what erasing did, with orders and KL of single erasures.
        config: the experiment.
        weights: `[T]`, attention.
        rows: `[B]`, numbers of the instances in their source.

    Returns:
        A table with a row an item; its columns are those of `items_schema`.
    """
    assert w.single is not None  # asked for
    assert w.single.kl is not None
    assert w.prefixes.order is not None
    batch = chunk.batch
    instance = batch.instance_of_item.cpu().numpy()  # [T]
    strange = _bits(w.prefixes.status, fae.Status.NON_FINITE | fae.Status.INVALID)[instance]  # [T]
    offsets = batch.offsets.cpu().numpy()
    orders = [_ranks(order, offsets) for order in w.prefixes.order.cpu().numpy()]
    nothing = np.zeros(len(instance), dtype=np.int64)
    smallest = pa.nulls(len(instance), pa.bool_())
    minimal = pa.nulls(len(instance), pa.int64())
    if w.minimal is not None:
        places = _ranks(w.minimal.order.cpu().numpy(), offsets)
        size = w.minimal.size.cpu().numpy()[instance]
        smallest = pa.array(places <= size, mask=strange)
        minimal = pa.array(places, mask=strange)
    texts = pa.nulls(len(instance), pa.string())
    if chunk.texts is not None:
        texts = pa.array([text for items in chunk.texts for text in items], pa.string())
    columns: list[Any] = [
        rows[instance],
        batch.ids.cpu().numpy()[instance],
        batch.positions.cpu().numpy() + nothing,
        texts,
        _floats(weights),
        *(_floats(of, strange) for of in (w.single.js, w.single.kl, w.single.label_prob_drop)),
        pa.array(w.single.flip_label.cpu().numpy(), mask=strange),
        smallest,
        *(_floats(scores) for scores in _scores(batch, scored(config), config.seed)),
        *(pa.array(places, mask=strange) for places in orders),
        minimal,
    ]
    return pa.table(columns, schema=items_schema(config))


def _bits(status: Tensor, bits: fae.Status) -> Bools:
    return np.asarray((status.cpu().numpy() & int(bits)) != 0)


def _floats(of: Tensor | Floats, hidden: Bools | None = None) -> pa.Array:
    """Give numbers as a column, null where they are NaN or hidden."""
    values = of if isinstance(of, np.ndarray) else of.double().cpu().numpy()
    unknown = np.isnan(values)
    return pa.array(values, mask=unknown if hidden is None else unknown | hidden)


def _ranks(order: Ints, offsets: Ints) -> Ints:
    """Give the place of each item in its instance's order, 1 the first: [T] to [T]."""
    begins = np.repeat(offsets[:-1], np.diff(offsets))  # [T]
    places = np.empty_like(order)
    places[begins + order] = np.arange(len(order)) - begins + 1
    return places


def _scores(batch: fae.AttentionBatch, names: list[str], seed: int) -> Floats:
    """Compute what rankings sort by, in float64, an instance at a time: [R', T]; else NaN."""
    problem = Problem(*batch.packed, *batch.linear_head, batch.ids, (), ())
    rankings = [resolve(name) for name in names]
    scores = np.full((len(names), batch.num_items), np.nan)
    with torch.no_grad():
        for b, (begin, end) in enumerate(pairwise(batch.offsets.tolist())):
            instance = LinearInstance(problem, b)
            if instance.finite and instance.n:
                for row, ranking in zip(scores, rankings, strict=True):
                    row[begin:end] = _keys(ranking, instance, seed)
    return scores


def _keys(ranking: Ranking, instance: LinearInstance, seed: int) -> Floats | float:
    """Give the numbers that a ranking sorts an instance by: [n]; NaN where it gives an order."""
    if isinstance(ranking.order, ByKey):
        keys = ranking.order.key(instance)
    elif ranking.kind is None:
        keys = ranking.order(instance, OrderContext(seed=seed, arg=0))
    elif instance.H == 1:  # attention: as given, for weights may underflow to ties
        keys = instance.attention[:, 0]
    else:
        keys = instance.weights.mean(1)
    return np.asarray(keys.detach().double().cpu()) if keys.is_floating_point() else np.nan
