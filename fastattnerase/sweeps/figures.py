"""Figures of a large sweep: curves from the histograms of all instances, points from a sample."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.report.figures import PANEL, STYLE, add_legend
from fastattnerase.studies.serrano_smith.config import LEAST_DIFFERENCE
from fastattnerase.studies.serrano_smith.looks import COLOURS, looks
from fastattnerase.studies.serrano_smith.result import Result

with needs("report"):
    import matplotlib as mpl
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NEGATIVE = "#c43c00"


def figures(result: Result) -> Iterator[tuple[str, str, Figure]]:
    """Draw a large sweep, from its folder's `histograms.csv` and `sample.parquet` alone.

    Args:
        result: of `aggregate.load_aggregate`, of kind `LARGE`.

    Yields:
        Name, caption and figure: decisions changed against the fraction erased, items erased over
        the smallest set, ΔJS against Δα.
    """
    table = pd.read_csv(result.folder / "histograms.csv")
    with mpl.rc_context(STYLE):
        figure, axes = _panel()
        _fractions(axes, result, table[table["quantity"] == "fraction"])
        add_legend(figure, 2)
        caption = (
            "Decisions changed by the fraction of items erased, all instances and random orders. "
            "What a ranking never changes counts, so curves end below 1."
        )
        yield "fractions", caption, figure
        if result.counts.smallest_set.some:
            figure, axes = _panel()
            _gaps(axes, result, table[table["quantity"] == "gap"])
            add_legend(figure, 2)
            caption = (
                "Items erased at the first change over those of the smallest set, all of the "
                f"{result.counts.smallest_set.some:,} instances that a part of their items changes."
            )
            yield "gaps", caption, figure
        sample = pd.read_parquet(result.folder / "sample.parquet")
        figure, axes = _panel()
        _divergences(axes, sample)
        caption = (
            f"ΔJS against Δα of {len(sample):,} of the {result.counts.analysed:,} analysed "
            f"instances, drawn with seed {result.run.config.seed}: the item with most attention "
            "against a random one."
        )
        yield "divergences", caption, figure


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=PANEL, layout="constrained")
    return figure, figure.subplots()


def _shares(table: pd.DataFrame, ranking: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the upper ends of a ranking's bins, and the share of all counts up to each."""
    own = table[table["ranking"] == ranking].sort_values("low")
    total = own["count"].sum()
    finite = own[np.isfinite(own["high"])]
    return finite["high"].to_numpy(np.float64), (finite["count"].cumsum() / total).to_numpy(
        np.float64
    )


def _curves(axes: Axes, result: Result, table: pd.DataFrame, start: float) -> float:
    """Draw a cumulative distribution for each ranking; give where the last one ends."""
    furthest = start
    for ranking, look in looks(result).items():
        ends, shares = _shares(table, ranking)
        if not len(ends):
            continue
        furthest = max(furthest, float(ends[-1]))
        axes.step(
            np.concatenate([[start], ends]),
            np.concatenate([[0.0], shares]),
            where="post",
            color=look.colour,
            linestyle=look.style,
            linewidth=1.9,
            label=look.name,
        )
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("Share of instances")
    return furthest


def _fractions(axes: Axes, result: Result, table: pd.DataFrame) -> None:
    _curves(axes, result, table, 0.0)
    axes.set_xlim(0, 1)
    axes.set_xlabel("Fraction erased")


def _gaps(axes: Axes, result: Result, table: pd.DataFrame) -> None:
    furthest = _curves(axes, result, table[table["ranking"] != "minimal"], 1.0)
    axes.set_xscale("log")
    axes.set_xlim(0.96, max(furthest, 2.0) * 1.1)
    ticks = [tick for tick in (1, 3, 10, 30, 100, 1000, 10_000) if tick <= max(furthest, 2.0) * 1.1]
    axes.set_xticks(ticks, [f"{tick:,}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("Items erased over smallest set")


def _divergences(axes: Axes, sample: pd.DataFrame) -> None:
    negative = (sample["delta_js"] < -LEAST_DIFFERENCE).to_numpy()
    axes.axhline(0, color="#4a5058", linewidth=1)
    for mask, colour, marker in (
        (~negative, COLOURS["attention"], "o"),
        (negative, _NEGATIVE, "v"),
    ):
        axes.plot(
            sample["delta_alpha"].to_numpy()[mask],
            sample["delta_js"].to_numpy()[mask],
            linestyle="none",
            marker=marker,
            markersize=2.6,
            markeredgecolor="none",
            color=colour,
            alpha=0.25,
            rasterized=True,
        )
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("Δα, attention of top − of random item")
    axes.set_ylabel("ΔJS")
