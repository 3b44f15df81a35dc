"""What a test of attention found, as a table in a folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.extras import needs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:  # imported where they are used; hints that are read at run time say Any
    DataclassInstance = Any

with needs("report"):
    import pandas as pd

INSTANCES = "instances.csv"  # a row for each document, or for each tau of one


def write_rows(rows: Iterable[DataclassInstance], folder: Path) -> pd.DataFrame:
    """Write the records of a test as a table, and give it."""
    table = pd.DataFrame([dataclasses.asdict(row) for row in rows])
    table.to_csv(folder / INSTANCES, index=False)
    return table


def read_rows(folder: Path) -> pd.DataFrame:
    """Read the table of a test; a tau that is undefined is NaN, with its reason beside."""
    path = folder / INSTANCES
    return pd.read_csv(path, keep_default_na=False, na_values={"tau": "", "p": ""})
