"""What figures of a large sweep are drawn from: histograms of all instances, a sample of some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.sweeps.wide import Columns

with needs("text"):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

SAMPLE = 5_000  # instances of which single points are drawn
FRACTIONS = 50  # bins from 0 to 1
DOUBLING = 8  # bins of a gap from one number to its double


def write_histograms(connection: Any, columns: Columns, path: Path) -> None:
    """Count fractions and gaps of all analysed instances and orders by ranking, as CSV.

    Rows have `quantity` (`fraction` of items erased at the first flip; `gap` to the smallest set,
    of the instances that a part of their items flips), `ranking`, `low` and `high`, the ends of the
    bin, of which it holds the first, the last bin of fractions both, and `count`. What is as small
    as the smallest set is in a bin from 1 to 1, what never flips in one from `inf` to `inf`.

    Args:
        connection: of `wide.database`, with the table filled.
        columns: of the table.
        path: the file.
    """
    rows: list[dict[str, Any]] = []
    choice = "false"
    if "minimal" in columns.numbers:
        flip, fraction = columns.multi("minimal", "flip"), columns.multi("minimal", "fraction")
        choice = f"{flip} > 0 AND {fraction} < 1"
    for ranking in columns.numbers:
        flips = columns.each(ranking, "flip")
        # Of whole numbers: 29 / 50 * 50 is less than 29.
        bins = f"least(x, {FRACTIONS - 1})"
        places = [f"{flip} * {FRACTIONS} // n" for flip in flips]
        for place, count in _counted(connection, flips, places, bins):
            low, high = (end / FRACTIONS for end in (place, place + 1))
            rows.append(_row("fraction", ranking, low, high, count))
        # What is as small as the smallest set has a bin of its own, of no width.
        bins = f"CASE WHEN x <= 1 THEN -1 ELSE floor(log2(x) * {DOUBLING}) END"
        gaps = columns.each(ranking, "gap")
        for place, count in _counted(connection, flips, gaps, bins, choice):
            low, high = (2 ** (max(end, 0) / DOUBLING) for end in (place, place + 1))
            rows.append(_row("gap", ranking, low, high, count))
    aside = path.with_suffix(".partial")
    pd.DataFrame(rows).to_csv(aside, index=False)
    aside.replace(path)


def _row(quantity: str, ranking: str, low: float, high: float, count: int) -> dict[str, Any]:
    return {"quantity": quantity, "ranking": ranking, "low": low, "high": high, "count": count}


def _counted(
    connection: Any, flips: Sequence[str], values: Sequence[str], bins: str, where: str = "true"
) -> list[tuple[float, int]]:
    """Count values by bin, in ascending order, what never flips at infinity."""
    each = ", ".join(
        f"CASE WHEN {flip} > 0 THEN {value} ELSE 'infinity'::DOUBLE END"
        for flip, value in zip(flips, values, strict=True)
    )
    rows = connection.execute(
        f"SELECT CASE WHEN isinf(x) THEN x ELSE {bins} END AS b, count(*) FROM "
        f"(SELECT unnest([{each}]) AS x FROM analysed WHERE {where}) GROUP BY b ORDER BY b"
    ).fetchall()
    return [(math.inf if place is None else place, count) for place, count in rows]


def write_sample(connection: Any, columns: Columns, seed: int, path: Path) -> None:
    """Write instances drawn by a seed, for figures that show points.

    Args:
        connection: of `wide.database`, with the table filled.
        columns: of the table.
        seed: of the draw.
        path: a Parquet file with `row`, `delta_alpha` and `delta_js` of attention.
    """
    [total] = connection.execute("SELECT count(*) FROM analysed").fetchone()
    rng = np.random.default_rng(seed)
    places = np.sort(rng.choice(total, min(SAMPLE, total), replace=False))
    found = connection.execute(
        "SELECT row, "
        f"{columns.single('attention', 'delta_alpha')} AS delta_alpha, "
        f"{columns.single('attention', 'delta_js')} AS delta_js "
        "FROM analysed WHERE rowid IN (SELECT unnest($places)) ORDER BY rowid",
        {"places": places.tolist()},
    ).fetchnumpy()
    aside = path.with_suffix(".partial")
    pq.write_table(pa.table({name: np.asarray(column) for name, column in found.items()}), aside)
    aside.replace(path)
