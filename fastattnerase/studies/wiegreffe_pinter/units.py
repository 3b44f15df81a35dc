"""The units of the tests of Wiegreffe and Pinter: the data of a data set, and a cell each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fastattnerase.runs.workspace import Unit
from fastattnerase.studies.published_data import PublishedData
from fastattnerase.studies.wiegreffe_pinter.cells import Cells
from fastattnerase.studies.wiegreffe_pinter.options import DIAGNOSTIC, Cell, Options


class WiegreffePinter(PublishedData, Cells):
    """The tests in a folder.

    Args:
        options: the tests.
        root: the folder with a folder of each data set.
        out: the folder of everything that is made.
        device: where models are trained.

    Example:
        >>> from pathlib import Path
        >>> options = Options(datasets=("sst",), tests=("uniform",))
        >>> [u.key for u in WiegreffePinter(options, Path("data"), Path("runs/wp")).units()]
        ['data/sst', 'cells/sst/bilstm-additive/base-10', 'cells/sst/bilstm-additive/uniform-10']
    """

    options: Options

    def __init__(self, options: Options, root: Path, out: Path, device: str = "cpu") -> None:
        super().__init__(options, out, device)
        self.root = root

    def cells(self) -> list[Cell]:
        """List the cells, each after those that it needs."""
        cells: dict[Cell, None] = {}
        for cell in self._wanted():
            for one in cell.needs(self.options.base_seed):
                cells[one] = None
            cells[cell] = None
        return list(cells)

    def units(self) -> list[Unit]:
        """List data sets, cells, and the search for Jain & Wallace's adversaries of base models."""
        bases = [
            cell
            for cell in self.cells()
            if cell.kind == "base" and cell.dataset in self.options.tested_datasets
        ]
        wanted = bases if "adversary" in self.options.tests else []
        return [*super().units(), *map(self.sought_unit, wanted)]

    def _wanted(self) -> Iterator[Cell]:
        """List the cells that the options ask for, some more than once."""
        o = self.options
        for dataset in dict.fromkeys((*o.datasets, *o.tested_datasets, *o.curve_on)):
            for encoder in o.encoders:
                for attention in o.attentions:
                    yield from self._of_model(partial(Cell, dataset, encoder, attention), dataset)

    def _of_model(self, make: partial[Cell], dataset: str) -> Iterator[Cell]:
        """List the cells around one base model."""
        o = self.options
        if "uniform" in o.tests and dataset in o.datasets:
            yield make("uniform", o.base_seed)
        if dataset in o.tested_datasets:
            if "seeds" in o.tests:
                for seed in o.seeds:
                    yield make("seed", seed)
            if "diagnostic" in o.tests:
                for kind in DIAGNOSTIC:
                    lent = kind == "mlp_adversary"
                    by = {"strength": o.lender, "epochs": o.adversary_epochs} if lent else {}
                    yield make(kind, o.base_seed, **by)
            if "adversary" in o.tests:
                for strength in o.strengths_on(dataset):
                    yield make("adversary", o.base_seed, strength, o.adversary_epochs)
        if "adversary" in o.tests and dataset in o.curve_on:
            for strength in o.curve:
                yield make("adversary", o.base_seed, strength, o.curve_epochs)

    def _data_state(self, dataset: str) -> dict[str, Any]:
        """Say what prepared data depend on."""
        return {"dataset": dataset, "options": self.options.used_for_data()}
