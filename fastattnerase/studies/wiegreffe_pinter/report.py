"""The report on the tests: a page, figures, tables as CSV and LaTeX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastattnerase.data.prepared import PreparedData
from fastattnerase.extras import needs
from fastattnerase.report import page
from fastattnerase.report.tables import save as save_table
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies import pages
from fastattnerase.studies.wiegreffe_pinter import tables
from fastattnerase.studies.wiegreffe_pinter.cells import Cells
from fastattnerase.studies.wiegreffe_pinter.claims import claims
from fastattnerase.studies.wiegreffe_pinter.figures import figures
from fastattnerase.studies.wiegreffe_pinter.layout import LAYOUTS, Layout
from fastattnerase.studies.wiegreffe_pinter.open_points import POINTS
from fastattnerase.studies.wiegreffe_pinter.paper import CELLS, SOURCES

with needs("report"):
    import pandas as pd

PAGE = "wiegreffe-pinter.html"
_BY_CLASS = ("classes", "train", "dev", "test")  # columns of Table 1


def build(workspace: Cells, folder: Path) -> Path:
    """Write the report on all finished cells in a study's folder.

    Args:
        workspace: the study.
        folder: where to: `wiegreffe-pinter.html`, `figures/*.{png,svg,pdf}`, `tables/*.{csv,tex}`.

    Returns:
        The page's path.

    Raises:
        RunError: no base model is finished.

    Example:
        >>> from fastattnerase.studies.wiegreffe_pinter.report import build
        >>> build(workspace, Path("runs/wp/report"))  # doctest: +SKIP
    """
    families = tables.families(workspace)
    if not families:
        raise RunError(f"{workspace.out} has no finished base model to report on")
    data = workspace.data()
    titles = {name: about.title for name, about in data.items()}
    pages.empty_folders(folder)
    uniform = tables.uniform_table(workspace, families)
    diagnostic = tables.diagnostic_table(families, workspace.options.lender)
    adversaries = tables.adversary_table(families)
    curve = tables.curve_table(adversaries)
    found = claims(uniform, diagnostic, adversaries, curve)
    frames = {
        "table_1": _data_table(data),
        "table_2": uniform,
        "table_3": diagnostic,
        "table_4": adversaries,
        "seeds": tables.seed_table(workspace, families),
        "curve": curve,
        "sought": tables.sought_table(workspace, families),
        "models": tables.model_table(families),
        "claims": pd.DataFrame([vars(claim) for claim in found]),
        "paper": pd.DataFrame([vars(c) | {"source": SOURCES[c.source]} for c in CELLS]),
    }
    for name, frame in frames.items():
        if len(frame):
            save_table(frame, folder / "tables" / name)
    drawn = pages.save_drawn(folder, figures(workspace, families, titles))
    return page.write(
        folder / PAGE,
        "fastattnerase.studies.wiegreffe_pinter",
        "wiegreffe-pinter.html.j2",
        claims=[vars(claim) | {"case": _titled(claim.case, titles)} for claim in found],
        tables=[
            _shown(folder, layout, frames[layout.name], titles)
            for layout in LAYOUTS
            if len(frames[layout.name])
        ],
        figures=[shown for _, shown in drawn],
        points=POINTS,
        sources=list(SOURCES.values()),
        options=pages.options(workspace.options),
        models=sum(len(family.results) for family in families),
    )


def _data_table(data: dict[str, PreparedData]) -> pd.DataFrame:
    """Describe the data sets (Table 1)."""
    return pd.DataFrame(
        {
            "dataset": name,
            "title": about.title,
            "classes": " / ".join(about.classes),
            "words": about.words,
            "mean_length": about.mean_length,
        }
        | {split: about.counts(split) for split in about.documents}
        | {"left_out": about.left_out, "note": about.note}
        for name, about in data.items()
    )


def _titled(case: str, titles: dict[str, str]) -> str:
    """Write a case with the title of its data set."""
    name, _, rest = case.partition(" ")
    return f"{titles.get(name, name)} {rest}"


def _shown(
    folder: Path, layout: Layout, frame: pd.DataFrame, titles: dict[str, str]
) -> dict[str, Any]:
    """Write a table's cells for the page."""

    def text(column: str, value: Any) -> str:
        if column == "dataset":
            return titles.get(str(value), str(value))
        if column in _BY_CLASS:
            return pages.by_class(str(value), " / ")
        if isinstance(value, float):
            if pd.isna(value):
                return "–"
            if column in layout.exact:
                return f"{value:g}"
            return f"{value:.3f}"
        return str(value)

    columns = {name: head for name, head in layout.columns.items() if name in frame}
    rows = [[text(column, row[column]) for column in columns] for row in frame.to_dict("records")]
    return pages.table(folder, layout, list(columns.values()), rows)
