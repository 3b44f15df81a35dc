"""The report of the miniature study: one table, one figure, one page."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from fastattnerase.report import figures, page, tables


def build(table: pd.DataFrame, folder: Path) -> Path:
    """Write `report.html`, and the table as CSV and LaTeX.

    Args:
        table: a row for each ranking: `ranking`, `flipped`, `median`.
        folder: where to.

    Returns:
        The page.
    """
    tables.save(table, folder / "flips")
    with mpl.rc_context(figures.STYLE):
        figure = Figure(figsize=figures.PANEL, layout="constrained")
        axes = figure.subplots()
        axes.bar(table["ranking"], table["median"].fillna(0))
        axes.set_ylabel("Median fraction erased at first flip")
    return page.write(
        folder / "report.html",
        "studies.miniature",
        "miniature.html.j2",
        rows=table.to_dict("records"),
        figure=Markup(figures.inline(figure, "Bars: median fraction erased, by ranking.")),
    )
