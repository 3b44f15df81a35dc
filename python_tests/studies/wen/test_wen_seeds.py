"""The tables of the information studies over several seeds, from the committed measurements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from studies.wen.committed import measurements

from fastattnerase.studies.wen.layout import frames
from fastattnerase.studies.wen.options import Options
from fastattnerase.studies.wen.rows import Measured, Tau
from fastattnerase.studies.wen.seed_tables import SpreadRow, over_seeds
from fastattnerase.studies.wen.tables import compare


def _find(rows: list[SpreadRow], table: str, about: str, quantity: str) -> list[SpreadRow]:
    return [row for row in rows if (row.table, row.about, row.quantity) == (table, about, quantity)]


def test_every_part_of_the_paper_can_have_five_seeds() -> None:
    options = Options(
        datasets=("sst", "20news_sports"), seeds=tuple(range(5)), small_seeds=tuple(range(5))
    )
    assert options.seeds == options.small_seeds == (0, 1, 2, 3, 4)


def test_the_grid_over_its_three_seeds() -> None:
    tables = compare(measurements())
    rows = _find(over_seeds(tables), "figure_2", "", "plain")
    assert len(rows) == len(tables.figure_2) == 36
    for row, of_figure in zip(rows, tables.figure_2, strict=True):
        values = [
            measured.plain.value
            for measured in tables.measurements
            if measured.cell.variant == "normal"
            and measured.name == "main"
            and replace(measured.cell, seed=0) == replace(of_figure.cell, seed=0)
        ]
        known = [value for value in values if not np.isnan(value)]
        assert row.spread.mean == pytest.approx(np.mean(known))
        assert row.spread.sd == pytest.approx(np.std(known, ddof=1))
        assert (row.spread.least, row.spread.most) == (min(known), max(known))
        assert row.undefined == len(values) - len(known)
        assert row.spread.mean == pytest.approx(of_figure.plain.mean)


def test_one_seed_has_no_spread() -> None:
    tables = compare(measurements())
    assert {row.table for row in over_seeds(tables)} == {"figure_2"}
    assert over_seeds(compare([])) == []


def test_tables_2_to_5_over_two_seeds() -> None:
    """The measurements of seed 0 once more as seed 7, with every tau of special models lower."""
    first = [row for row in measurements() if row.cell.seed == 0]

    def lower(row: Measured) -> Measured:
        fall = 0.0 if row.cell.variant == "normal" and row.cell.mechanism == "softmax" else 0.25
        taus = {
            name: replace(row.tau(name), value=row.tau(name).value - fall)
            for name in ("weighted", "weighted_sum", "plain")
        }
        assert all(isinstance(tau, Tau) for tau in taus.values())
        return replace(row, cell=replace(row.cell, seed=7), **taus)

    tables = compare([*first, *map(lower, first)])
    rows = over_seeds(tables)
    assert {row.table for row in rows} == {"figure_2", "table_2", "table_3", "table_4", "gumbel"}
    for table, about in (
        ("table_2", "Fix Attn, trained"), ("table_4", ""), ("gumbel", "noise on"),
    ):  # fmt: skip
        found = _find(rows, table, about, "weighted_delta")
        assert found
        for row in found:
            assert row.spread.seeds == 2
            assert row.spread.most - row.spread.least == pytest.approx(0.25)
            assert row.spread.sd == pytest.approx(0.25 / np.sqrt(2))
            deltas = row.spread.least, row.spread.most
            assert row.above_zero == sum(delta > 0 for delta in deltas)
    for row in _find(rows, "table_3", "", "tvd"):
        assert row.spread.sd == 0.0


def test_the_tables_are_among_those_that_are_written() -> None:
    first = [row for row in measurements() if row.cell.seed == 0]
    again = [replace(row, cell=replace(row.cell, seed=1)) for row in first]
    written = {layout.name: frame for layout, frame in frames(compare([*first, *again]), [])}
    assert (written["seeds"]["seeds"] == 2).all()
    assert (written["seeds"]["sd"] == 0).all()
    assert set(written["seeds_gumbel"]["about"]) == {"noise off", "noise on"}
    assert "seeds" not in {layout.name for layout, _ in frames(compare(first), [])}
