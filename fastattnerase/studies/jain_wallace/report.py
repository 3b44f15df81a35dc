"""The report of the study: a page, tables as CSV and LaTeX, figures."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.models.storage import read_tensors
from fastattnerase.report import page
from fastattnerase.report.tables import latex
from fastattnerase.studies import pages
from fastattnerase.studies.jain_wallace.cells import ADVERSARIES, RULES, Cells
from fastattnerase.studies.jain_wallace.claims import unskilled
from fastattnerase.studies.jain_wallace.figures import ENCODERS, Review, figures
from fastattnerase.studies.jain_wallace.tables import Table, Tables, collect

with needs("report"):
    import pandas as pd

PAGE = "report.html"
_WORDS = (12, 120)  # of the text of Figure 1, where there is one
_MAIN = ("bilstm-additive", "mlp-additive")  # of the models' own figures, those of the paper


def build(workspace: Cells, folder: Path) -> Path:
    """Write the report on a finished study.

    Args:
        workspace: the study.
        folder: where to: `report.html`, `tables/*.{csv,tex}`, `figures/*.{png,svg,pdf}`.

    Returns:
        The page.
    """
    tables = collect(workspace)
    pages.empty_folders(folder)
    for table in tables.tables:
        table.frame.to_csv(folder / "tables" / f"{table.name}.csv", index=False)
        text = latex(_printed(table, tables.titles), "%.3f")
        (folder / "tables" / f"{table.name}.tex").write_text(text, encoding="utf-8")
    drawn = pages.save_drawn(folder, figures(tables, review(workspace, tables)))
    claims, *rest = tables.tables
    searches = {one.cell: workspace.asked(one.cell, "adversary") for one in tables.found}
    return page.write(
        folder / PAGE,
        "fastattnerase.studies.jain_wallace",
        "jain_wallace.html.j2",
        claims=claims.frame.to_dict("records"),
        tables=[_shown(folder, table, tables.titles) for table in rest],
        figures=[shown for one, shown in drawn if _is_main(one.name)],
        others=[shown for one, shown in drawn if not _is_main(one.name)],
        undefined=_undefined(tables),
        unskilled=[
            f"{tables.titles[row['dataset']]}, {ENCODERS[row['encoder']]}, {row['attention']}"
            for row in unskilled(tables.frame("models")).to_dict("records")
        ],
        models=len(tables.found),
        searches=[
            {"dataset": tables.titles[cell.dataset], "encoder": cell.encoder,
             "attention": cell.attention, "rule": own["rule"], **own["search"]}
            for cell, own in searches.items()
        ],
        options=pages.options(workspace.options),
    )  # fmt: skip


def review(workspace: Cells, tables: Tables) -> Review | None:
    """Choose the text of Figure 1: of the first model, the adversary that is most different.

    Among the texts of 12 to 120 words, where there are some; None where no text has an adversary.
    """
    found = tables.found[0]
    rows = found.adversaries
    fits = rows[rows["words"].between(*_WORDS)]
    rows = fits if len(fits) else rows
    if not len(rows) or not rows["jsd_code"].max() > 0:
        return None
    chosen = rows.iloc[int(rows["jsd_code"].to_numpy().argmax())]
    cell = found.cell
    kept = read_tensors(workspace.folder(f"adversary/{cell.key}") / ADVERSARIES)
    place = kept["rows"].tolist().index(int(chosen["row"]))
    start, end = kept["offsets"][place : place + 2].tolist()
    document = workspace.load_data(cell.dataset)[0].test[int(chosen["row"])]
    return Review(
        tokens=document.tokens,
        weights=kept["own"][start:end].numpy(),
        adversary=kept[RULES[0]][start:end].numpy(),
        probability=float(chosen["probability"]),
        moved=float(chosen["tvd_code"]),
        divergence=float(chosen["jsd_code"]),
        predicted=found.classes[int(chosen["predicted"])],
        title=f"{tables.titles[cell.dataset]}, {cell.encoder}, {cell.attention} attention",
    )


def _is_main(name: str) -> bool:
    """Say whether a figure is among the paper's; others are of further encoders and attentions."""
    return name.removeprefix("figure-")[2:] in ("", "additive", *_MAIN)


def _undefined(tables: Tables) -> list[str]:
    """Say how many taus are undefined, by model and reason."""
    frame = tables.frame("correlations")
    rows = frame[(frame["predicted"] == "all") & (frame["undefined"] != "")]
    found: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        model = f"{tables.titles[row['dataset']]}, {ENCODERS[row['encoder']]}, {row['attention']}"
        pair = _text(row["pair"], "pair", tables.titles)
        parts = (part.partition(": ") for part in str(row["undefined"]).split("; "))
        counts = ", ".join(f"{count} ({why})" if why else count for count, _, why in parts)
        found.setdefault(model, []).append(f"{pair} {counts}")
    return [f"{model}: {', '.join(counts)}" for model, counts in found.items()]


def _text(value: Any, column: str, titles: Mapping[str, str]) -> str:
    """Write a cell of a table."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float | np.floating):
        return f"{value:.1f}" if column == "mean_length" else f"{value:.3f}"
    if column == "dataset":
        return titles.get(str(value), str(value))
    if column in ("train", "dev", "test"):
        return pages.by_class(str(value), "/")
    if column in ("pair", "other"):
        return (
            str(value).replace("_loo", " and leave-one-out").replace("_gradient", " and gradient")
        )
    return str(value)


def _cells(table: Table, titles: Mapping[str, str]) -> list[list[str]]:
    rows: list[dict[Hashable, Any]] = table.frame.to_dict("records")
    return [[_text(row[column], column, titles) for column in table.shown] for row in rows]


def _printed(table: Table, titles: Mapping[str, str]) -> pd.DataFrame:
    """Choose and name the columns of a table in LaTeX."""
    return pd.DataFrame(_cells(table, titles), columns=list(table.shown.values()))


def _shown(folder: Path, table: Table, titles: Mapping[str, str]) -> dict[str, Any]:
    """Write a table for the page."""
    return pages.table(folder, table, list(table.shown.values()), _cells(table, titles))
