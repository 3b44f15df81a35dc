"""Documents to look at, chosen by rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np

import fastattnerase as fae
from fastattnerase.choices import BackendName
from fastattnerase.sources import Chunk, Source
from fastattnerase.statistics.attention import attention_weights
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import as_ints
from fastattnerase.studies.serrano_smith.instance_tables import read_columns
from fastattnerase.studies.serrano_smith.result import Exhibit

_EXHIBIT_ITEMS = 250  # longer documents are not shown


def choose(source: Source, config: Config, folder: Path) -> tuple[Exhibit, ...]:
    """Choose documents by rule, not by eye: evenly spaced in the gap of the attention ranking.

    One in six at least is a document that never flips under attention, where there is one.
    """
    n = read_columns(folder, "instances", ["row", "n"])
    table = read_columns(folder, "multi", ["row", "gap", "first_flip"], "attention").merge(
        n, on="row"
    )
    table = table[table["n"] <= min(_EXHIBIT_ITEMS, 3 * table["n"].median())]
    flips = table[table["first_flip"] > 0].sort_values(["gap", "first_flip", "row"])
    never = table[table["first_flip"] < 0].sort_values("row")
    still = min(len(never), -(-config.exhibits // 6))
    moving = min(len(flips), config.exhibits - still)
    places = np.unique(np.linspace(0, max(len(flips) - 1, 0), moving).round().astype(int))
    rows = [*flips["row"].to_numpy()[places].tolist()] if moving else []
    rows += never["row"].to_numpy()[:still].tolist()
    shown: list[Exhibit] = []
    for chunk in source.select(rows) if rows else ():
        if chunk.texts is None:
            return ()
        shown += _show(chunk, config, rows[len(shown) :])
    return tuple(shown)


def _show(chunk: Chunk, config: Config, rows: list[int]) -> Iterator[Exhibit]:
    batch = chunk.batch
    texts = chunk.texts or []
    minimal = batch.values.dim() == 2
    w = fae.sweep(
        batch,
        rankings=("attention",),
        orders=True,
        single=False,
        minimal=minimal,
        backend=cast(BackendName, config.backend),
    )
    assert w.prefixes.order is not None  # asked for
    order = as_ints(w.prefixes.order[0])
    smallest = None if w.minimal is None else as_ints(w.minimal.order)
    weights = attention_weights(batch)
    offsets = as_ints(batch.offsets)
    for b, items in enumerate(texts):
        span = slice(offsets[b], offsets[b + 1])
        flip = int(w.prefixes.first_flip[0, b])
        size = -1 if w.minimal is None else int(w.minimal.size[b])
        yield Exhibit(
            row=rows[b],
            id=int(batch.ids[b]),
            items=tuple(items),
            weights=tuple(round(float(a), 6) for a in weights[span]),
            gold=None if chunk.gold is None else int(chunk.gold[b]),
            label=int(w.prefixes.label[b]),
            flip_label=int(w.prefixes.flip_label[0, b]),
            first_flip=flip,
            erased=() if flip < 0 else tuple(order[span][:flip].tolist()),
            minimal_size=size,
            minimal=() if smallest is None or size < 0 else tuple(smallest[span][:size].tolist()),
        )
