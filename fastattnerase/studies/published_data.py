"""Studies of published data: how a data set is prepared in a folder, once, and read back."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fastattnerase.data import DataConfig, PreparedCorpus
from fastattnerase.data.presets import read_prepared, write_preset
from fastattnerase.models.published import data_cost
from fastattnerase.runs.workspace import Report, Unit, Workspace


class DataOptions(Protocol):
    """What data depend on, of a study's options."""

    def used_for_data(self) -> dict[str, Any]:
        """Give the options that the prepared data depend on."""

    def vectors_on(self, dataset: str) -> str | None:
        """Give the file of word vectors of a data set; None where words have none."""


class PublishedData(Workspace):
    """A study whose data sets are presets, each prepared by a unit `data/NAME`.

    Attributes:
        options: the study's.
        root: the folder with a folder of each data set.
    """

    options: DataOptions
    root: Path

    @abstractmethod
    def _data_state(self, dataset: str) -> dict[str, Any]:
        """Say what prepared data depend on."""

    def data_unit(self, dataset: str) -> Unit:
        """Give the unit that prepares a data set."""
        return Unit(
            f"data/{dataset}",
            partial(self._prepare, dataset),
            partial(self._data_state, dataset),
            cost=data_cost(dataset),
        )

    def _prepare(self, dataset: str, folder: Path, report: Report) -> dict[str, Any]:
        """Read, clean and split a data set in a unit's folder."""
        limits = self.options.used_for_data()
        return {"about": write_preset(dataset, self.root, folder / "prepared", **limits)}

    def load_data(self, dataset: str) -> tuple[PreparedCorpus, DataConfig]:
        """Load the prepared data of a data set, with the word vectors."""
        folder = self.folder(f"data/{dataset}") / "prepared"
        return read_prepared(folder, vectors=self.options.vectors_on(dataset))
