"""What statistics over seeds go by: a number for each analysed instance of a run."""

from __future__ import annotations

import math

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.statistics.resampled import Floats
from fastattnerase.studies.serrano_smith.instance_tables import read_columns
from fastattnerase.studies.serrano_smith.result import Result

with needs("text"):
    import pandas as pd


def fractions(result: Result, ranking: str) -> Floats:
    """Read the fraction erased at the first flip, `[n, orders]`, infinite where there is none."""
    table = read_columns(result.folder, "multi", ["order", "first_flip", "fraction"], ranking)
    values = table["fraction"].where(table["first_flip"] > 0, math.inf)
    orders = 1 if table.empty else int(table["order"].max()) + 1
    columns = [values[table["order"] == order].to_numpy(np.float64) for order in range(orders)]
    return np.stack(columns, axis=1)


def flips_so(table: pd.DataFrame, top: bool, other: bool) -> Floats:
    """Say of each instance whether the two items flip so, each alone, `[n, 1]`."""
    found = ((table["flip_label"] >= 0) == top) & ((table["r_flip_label"] >= 0) == other)
    return np.asarray(found, dtype=np.float64)[:, None]
