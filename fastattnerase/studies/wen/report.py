"""The report on the information studies: a page, figures, tables as CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastattnerase.data.prepared import PreparedData
from fastattnerase.extras import needs
from fastattnerase.report import page
from fastattnerase.report.figures import save as save_figure
from fastattnerase.report.tables import latex
from fastattnerase.runs import rundir
from fastattnerase.studies import pages
from fastattnerase.studies.wen.claims import Claim, claims, exceptions
from fastattnerase.studies.wen.columns import Layout
from fastattnerase.studies.wen.figures import figures
from fastattnerase.studies.wen.layout import LAYOUTS, frames
from fastattnerase.studies.wen.open_points import POINTS
from fastattnerase.studies.wen.rows import CHANCE_RULE, Measured
from fastattnerase.studies.wen.tables import collect
from fastattnerase.studies.wen.units import Wen

with needs("report"):
    import pandas as pd

PAGE = "wen.html"
CHANCE = " *"  # after a tau that is not different from outputs shuffled
_CAPTIONS = {
    "figure-2-weighted": "Figure 2 of the paper: weighted tau of every seed, by attention and "
    "encoder. Hollow: not different from outputs shuffled.",
    "figure-2-plain": "The same with plain tau, which does not depend on how skewed attention is.",
    "figure-2-nulls-weighted": "Learned attention against nulls, a dot a model: weights permuted "
    "within each instance with outputs recomputed, outputs of equal weights, untrained attention. "
    "Above the line the learned order goes beyond what heavy items share with the output anyway.",
    "figure-2-nulls-plain": "The same with plain tau.",
    "tau-and-skew": "Both taus against the skew of attention. Where weights are peaked, weighted "
    "tau asks little more than whether the first rank informs most.",
    "gumbel": "Softmax against Gumbel-softmax. Grey crosses: the noise alone, on equal scores, "
    "with the same sample for ranking and for the output.",
}


def build(workspace: Wen, folder: Path) -> Path:
    """Write the report on a study's finished cells.

    Args:
        workspace: the study.
        folder: where to: `wen.html`, `figures/*.{png,svg,pdf}` and `tables/*.{csv,tex}`.

    Returns:
        The page's path.

    Raises:
        RunError: no cell is finished.

    Example:
        >>> from fastattnerase.studies.wen.report import build
        >>> build(workspace, Path("runs/wen/report"))  # doctest: +SKIP
    """
    results = workspace.results()
    if not results:
        raise rundir.RunError(f"{workspace.out} has no finished cell to report on")
    data = workspace.data()
    tables = collect(results, workspace.options, workspace.out, data)
    found = claims(tables)
    titles = {name: about.title for name, about in data.items()}
    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    written = frames(tables, found)
    _write_tables(written, titles, folder / "tables")
    drawn = []
    for name, figure in figures(tables, titles):
        save_figure(figure, folder / "figures" / name)
        drawn.append((name, _CAPTIONS.get(name, f"Information by attention rank, {name}.")))
    return page.write(
        folder / PAGE,
        "fastattnerase.studies.wen",
        "wen.html.j2",
        claims=[_claim(claim) for claim in found],
        chance=CHANCE_RULE,
        exceptions=exceptions(),
        nulls=[row.sentence for row in tables.nulls],
        tables=[
            _shown(folder, layout, frame, titles)
            for layout, frame in written if layout.shown
        ],
        figures=[
            pages.picture(folder, *item) for item in drawn if not item[0].startswith("curves-")
        ],
        curves=[pages.picture(folder, name, f"Information by rank: {titles[name[7:]]}, first seed.")
                for name, _ in drawn if name.startswith("curves-")],
        data=list(map(_data, data.values())),
        points=POINTS,
        reasons=[(_name(row), row.reason) for row in tables.measurements if row.reason],
        gumbel=bool(tables.gumbel),
        cells=len(results),
        wanted=len(workspace.cells()),
        files={layout.name for layout, _ in written},
        options=pages.options(workspace.options, _width(workspace)),
    )  # fmt: skip


def _write_tables(
    written: list[tuple[Layout[Any], pd.DataFrame]], titles: dict[str, str], folder: Path
) -> None:
    """Write each table as CSV and, where a page can hold it, in LaTeX."""
    for layout in LAYOUTS:
        for kind in ("csv", "tex"):  # of an earlier report on more studies
            (folder / f"{layout.name}.{kind}").unlink(missing_ok=True)
    for layout, frame in written:
        frame.to_csv(folder / f"{layout.name}.csv", index=False)
        if layout.printed:
            printed = _printed(frame, layout.printed, titles)
            (folder / f"{layout.name}.tex").write_text(latex(printed, "%.3f"), encoding="utf-8")


def _data(about: PreparedData) -> dict[str, Any]:
    """Describe a prepared data set for the page."""
    return {
        "title": about.title,
        "note": about.note,
        "words": about.words,
        "mean_length": about.mean_length,
        "documents": {split: about.counts(split) for split in about.documents},
        "left_out": about.left_out,
    }


def _width(workspace: Wen) -> str:
    """Say how wide the word vectors are that the first model had."""
    models = (
        workspace.folder(cell.key) / "model" / "model.json"
        for cell in workspace.results()
        if workspace.options.vectors_on(cell.dataset) is not None
    )
    width = next(
        (rundir.read_json(path)["model"]["embedding_size"] for path in models if path.exists()),
        "that",
    )
    return f"{width}, of the word vectors"


def _claim(claim: Claim) -> dict[str, str]:
    """Write a statement and its verdict for the page."""
    verdict = {"yes": "agrees", "partly": "partly", "no": "disagrees", "": "no verdict"}
    cases = f"{claim.held} of {claim.cases}" if claim.cases else ""
    return {
        **{name: getattr(claim, name) for name in ("text", "rule", "paper", "here")},
        "verdicts": f" ({claim.verdicts})" if claim.verdicts else "",
        "verdict": verdict[claim.agrees],
        "cases": cases,
    }


def _shown(
    folder: Path, layout: Layout[Any], frame: pd.DataFrame, titles: dict[str, str]
) -> dict[str, Any]:
    """Write a table's cells for the page; taus that are chance are marked."""

    def text(column: str, row: Mapping[Hashable, Any]) -> str:
        value = row[column]
        if isinstance(value, float):
            if np.isnan(value):
                return "–"
            mark = CHANCE if row.get(f"{column}_chance") is True else ""
            return (f"{value:.2e}" if column == "strength" else f"{value:.3f}") + mark
        if column == "dataset":
            return titles.get(str(value), str(value))
        return str(value).replace("_", " ")

    rows = [[text(column, row) for column in layout.shown] for row in frame.to_dict("records")]
    return pages.table(folder, layout, list(layout.shown.values()), rows)


def _printed(
    table: pd.DataFrame, columns: Mapping[str, str], titles: dict[str, str]
) -> pd.DataFrame:
    """Choose and name the columns of a table in LaTeX, in words that can be read."""

    def text(value: Any) -> Any:
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if isinstance(value, str):
            return titles.get(value, value.replace("_", " "))
        return value

    chosen = table[list(columns)].rename(columns=columns).astype(object)
    return chosen.map(text)


def _name(row: Measured) -> str:
    """Name a measurement: its cell's parts and its own name."""
    cell = row.cell
    parts = (cell.dataset, cell.encoder, cell.attention, cell.mechanism, cell.variant)
    return " ".join((*parts, str(cell.seed), row.name))
