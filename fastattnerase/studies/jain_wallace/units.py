"""The steps of the study of Jain and Wallace: its cells, and the report on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastattnerase.runs.workspace import Report, Unit
from fastattnerase.studies.jain_wallace.cells import TESTS, Cells
from fastattnerase.studies.jain_wallace.report import build


class JainWallace(Cells):
    """The study in a folder.

    Args:
        options: the study.
        data_root: the folder with a folder of each data set.
        out: the folder of everything that is made.
        device: where models are trained and run.

    Example:
        >>> from fastattnerase.studies.jain_wallace.options import Options
        >>> options = Options(datasets=("sst",), encoders=("mlp",))
        >>> [unit.key for unit in JainWallace(options, Path("data"), Path("out")).units()][-1]
        'report'
    """

    def units(self) -> list[Unit]:
        """List the cells' steps, and the report."""
        units = super().units()
        report = Unit(
            "report",
            self.report,
            self._report_state,
            tuple(unit.key for unit in units),
            renewed=True,  # made anew where another cell has come
        )
        return [*units, report]

    def _report_state(self) -> dict[str, Any]:
        """Name the cells of this call and all others that are there."""
        state = {cell.key: self.digests(cell) for cell in self.finished()}
        for cell in self.options.cells():
            state[cell.key] = [self.digest(self.test_unit(cell, test)) for test in TESTS]
        return state

    def report(self, folder: Path, report: Report) -> dict[str, Any]:
        """Write tables, figures and page."""
        return {"page": build(self, folder).name}
