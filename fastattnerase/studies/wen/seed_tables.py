"""How the numbers of the tables differ over the seeds of one kind of model: rows and columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastattnerase.statistics.two_level import SeedSpread, spread
from fastattnerase.studies.wen.columns import Columns, Layout
from fastattnerase.studies.wen.options import Cell
from fastattnerase.studies.wen.rows import NOISES, TAUS, Measured, Pair
from fastattnerase.studies.wen.tables import Tables, grouped


@dataclass(frozen=True)
class SpreadRow:
    """One number of one kind of model over its seeds, a row of `seeds`.

    Attributes:
        table: Where each seed's number stands: `figure_2`, `table_2`, `table_3`, `table_4` or
            `gumbel`.
        cell: One of the models: its data set, encoder, attention and attention function.
        about: What was fixed in `table_2`, or when Gumbel-softmax had noise.
        quantity: `weighted` and `plain` are tau, `…_delta` by how much it falls from the normal
            model; `accuracy`, and the distances of `table_3` and `table_4`.
        spread: Of the seeds for which the number is defined.
        undefined: Number of seeds for which it is not.
        above_zero: Number of seeds for which it is above 0.
    """

    table: str
    cell: Cell
    about: str
    quantity: str
    spread: SeedSpread
    undefined: int
    above_zero: int


_COLUMNS: Columns[SpreadRow] = {
    "table": lambda row: row.table,
    "dataset": lambda row: row.cell.dataset,
    "encoder": lambda row: row.cell.encoder,
    "attention": lambda row: row.cell.attention,
    "mechanism": lambda row: row.cell.mechanism,
    "about": lambda row: row.about,
    "quantity": lambda row: row.quantity,
    "seeds": lambda row: row.spread.seeds,
    "mean": lambda row: row.spread.mean,
    "sd": lambda row: row.spread.sd,
    "least": lambda row: row.spread.least,
    "most": lambda row: row.spread.most,
    "undefined": lambda row: row.undefined,
    "above_zero": lambda row: row.above_zero,
}
SEEDS: Layout[SpreadRow] = Layout(
    "seeds",
    _COLUMNS,
    title="Figure 2 and Tables 2 to 4 over the seeds",
    shown={
        "table": "Table", "dataset": "Data", "encoder": "Encoder", "attention": "Attention",
        "about": "What was fixed", "quantity": "Number", "seeds": "Seeds", "mean": "Mean",
        "sd": "Standard deviation", "least": "Least", "most": "Most", "above_zero": "Above 0",
    },
    note="A seed is a training of its own. Deltas are by how much tau falls from the normal model "
    "of the same seed; the numbers of each seed stand in the tables before.",
)  # fmt: skip
SEEDS_GUMBEL: Layout[SpreadRow] = Layout("seeds_gumbel", _COLUMNS)


def over_seeds(tables: Tables) -> list[SpreadRow]:
    """Describe each kind of model that has two seeds or more, table by table.

    Args:
        tables: all of a study.

    Returns:
        A row for each number of the grid (Figure 2) and of Tables 2 to 5. A seed is a training of
        its own; nothing here is about instances of one model.

    Example:
        >>> over_seeds(Tables())
        []
    """
    return [*_grid(tables), *_fixed(tables), *_adversaries(tables), *_gumbel(tables)]


def _describe(
    table: str, cell: Cell, about: str, numbers: dict[str, list[float]]
) -> Iterator[SpreadRow]:
    """Yield a row for each number that two seeds or more have."""
    for quantity, values in numbers.items():
        known = [value for value in values if not math.isnan(value)]
        if len(values) > 1 and known:
            above = sum(value > 0 for value in known)
            undefined = len(values) - len(known)
            yield SpreadRow(table, cell, about, quantity, spread(known), undefined, above)


def _models(rows: Sequence[Measured]) -> dict[str, list[float]]:
    """Give tau and accuracy of models that differ in the seed alone."""
    numbers = {str(tau): [row.tau(tau).value for row in rows] for tau in TAUS}
    return numbers | {"accuracy": [row.accuracy for row in rows]}


def _pairs(pairs: Sequence[Pair]) -> dict[str, list[float]]:
    """Give tau of special models, how much it falls and their accuracy."""
    numbers: dict[str, list[float]] = {}
    for tau in TAUS:
        numbers[tau] = [pair.special.tau(tau).value for pair in pairs]
        numbers[f"{tau}_delta"] = [pair.delta(tau) for pair in pairs]
    return {**numbers, "accuracy": [pair.special.accuracy for pair in pairs]}


def _kind(cell: Cell) -> tuple[str, str, str, str]:
    """Say what models that differ in the seed alone have in common."""
    return cell.dataset, cell.encoder, cell.attention, cell.mechanism


def _grid(tables: Tables) -> Iterator[SpreadRow]:
    normal = [
        row
        for row in tables.measurements
        if row.cell.variant == "normal" and row.name == "main"
    ]  # fmt: skip
    for rows in grouped(normal, lambda row: _kind(row.cell)).values():
        yield from _describe("figure_2", rows[0].cell, "", _models(rows))


def _fixed(tables: Tables) -> Iterator[SpreadRow]:
    groups = grouped(
        tables.table_2, lambda row: (_kind(row.special.cell), row.setting, row.reading)
    )
    for (_, setting, reading), rows in groups.items():
        about = f"{setting}, {reading}"
        yield from _describe("table_2", rows[0].special.cell, about, _pairs(rows))


def _adversaries(tables: Tables) -> Iterator[SpreadRow]:
    groups = grouped(tables.adversaries, lambda row: _kind(row.special.cell))
    for rows in groups.values():
        cell = rows[0].special.cell
        distances = {
            name: [float(getattr(row, name)) for row in rows]
            for name in ("tvd", "attention_jsd", "output_jsd")
        }
        yield from _describe("table_3", cell, "", distances)
        yield from _describe("table_4", cell, "", _pairs(rows))


def _gumbel(tables: Tables) -> Iterator[SpreadRow]:
    for rows in grouped(tables.gumbel, lambda row: _kind(row.softmax.cell)).values():
        for noise in NOISES:
            pairs = [row.pair(noise) for row in rows]
            about = noise.replace("_", " ")
            yield from _describe("gumbel", rows[0].softmax.cell, about, _pairs(pairs))
