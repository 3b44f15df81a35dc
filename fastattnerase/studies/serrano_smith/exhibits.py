"""Documents to look at, chosen by rule, with what erasing does to each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.ops.plan import why_no_minimal
from fastattnerase.report.heatmap import MINIMAL, HeatMap, Order
from fastattnerase.runs import rundir
from fastattnerase.runs.records import to_json
from fastattnerase.sources import Chunk, Source
from fastattnerase.studies.serrano_smith.config import SINGLE_RANKINGS, Config
from fastattnerase.studies.serrano_smith.counted import choosable
from fastattnerase.studies.serrano_smith.documents import DOCUMENTS, KEPT, Documents, known
from fastattnerase.studies.serrano_smith.erasure import as_ints
from fastattnerase.studies.serrano_smith.instance_tables import read_columns
from fastattnerase.studies.serrano_smith.result import Exhibit
from fastattnerase.studies.serrano_smith.swept import erasable_weights, sweep

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = Any

_EXHIBIT_ITEMS = 250  # longer documents are not shown
_DIGITS = 5  # of probabilities


def choose(source: Source, config: Config, folder: Path) -> tuple[Exhibit, ...]:
    """Choose documents by rule, not by eye: evenly spaced in the gap of the attention ranking.

    They are of the instances that a part of their items flips, where there are enough. One in six
    at least is a document that never flips under attention, where there is one. Besides the
    exhibits, which are returned, others by the same rule are kept in documents.json, so that there
    are `KEPT` where the data have so many; none where no exhibits are asked for.

    Args:
        source: the instances.
        config: of the experiment.
        folder: the run directory, with its tables.

    Returns:
        The exhibits; empty where the source has no texts.
    """
    n = read_columns(folder, "instances", ["row", "n"])
    table = read_columns(folder, "multi", ["row", "gap", "first_flip"], "attention").merge(
        n, on="row"
    )
    smallest = read_columns(folder, "multi", ["row", "fraction"], MINIMAL)
    part = smallest.loc[choosable(smallest["fraction"]), "row"]
    table["part"] = table["row"].isin(part)
    table = table[table["n"] <= min(_EXHIBIT_ITEMS, 3 * table["n"].median())]
    exhibits = _evenly(table, config.exhibits)
    # The exhibits come first; a document is kept once.
    rows = list(dict.fromkeys(exhibits + _evenly(table, KEPT))) if config.exhibits else []
    rows = rows[: max(KEPT, len(exhibits))]
    kept: list[HeatMap] = []
    for chunk in source.select(rows) if rows else ():
        if chunk.texts is None:
            return ()
        kept += _erase(chunk, config, rows[len(kept) :])
    if kept:
        content = to_json(Documents(tuple(kept)))
        for one in content["documents"]:
            if one["query"] is None:  # of one text: the file is as it has always been
                del one["query"]
        rundir.write_json(folder / DOCUMENTS, content, indent=None)
    ids = read_columns(folder, "instances", ["row", "id"]).set_index("row")["id"]
    return tuple(_exhibit(one, int(ids[one.row])) for one in kept[: len(exhibits)])


def _evenly(table: DataFrame, count: int) -> list[int]:
    """Choose rows evenly spaced in the gap, and one in six of those that never flip."""
    flips = table[table["first_flip"] > 0].sort_values(["gap", "first_flip", "row"])
    never = table[table["first_flip"] < 0].sort_values("row")
    still = min(len(never), -(-count // 6))
    moving = min(len(flips), count - still)
    if flips["part"].sum() >= moving:  # elsewhere every order needs all items
        flips = flips[flips["part"]]
    places = np.unique(np.linspace(0, max(len(flips) - 1, 0), moving).round().astype(int))
    rows: list[int] = flips["row"].to_numpy()[places].tolist() if moving else []
    return [*rows, *never["row"].to_numpy()[:still].tolist()]


def _erase(chunk: Chunk, config: Config, rows: list[int]) -> Iterator[HeatMap]:
    """Erase by every ranking, and say of each document what happens after every item."""
    minimal = not chunk.keeps_last and not why_no_minimal(chunk.batch)
    names = (*SINGLE_RANKINGS, *config.rankings, *((MINIMAL,) if minimal else ()), "random")
    w = sweep(chunk, names, ("decision", "logits"), config, minimal=minimal)
    erased = w.prefixes
    assert erased.order is not None  # asked for
    order, first_flip = as_ints(erased.order), as_ints(erased.first_flip)  # [R, T], [R, B]
    flip_label = as_ints(erased.flip_label)  # [R, B]
    if w.minimal is not None:  # the sets that the tables speak of
        row = names.index(MINIMAL)
        order[row], first_flip[row] = as_ints(w.minimal.order), as_ints(w.minimal.size)
        flip_label[row] = as_ints(w.minimal.flip_label)
    decisions = as_ints(erased.curves["decision"])  # [R, T + B]
    sure = erased.curves["logits"].double().softmax(-1).cpu().numpy()  # [R, T + B, C]
    probabilities = erased.probabilities.double().cpu().numpy()  # [B, C]
    weights = erasable_weights(chunk)
    offsets, points = as_ints(erased.offsets), as_ints(erased.curve_offsets)
    for b, items in enumerate(chunk.texts or ()):
        span, curve = slice(*offsets[b : b + 2]), slice(*points[b : b + 2])
        label = int(erased.label[b])
        yield HeatMap(
            row=rows[b],
            items=tuple(items),
            weights=tuple(round(float(a), 6) for a in weights[span]),
            label=label,
            probability=round(float(probabilities[b, label]), _DIGITS),
            gold=None if chunk.gold is None else known(int(chunk.gold[b])),
            query=None if chunk.queries is None else chunk.queries[b],
            orders=tuple(
                Order(
                    ranking=name,
                    items=tuple(order[r, span].tolist()),
                    first_flip=int(first_flip[r, b]),
                    flip_label=int(flip_label[r, b]),
                    decisions=tuple(decisions[r, curve].tolist()),
                    label_probabilities=_rounded(sure[r, curve, label]),
                    decision_probabilities=_rounded(
                        np.take_along_axis(sure[r, curve], decisions[r, curve, None], 1)[:, 0]
                    ),
                )
                for r, name in enumerate(names)
            ),
        )


def _rounded(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)


def _exhibit(one: HeatMap, number: int) -> Exhibit:
    """Say of a document what result.json holds."""
    orders = {order.ranking: order for order in one.orders}
    attention, smallest = orders["attention"], orders.get(MINIMAL)
    return Exhibit(
        row=one.row,
        id=number,
        items=one.items,
        weights=one.weights,
        gold=one.gold,
        label=one.label,
        flip_label=attention.flip_label,
        first_flip=attention.first_flip,
        erased=attention.items[: max(attention.first_flip, 0)],
        minimal_size=-1 if smallest is None else smallest.first_flip,
        minimal=() if smallest is None else smallest.items[: max(smallest.first_flip, 0)],
    )
