"""What statistics over seeds go by: a number for each analysed instance of a run."""

from __future__ import annotations

import math

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.statistics.resampled import Floats
from fastattnerase.studies.serrano_smith.instance_tables import holds, read_columns
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


def lasting_fractions(result: Result, ranking: str) -> Floats | None:
    """Read the fraction erased from which on the decision stays changed, `[n, orders]`.

    It is infinite where there is none; None of a run that is older than the column.
    """
    if not holds(result.folder, "multi", "stays_changed"):
        return None
    table = read_columns(result.folder, "multi", ["order", "stays_changed"], ranking)
    if table["stays_changed"].isna().any():  # it joins runs that are older
        return None
    of = read_columns(result.folder, "instances", ["n", "excluded"])
    n = of.loc[of["excluded"] == "", "n"].to_numpy()
    orders = len(table) // max(1, len(n))
    columns = [
        table.loc[table["order"] == order, "stays_changed"].to_numpy() for order in range(orders)
    ]
    stays = np.stack(columns, axis=1)  # [n, orders]
    return np.where(stays > 0, stays / n[:, None], math.inf)


def seed_sizes(result: Result) -> list[int]:
    """Count the analysed instances of each seed, whose runs follow one another in a joined one."""
    excluded = read_columns(result.folder, "instances", ["excluded"])["excluded"].to_numpy()
    # All seeds of a study erase from the same documents.
    seeds = np.split(excluded == "", max(1, len(result.seeds)))
    return [int(analysed.sum()) for analysed in seeds]


def flips_so(table: pd.DataFrame, top: bool, other: bool) -> Floats:
    """Say of each instance whether the two items flip so, each alone, `[n, 1]`."""
    found = ((table["flip_label"] >= 0) == top) & ((table["r_flip_label"] >= 0) == other)
    return np.asarray(found, dtype=np.float64)[:, None]
