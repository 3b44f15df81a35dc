"""What erasing every prefix of every order does, beyond the first flip."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

import fastattnerase as fae
from fastattnerase.choices import BackendName
from fastattnerase.extras import needs
from fastattnerase.measures.areas import areas
from fastattnerase.studies.serrano_smith.config import SINGLE_RANKINGS, Config
from fastattnerase.studies.serrano_smith.instance_tables import CURVED, CURVES, PLACES

with needs("text"):
    import pyarrow as pa

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def decisions(batch: fae.AttentionBatch, w: fae.Sweep, config: Config) -> fae.PrefixErasure:
    """Decide on every prefix of every order of a sweep.

    Args:
        batch: the instances.
        w: their sweep, with its orders.
        config: the experiment.

    Returns:
        The prefixes of these orders, with the curve `decision`.
    """
    orders = w.prefixes.order
    assert orders is not None  # asked for
    # An instance that is not finite has no order; any will do, since it is left out.
    if "decision" in w.prefixes.curves:  # beside an item that is never erased
        return w.prefixes
    given = list(orders)
    # Of a batch on a GPU that is not asked: its work is queued, and not waited for.
    if orders.device.type != "cpu" or orders.numpy().min(initial=0) < 0:
        place = torch.arange(orders.shape[1], device=orders.device)
        n = batch.offsets.diff()
        place = place - batch.offsets[:-1].repeat_interleave(n, output_size=orders.shape[1])
        given = [torch.where(order < 0, place, order) for order in orders]
    return fae.erase_prefixes(
        batch, given, curves="decision", backend=cast(BackendName, config.backend)
    )


def lasting_flips(w: fae.Sweep, again: fae.PrefixErasure, kept: Ints) -> Ints:
    """Find for each order the smallest prefix after which the decision stays changed.

    Args:
        w: a sweep.
        again: its prefixes' decisions, by `decisions`.
        kept: `[K]`, the analysed instances.

    Returns:
        `[R, K]`, `measures.lasting.Lasting.stays`; -1 where the order never flips.
    """
    begins = w.prefixes.curve_offsets.cpu().numpy()
    size = np.diff(begins)
    begin, n = begins[kept], size[kept] - 1  # [K]
    labels = np.repeat(w.prefixes.label.cpu().numpy(), size)  # [P]
    first = w.prefixes.first_flip.cpu().numpy()[:, kept]  # [R, K]
    stays = np.empty(first.shape, dtype=np.int64)
    for row, decision in enumerate(again.curves["decision"].cpu().numpy()):
        same = decision == labels  # [P]
        points = np.flatnonzero(same)
        # The last point before nothing is left that has the original decision; -1 for none.
        last = np.append(-1, points)[np.searchsorted(points, begin + n)] - begin  # [K]
        # The sweep has decided where the first flip is; where sums are nearly zero another way of
        # adding could find it next to there.
        undone = last > first[row]
        nothing = undone & (last == n - 1) & same[begin + n]
        stays[row] = np.where(undone, last + 1, first[row])
        stays[row, (first[row] < 0) | nothing] = -1
    return stays


def curves(w: fae.Sweep, config: Config, kept: Ints, rows: Ints) -> pa.Table:
    """Make the table `curves`: what each ranking's prefixes do to the output, by normalised length.

    Args:
        w: a sweep with the curves of `CURVED`.
        config: the experiment.
        kept: `[K]`, the analysed instances.
        rows: `[B]`, the numbers of all instances in their source.

    Returns:
        A row for each analysed instance and ranking; random is the mean over its orders.
    """
    points, bounds, _ = _points(w, kept)
    of_rows = {
        quantity: w.prefixes.curves[quantity].double().cpu().numpy()[:, points]  # [R, P]
        for quantity in CURVED
    }
    random = config.random_orders
    own = random + len(SINGLE_RANKINGS) + 1  # after attention, least first
    places = {"random": slice(0, random)}
    places |= {name: slice(random + i, random + i + 1) for i, name in enumerate(SINGLE_RANKINGS)}
    places |= {name: slice(own + i, own + i + 1) for i, name in enumerate(config.rankings)}
    tables = []
    for ranking, chosen in places.items():
        columns: list[pa.Array] = []
        for quantity in CURVED:
            found = areas(of_rows[quantity][chosen].mean(axis=0), bounds, grid=PLACES)
            flat = pa.array(found.curves.astype(np.float32).ravel())
            columns += [
                pa.array(found.values),
                pa.FixedSizeListArray.from_arrays(flat, len(PLACES)),
            ]
        first = [pa.array(rows[kept]), pa.repeat(ranking, len(kept))]
        tables.append(pa.table([*first, *columns], schema=CURVES))
    return pa.concat_tables(tables)


def _points(w: fae.Sweep, kept: Ints) -> tuple[Ints, Ints, Ints]:
    """Find the curve points of the analysed instances.

    Returns:
        `[P]`, where they are; `[K + 1]`, where each instance's begin among these; `[P]`, how many
        items are erased at each.
    """
    begins = w.prefixes.curve_offsets.cpu().numpy()
    size = np.diff(begins)[kept]  # [K]
    bounds = np.concatenate([[0], np.cumsum(size)])
    k = np.arange(bounds[-1]) - np.repeat(bounds[:-1], size)
    return np.repeat(begins[kept], size) + k, bounds, k
