"""Every figure of the information studies: nothing is cut, no legend lies on a panel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report.layout import faults
from studies.wen.committed import measurements

from fastattnerase.studies.wen.figures import figures
from fastattnerase.studies.wen.rows import (
    TAUS,
    GumbelRow,
    Measured,
    RankInformation,
    Repeats,
)
from fastattnerase.studies.wen.tables import Tables

LONG = "Opinions of travellers, translated from forty languages, in two classes"


def information(measured: Measured) -> list[RankInformation]:
    """What three ranks of a model tell, made up."""
    rows = []
    for rank in (1, 2, 3):
        plug_in = 0.5 / rank
        rows.append(
            RankInformation(
                measured=measured, rank=rank, instances=100, weight=0.5 / rank, clusters=50,
                singletons=0, plug_in=plug_in, miller_madow=plug_in - 0.2, control_mean=0.1,
                control_low=0.05, control_high=0.15, bound=1.2,
            )
        )  # fmt: skip
    return rows


def with_nulls(measured: Measured) -> Measured:
    """The same model with nulls, made up: a quarter below with weights permuted, 0 elsewhere."""
    taus = {}
    for name in TAUS:
        tau = measured.tau(name)
        nulls = Repeats(permuted=tau.value - 0.25, equal=0.0, untrained=0.0)
        taus[name] = replace(tau, repeats=nulls)
    return replace(measured, **taus)


def tables(models: int) -> Tables:
    """Measurements of the committed study, of so many models of each data set."""
    found: dict[str, list[Measured]] = {}
    for row in measurements():
        if row.cell.variant == "normal" and row.cell.mechanism == "softmax":
            found.setdefault(row.cell.dataset, []).append(row)
    kept = [with_nulls(row) for rows in found.values() for row in rows[:models]]
    curves = [line for row in kept for line in information(row)]
    return Tables(
        measurements=kept,
        curves=curves,
        gumbel=[GumbelRow(row, row, row, row) for row in kept[: 4 * models]],
    )


@pytest.mark.parametrize(
    ("models", "title"),
    [
        (2, LONG),
        *(pytest.param(models, title, marks=pytest.mark.long)
          for models in range(1, 9) for title in ("SST", LONG)),
    ],
)  # fmt: skip
def test_nothing_is_cut(models: int, title: str) -> None:
    made = tables(models)
    titles = {row.cell.dataset: title for row in made.measurements}
    drawn = dict(figures(made, titles))
    assert {"figure-2-weighted", "figure-2-plain", "tau-and-skew", "gumbel"} < set(drawn)
    permuted, *_ = drawn["figure-2-nulls-plain"].axes
    count = len(made.measurements)
    assert permuted.get_title(loc="left") == f"Permuted: {count} of {count} above"
    found = {name: faults(figure) for name, figure in drawn.items()}
    assert {name: told for name, told in found.items() if told} == {}
