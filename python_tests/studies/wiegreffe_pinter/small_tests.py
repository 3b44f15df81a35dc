"""A tiny run of the tests of Wiegreffe and Pinter, on sentences made up here."""

from __future__ import annotations

from fastattnerase.runs import schedule
from fastattnerase.runs.workspace import Record
from fastattnerase.studies.wiegreffe_pinter.options import Options
from fastattnerase.studies.wiegreffe_pinter.units import WiegreffePinter

OPTIONS = Options(
    datasets=("sst",),
    seeds=(1, 2, 3),
    strengths=(0.05,),
    lender=0.05,
    curve=(0.0, 0.1, 10.0),
    curve_epochs=30,
    embedding_size=16,
    hidden_size=12,
    epochs=10,
    adversary_epochs=20,
)


class Quiet:
    """Watches a schedule in silence; remembers what was finished."""

    def __init__(self) -> None:
        self.finished_units: list[str] = []

    def plan(self, costs: dict[str, float], done: int) -> None:
        self.costs = costs

    def at(self, key: str, share: float) -> None:
        assert 0 <= share <= 1

    def finished(self, key: str, record: Record) -> None:
        self.finished_units.append(key)


def run(workspace: WiegreffePinter) -> list[str]:
    """Run the units in this process; give those that were not done before."""
    watcher = Quiet()
    schedule.run(workspace, 1, watcher)
    return watcher.finished_units
