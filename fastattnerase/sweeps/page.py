"""The page of a sweep that is too large for that of `erase`: its tables, and figures of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.plurals import are, plural
from fastattnerase.report import page
from fastattnerase.report.figures import inline
from fastattnerase.report.figures import save as save_figure
from fastattnerase.report.tables import save as save_table
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.statistics.shares import disagrees, hardly_better
from fastattnerase.studies.serrano_smith.config import CELLS, EXCLUSIONS
from fastattnerase.studies.serrano_smith.dumped import of_dump
from fastattnerase.studies.serrano_smith.looks import looks
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.sentences import number, percent, skew, times
from fastattnerase.sweeps.figures import figures

with needs("report"):
    import pandas as pd
    from markupsafe import Markup

PAGE = "report.html"
_KINDS = ("png", "svg")


def build(result: Result, folder: Path, *, files: bool = False, pdf: bool = False) -> Path:
    """Write the report on a large sweep.

    Args:
        result: of `aggregate.load_aggregate`, of kind `LARGE`.
        folder: where to: `report.html`, `tables/*.{csv,tex}`.
        files: whether figures are written as files too, `figures/*.{png,svg}`.
        pdf: whether as PDF, too.

    Returns:
        The page's path.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.sweeps.aggregate import load_aggregate
        >>> from fastattnerase.sweeps.page import build
        >>> build(load_aggregate(Path("out/aggregate")), Path("report"))  # doctest: +SKIP
    """
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    tables = {path.stem: path for path in sorted((result.folder / "tables").glob("*.csv"))}
    for name, path in tables.items():
        save_table(pd.read_csv(path), folder / "tables" / name)
    drawn = []
    for name, caption, figure in figures(result):
        if files or pdf:
            (folder / "figures").mkdir(exist_ok=True)
            save_figure(figure, folder / "figures" / name, (*_KINDS, *(("pdf",) if pdf else ())))
        # Captions come from our own module and names in figures are escaped: the markup is ours.
        drawn.append({"name": name, "caption": caption, "picture": Markup(inline(figure, caption))})
    counts = result.counts
    exclusions = pd.read_csv(tables["exclusions"])[["what", "convention", "instances"]]
    return page.write(
        folder / PAGE,
        "fastattnerase.sweeps",
        "sweep.html.j2",
        name=result.run.name,
        counts=counts,
        left_out=[
            f"{count:,} {EXCLUSIONS[reason]} left out"
            for reason, count in counts.excluded.items()
            if count
        ],
        notices=notices(result),
        skew=f"Attention’s divergence from uniform: {skew(result)}.",
        confidence=percent(result.run.config.confidence),
        multi=_multi(result),
        single=_single(result),
        pairs=_pairs(result),
        exclusions=exclusions.to_dict("records"),
        figures=drawn,
        downloads=[(name, page.embedded(path)) for name, path in tables.items()],
        settings=[
            *result.run.config.to_dict().items(),
            *result.run.source.items(),
            *result.run.versions.items(),
            *result.run.machine.items(),
        ],
    )


def notices(result: Result) -> list[str]:
    """Say what a reader of the numbers must know before reading any: one sentence each."""
    counts = result.counts
    texts = []
    if disagrees(counts.label_differs_from_model, counts.compared_with_model):
        texts.append(
            f"{counts.label_differs_from_model:,} of {counts.compared_with_model:,} "
            f"{plural(counts.compared_with_model, 'decision')} computed from the dump "
            f"{are(counts.label_differs_from_model)} not the model’s own, so its tensors are not "
            "what the model decided by."
        )
    if hardly_better(counts.accuracy, counts.majority):
        texts.append(
            f"The model is right in {percent(counts.accuracy, 1)}; always deciding the most "
            f"frequent class is in {percent(counts.majority, 1)}."
        )
    texts += of_dump(result.run.source)
    if not counts.smallest_set.known and counts.analysed:
        texts.append("Smallest sets are not known: the search is for one attention head.")
    return texts


def _cell(estimate: Estimate, written: Callable[[float | None], str]) -> tuple[str, str]:
    """Write a number and its interval."""
    if estimate.value is None:
        return written(None), ""
    return written(estimate.value), f"{written(estimate.low)} to {written(estimate.high)}"


def _share(value: float | None) -> str:
    return percent(value, 1)


def _multi(result: Result) -> list[dict[str, Any]]:
    return [
        {
            "name": looks(result)[ranking].name,
            "cells": [
                _cell(record.share_flipped, _share),
                _cell(record.counted.fraction.median, _share),
                _cell(record.fraction.median, _share),
                _cell(record.counted.gap.median, times),
                _cell(record.share_optimal, _share),
                _cell(record.counted.skill.overall, number),
            ],
        }
        for ranking, record in result.multi.items()
    ]


def _single(result: Result) -> list[dict[str, Any]]:
    return [
        {
            "name": looks(result)[ranking].name,
            "cells": [
                *(_cell(record.contingency[cell].estimate, _share) for cell in CELLS),
                _cell(record.share_any_item_flips, _share),
                _cell(record.negative_delta_js, _share),
            ],
        }
        for ranking, record in result.single.items()
    ]


def _pairs(result: Result) -> list[dict[str, Any]]:
    named = looks(result)
    return [
        {
            "name": f"{named[record.first].name}, {named[record.second].name}",
            "cells": [
                (f"{record.judged:,}", ""),
                (f"{record.first_smaller:,}", ""),
                (f"{record.second_smaller:,}", ""),
                (f"{record.ties:,}", ""),
                _cell(record.share_first_smaller, _share),
            ],
        }
        for record in result.pairs.values()
    ]
