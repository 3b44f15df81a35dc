"""The page of a run over slides: what it found, curves, heat maps, tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.mil.flipping import SCORES
from fastattnerase.mil.heatmap import HeatMap
from fastattnerase.mil.options import RANDOM, SHOWN
from fastattnerase.mil.run import MilResult
from fastattnerase.mil.slides import BOUNDS, MEASURES
from fastattnerase.mil.words import RULE, findings, percent
from fastattnerase.report import page
from fastattnerase.report.figures import STYLE, add_legend
from fastattnerase.report.figures import save as save_figure
from fastattnerase.report.tables import save as save_table
from fastattnerase.runs.rundir import RunError

with needs("report"):
    import matplotlib as mpl
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
    from matplotlib.figure import Figure

PAGE = "slides.html"
_LISTED = 200  # slides in the page's table; the CSV has all
_DASHES = ("-", "--", "-.", ":")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_PANELS = {
    "most_first": "The most important patches first",
    "least_first": "The least important patches first",
}
_HEADS = {
    "aopc": ("AOPC", "every prefix", "higher"),
    "aopc_percent": ("AOPC", "1 % steps", "higher"),
    "aopc_over_random": ("AOPC-R", "above random orders", "higher"),
    "symmetric_relevance_gain": ("Symmetric relevance gain", "", "higher"),
    "normalized_area": ("Normalised area", "1 is the best possible", "higher"),
}


def build(result: MilResult, folder: Path) -> Path:
    """Write the page, with tables, the figure and heat maps as files beside it.

    Args:
        result: a finished run.
        folder: where to: `slides.html`, `figures/*.{png,svg,pdf}`, `tables/*.csv` and, for each
            slide on the page, `slides/ID.csv`, `ID.geojson` and a PNG a score.

    Returns:
        The page's path.

    Raises:
        RunError: a table that is missing or damaged.
    """
    for part in ("figures", "tables", "slides"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for path in (folder / part).iterdir():  # of an earlier report
            path.unlink()
    slides, rankings = result.table("slides"), result.table("rankings")
    curves = mean_curves(result)
    frames = {"slides": _named(slides, result.classes), "rankings": rankings, "curves": curves}
    for name, frame in frames.items():
        save_table(frame, folder / "tables" / name)
    drawn = []
    for column, caption in _PANELS.items() if len(curves) else ():
        save_figure(figure(curves, column), folder / "figures" / column)
        drawn.append((caption, page.embedded(folder / "figures" / f"{column}.png")))
    good = slides[slides["damaged"].isna()]
    return page.write(
        folder / PAGE,
        "fastattnerase.mil",
        "slides.html.j2",
        title=result.name,
        about=result.about,
        summary=result.summary,
        findings=findings(result),
        rule=RULE,
        heads=[_HEADS[name] for name in _measures(result)],
        lines=_lines(result),
        curves=drawn,
        bounds=bool((curves["ranking"] == BOUNDS).any()) if len(curves) else False,
        maps=list(_maps(result, good, folder / "slides")),
        without_coordinates=int((~good["has_coordinates"].astype(bool)).sum()),
        shown=SHOWN,
        slides=_rows(good, rankings, result.classes),
        listed=_LISTED,
        read=len(good),
        damaged=[
            (row["slide_id"], row["damaged"])
            for row in _records(slides[slides["damaged"].notna()])
        ],
        downloads=[(name, page.embedded(folder / "tables" / f"{name}.csv"))
                   for name in ("rankings", "curves", "slides")],
        options=[(name.replace("_", " "), ", ".join(map(str, v)) if isinstance(v, list) else str(v))
                 for name, v in result.about["config"].items()],
    )  # fmt: skip


def mean_curves(result: MilResult) -> pd.DataFrame:
    """Average curves over slides: ranking, percent, most_first, least_first, slides."""
    curves = result.table("curves")
    grouped = curves.groupby(["ranking", "percent"], sort=False)
    found = grouped[["most_first", "least_first"]].mean()
    return found.assign(slides=grouped.size()).reset_index()


def figure(curves: pd.DataFrame, column: str) -> Figure:
    """Draw mean curves, `most_first` or `least_first`, within what any order can reach."""
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(5.2, 4.3), layout="constrained")
        axes = drawn.add_subplot()
        bounds = curves[curves["ranking"] == BOUNDS]
        if len(bounds):
            axes.fill_between(
                bounds["percent"], bounds["most_first"], bounds["least_first"],
                color="#e4e7eb", linewidth=0, label="what any order can reach",
            )  # fmt: skip
        names = [name for name in curves["ranking"].unique() if name != BOUNDS]
        for place, name in enumerate(names):
            own = curves[curves["ranking"] == name]
            axes.plot(
                own["percent"], own[column], label=name.replace("_", " "),
                color="#7a828c" if name == RANDOM else _COLOURS[place % len(_COLOURS)],
                linestyle="--" if name == RANDOM else _DASHES[place % len(_DASHES)], linewidth=1.7,
            )  # fmt: skip
        axes.set(xlabel="patches erased, %", xlim=(0, 100), ylim=(0, 1.02))
        axes.set_ylabel("probability of the original decision")
        add_legend(drawn, 3)
    return drawn


def _measures(result: MilResult) -> list[str]:
    """List the measures that some ranking has."""
    rows = result.summary["rankings"].values()
    return [name for name in MEASURES if any(row[name]["value"] is not None for row in rows)]


def _lines(result: MilResult) -> list[dict[str, Any]]:
    """Write the rows of the table of rankings."""
    lines = []
    for name, row in result.summary["rankings"].items():
        cells = []
        for measure in _measures(result):
            of = row[measure]
            known = of["value"] is not None
            cells.append(
                (_number(of["value"]), f"{_number(of['low'])} to {_number(of['high'])}")
                if known
                else ("–", "")
            )
        over = row["over_set"]
        lines.append(
            {
                "name": name.replace("_", " "),
                "control": name == RANDOM,
                "flipped": percent(row["flipped"]),
                "fraction": percent(row["fraction"]),
                "over_set": "–" if over is None else f"{over:,.1f}",
                "cells": cells,
            }
        )
    return lines


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Give the rows of a table as dictionaries."""
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _maps(result: MilResult, good: pd.DataFrame, folder: Path) -> Iterable[dict[str, Any]]:
    """Draw the heat maps of some slides, evenly spaced, and write their files."""
    placed = _records(good[good["has_coordinates"].astype(bool)])
    if not placed:
        return
    chosen = np.unique(np.linspace(0, len(placed) - 1, SHOWN).round().astype(int))
    rankings = result.table("rankings")
    names = [name for name in result.summary["rankings"] if name in SCORES]
    for row in (placed[i] for i in chosen):
        slide = str(row["slide_id"])
        patches = _patches(result, slide)
        drawn = HeatMap(
            slide,
            patches[["x", "y"]].to_numpy(),
            {name: patches[name].to_numpy() for name in names},
            patches["in_smallest_set"].to_numpy(),
            0 if pd.isna(row["patch_size"]) else float(row["patch_size"]),
        )
        drawn.write_csv(folder / f"{slide}.csv")
        drawn.write_geojson(folder / f"{slide}.geojson")
        pictures = []
        for name in names[:2]:
            path = folder / f"{slide}-{name}.png"
            save_figure(drawn.figure(name, name.replace("_", " ")), path.with_suffix(""), ("png",))
            pictures.append((name.replace("_", " "), page.embedded(path)))
        own = rankings[rankings["slide_id"] == slide].set_index("ranking")
        yield {
            "name": slide,
            "pictures": pictures,
            "n": int(row["n"]),
            "decision": result.classes[int(row["decision"])],
            "label": result.classes[int(row["label"])],
            "right": row["decision"] == row["label"],
            "probability": f"{row['probability']:.3f}",
            "smallest": _size(row["minimal_size"]),
            "sufficient": _size(row["sufficient_size"]),
            "attention": _flip(float(own["first_flip"]["attention"])),
        }


def _patches(result: MilResult, slide: str) -> pd.DataFrame:
    """Read the patches of one slide, not those of all."""
    path = result.folder / "patches.parquet"
    try:
        found: pd.DataFrame = pq.read_table(path, filters=[("slide_id", "=", slide)]).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path} is missing or damaged: {error}; run erase again") from error
    return found


def _named(slides: pd.DataFrame, classes: list[str]) -> pd.DataFrame:
    """Give the table of slides with the names of classes."""
    named = slides.copy()
    for column in ("label", "decision"):
        named[f"{column}_name"] = [
            "" if pd.isna(c) or c < 0 else classes[int(c)] for c in slides[column]
        ]
    return named


def _rows(good: pd.DataFrame, rankings: pd.DataFrame, classes: list[str]) -> list[dict[str, Any]]:
    """Write the rows of the table of slides."""
    flips = rankings[rankings["ranking"] == "attention"].set_index("slide_id")["first_flip"]
    return [
        {
            "name": row["slide_id"],
            "n": int(row["n"]),
            "label": classes[int(row["label"])],
            "decision": classes[int(row["decision"])],
            "probability": f"{row['probability']:.3f}",
            "smallest": _size(row["minimal_size"]),
            "attention": _flip(float(flips[row["slide_id"]])),
            "notes": str(row["status"]).replace("|", ", ").replace("_", " ").lower(),
        }
        for row in _records(good.head(_LISTED))
    ]


def _size(value: float) -> str:
    """Write the size of a set of patches; –: not known."""
    if pd.isna(value):
        return "–"
    return "none" if value < 0 else f"{value:,.0f}"


def _flip(value: float) -> str:
    """Write a first flip, NaN for never."""
    return "never" if pd.isna(value) else f"{value:,.0f}"


def _number(value: float) -> str:
    """Write a number with three digits, and 0 without a sign."""
    return f"{round(value, 3) + 0.0:.3f}"
