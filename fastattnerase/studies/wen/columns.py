"""What a table's columns are, and columns that several tables have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from fastattnerase.extras import needs
from fastattnerase.studies.wen.repeats import Repeats
from fastattnerase.studies.wen.rows import Measured, TauName

with needs("report"):
    import pandas as pd

Row = TypeVar("Row")
Columns = dict[str, Callable[[Row], Any]]


@dataclass(frozen=True)
class Layout(Generic[Row]):
    """A table's columns.

    Attributes:
        name: Name of the files.
        columns: From a column of the CSV file to its value in a row.
        title: Title on the page.
        shown: From a column on the page to its head there; empty for a table that is not shown.
        printed: From a column in LaTeX to its head there; empty for a table that is too long.
        note: What a reader must know, below the table on the page.
    """

    name: str
    columns: Columns[Row]
    title: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    printed: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def frame(self, rows: Sequence[Row]) -> pd.DataFrame:
        """Give the rows as a data frame; one without rows has no columns."""
        return pd.DataFrame(
            [{name: value(row) for name, value in self.columns.items()} for row in rows]
        )


ALL_TAUS: tuple[TauName, ...] = ("weighted", "weighted_sum", "plain")


def same(*names: str) -> Columns[Any]:
    """Name attributes of a row as they are called."""
    return {name: attrgetter(name) for name in names}


def model(measured: Callable[[Row], Measured]) -> Columns[Row]:
    """Name the model and the measurement of a row."""
    return {
        "dataset": lambda row: measured(row).cell.dataset,
        "encoder": lambda row: measured(row).cell.encoder,
        "attention": lambda row: measured(row).cell.attention,
        "mechanism": lambda row: measured(row).cell.mechanism,
        "variant": lambda row: measured(row).cell.variant,
        "seed": lambda row: measured(row).cell.seed,
        "measurement": lambda row: measured(row).name,
    }


def taus(names: Sequence[TauName], **parts: str) -> Columns[Any]:
    """Name parts of each tau of a row: the suffix of the column, and the attribute's name."""
    return {
        f"{name}{suffix}": attrgetter(f"{name}.{attribute}")
        for name in names
        for attribute, suffix in parts.items()
    }


def divergence(*names: str) -> Columns[Measured]:
    """Name divergences of an adversary; other models have none."""
    return {
        name: lambda row, name=name: getattr(row.result.divergence, name, None)  # type: ignore[misc]
        for name in names
    }


def repeated(names: Sequence[TauName]) -> Columns[Any]:
    """Name every repeat of each tau of a row."""
    return {
        f"{name}_{repeat.name}": attrgetter(f"{name}.repeats.{repeat.name}")
        for name in names
        for repeat in fields(Repeats)
    }
