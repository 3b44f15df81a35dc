"""Figures of the erasure experiments, drawn from saved results alone.

Each function draws onto axes of one model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.report.figures import PANEL, STYLE, add_legend, fitted, letters
from fastattnerase.studies.serrano_smith.config import LEAST_DIFFERENCE
from fastattnerase.studies.serrano_smith.counted import choosable
from fastattnerase.studies.serrano_smith.grid import Grid, without_run
from fastattnerase.studies.serrano_smith.looks import COLOURS, NAMES, looks
from fastattnerase.studies.serrano_smith.result import Result

with needs("report"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.cbook import boxplot_stats
    from matplotlib.figure import Figure

_SLANTED = 22  # letters of a slanted label
NEVER = 1.12  # the height of what never flips, beyond every fraction
_DIGIT = 0.026  # a digit of a tick's label, as a share of a panel's axis
_MANY = 3000  # more marks than this are drawn as pixels, also in vector formats
# In a place of a corpus on which a model was not erased.
NO_RUN: dict[str, Any] = {
    "s": "no such run", "ha": "center", "va": "center", "color": "#57606a", "fontsize": 8,
}  # fmt: skip

Draw = Callable[[Axes, Result], None]


def draw_fractions(axes: Axes, result: Result) -> None:
    """Draw the fractions of items removed before the first flip as box plots.

    A box per ranking: quartiles, whiskers to the last point within 1.5 interquartile ranges,
    points beyond. Instances that never flip are in every box, on a level of their own beyond 1;
    above each box stands which share they are.

    Args:
        axes: where to draw.
        result: a finished run.

    Source:
        Serrano and Smith 2019, figure 5, which leaves them out; the smallest set is ours.
    """
    table = result.table("multi", ["ranking", "first_flip", "fraction"])
    rankings = {r: look for r, look in looks(result).items() if (table["ranking"] == r).any()}
    many = len(rankings) > len(NAMES)  # side by side labels would run into one another
    labels = []
    for place, (ranking, look) in enumerate(rankings.items()):
        of_ranking = table[table["ranking"] == ranking]
        flips = (of_ranking["first_flip"] > 0).to_numpy()
        colour = look.colour
        if len(flips):
            [box] = boxplot_stats(np.where(flips, of_ranking["fraction"], NEVER))
            for quartile in ("q1", "med", "q3"):  # between a fraction and never is never
                box[quartile] = NEVER if box[quartile] > 1 else box[quartile]
            parts = axes.bxp(
                [box],
                positions=[place],
                widths=0.62,
                patch_artist=True,
                boxprops={"facecolor": colour + "40", "edgecolor": colour, "linewidth": 1.3},
                medianprops={"color": "#1b1f24", "linewidth": 2.0},
                whiskerprops={"color": colour, "linewidth": 1.2},
                capprops={"color": colour, "linewidth": 1.2},
                flierprops={
                    "marker": "o",
                    "markersize": 2.6,
                    "markerfacecolor": colour,
                    "markeredgecolor": "none",
                    "alpha": 0.45,
                },
            )
            for marks in parts["fliers"]:
                marks.set_rasterized(len(flips) > _MANY)
        never = _never(flips)
        if many:
            labels.append(f"{fitted(look.name, _SLANTED, 1)}, {never}")
        else:  # the last space becomes a line break
            labels.append("\n".join(look.name.rsplit(" ", 1)))
            axes.text(place, 1.19, never, ha="center", fontsize=7.6, color="#565e68")
    places = range(len(rankings))
    if many:
        axes.set_xticks(places, labels, fontsize=8, rotation=35, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(places, labels, fontsize=8.6)
    axes.set_xlim(-0.6, len(rankings) - 0.4)
    axes.set_ylim(-0.02, 1.27)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axes.set_yticks([*ticks, NEVER], [*(f"{tick:.2f}" for tick in ticks), "never"])
    axes.set_ylabel("Fraction erased at first flip")
    axes.grid(False, axis="x")


def _never(flips: NDArray[np.bool_]) -> str:
    """Write the share that never flips, all or none only where it is; empty without instances."""
    if not len(flips):
        return ""
    share = 100 * float(1 - flips.mean())
    return f"{share if share in (0, 100) else min(max(share, 1), 99):.0f} %"


def draw_divergences(axes: Axes, result: Result) -> None:
    """Draw ΔJS against Δα for the top-attention item and the drawn random one, all instances.

    Args:
        axes: where to draw.
        result: a finished run.

    Source:
        Serrano and Smith 2019, equation 1 and figure 3 (which shows a subsample).
    """
    table = result.table("single", ["ranking", "delta_alpha", "delta_js"])
    table = table[table["ranking"] == "attention"]
    axes.axhline(0, color="#4a5058", linewidth=1)
    negative = (table["delta_js"] < -LEAST_DIFFERENCE).to_numpy()
    for mask, colour, marker, label in (
        (~negative, COLOURS["attention"], "o", "top item matters at least as much"),
        (negative, "#c43c00", "v", "random item matters more"),
    ):
        axes.plot(
            table["delta_alpha"].to_numpy()[mask],
            table["delta_js"].to_numpy()[mask],
            linestyle="none",
            marker=marker,
            markersize=3.4,
            markeredgecolor="none",
            color=colour,
            alpha=float(np.clip(120 / max(len(table), 1), 0.12, 0.55)),
            rasterized=len(table) > _MANY,
            label=f"{label} ({mask.sum():,})",
        )
    legend = axes.legend(loc="upper left", handletextpad=0.1, borderaxespad=0.1)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    axes.set_xlim(-0.02, 1.02)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.18 * (high - low))  # room for the legend
    axes.set_xlabel("Δα, attention of top − of random item")
    axes.set_ylabel("ΔJS")


def draw_gaps(axes: Axes, result: Result) -> None:
    """Draw the optimality gap of each ranking as a cumulative distribution.

    The gap is the first flip over the size of the smallest flipping set, in the instances where
    that set exists and is not everything. Those that never flip under the ranking count as an
    infinite gap: the curve ends below 1.

    Args:
        axes: where to draw.
        result: a finished run.
    """
    table = result.table("multi", ["row", "ranking", "first_flip", "fraction", "gap"])
    minimal = table[(table["ranking"] == "minimal") & (table["first_flip"] > 0)]
    table = table[table["row"].isin(minimal.loc[choosable(minimal["fraction"]), "row"])]
    furthest = 2.0
    for ranking, look in looks(result).items():
        if ranking == "minimal":
            continue
        gaps = table.loc[table["ranking"] == ranking, "gap"]
        if gaps.empty:
            continue
        finite = np.sort(np.maximum(gaps.dropna().to_numpy(), 1.0))
        share = np.arange(1, len(finite) + 1) / len(gaps)
        if len(finite):
            furthest = max(furthest, float(finite[-1]))
        axes.step(
            np.concatenate([[1.0], finite]),
            np.concatenate([[0.0], share]),
            where="post",
            color=look.colour,
            linestyle=look.style,
            linewidth=1.9,
            label=look.name,
        )
    axes.set_xscale("log")
    axes.set_xlim(0.96, furthest * 1.1)
    ticks = _log_ticks(0.96, furthest * 1.1)
    axes.set_xticks(ticks, [f"{tick}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_xlabel("Items erased over smallest set")
    axes.set_ylabel("Share of instances")
    if not axes.lines:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)


def _log_ticks(low: float, high: float) -> list[int]:
    """Choose round numbers so far apart on a logarithmic axis that their labels do not touch."""
    for steps, powers in (((1, 2, 3, 5), 1), ((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2)):
        numbers = (step * 10**power for power in range(0, 19, powers) for step in steps)
        ticks = [number for number in numbers if low <= number <= high]
        # As shares of the axis: what lies between two ticks, and half of both labels.
        gaps = np.diff(np.log(ticks)) / np.log(high / low)
        needed = [(len(f"{a}{b}") / 2 + 2) * _DIGIT for a, b in itertools.pairwise(ticks)]
        if (gaps >= needed).all():
            break
    return ticks


FIGURES: dict[str, Draw] = {
    "fractions": draw_fractions,
    "divergences": draw_divergences,
    "gaps": draw_gaps,
}


def fill(axes: Axes, draw: Draw, result: Result) -> None:
    """Draw a model's panel; "no data" where nothing of the model could be analysed."""
    if result.counts.analysed:
        draw(axes, result)
        return
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)


def say_without_run(
    axes: NDArray[np.object_], grid: Grid, models: Sequence[str], inches: float, size: float
) -> None:
    """Say in the places of a figure, [rows, columns], that stay empty why they do.

    Args:
        axes: the panels, switched off.
        grid: the runs.
        models: of the figure.
        inches: width of a title.
        size: of its letters, in points.
    """
    for place, cell in without_run(grid, models).items():
        axes[place].set_title(fitted(grid.title(*cell), letters(inches, size)), fontsize=size)
        axes[place].text(0.5, 0.5, **NO_RUN, transform=axes[place].transAxes)


def panel(draw: Draw, result: Result) -> Figure:
    """Draw one model's panel, untitled, for a page that has its own headings."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=PANEL, layout="constrained")
        fill(figure.subplots(), draw, result)
        add_legend(figure, 2)
    return figure


def side_by_side(draw: Draw, results: Sequence[Result]) -> Figure:
    """Draw all models in one row of at most four panels, titled, as papers print them."""
    columns = min(4, len(results))
    rows = -(-len(results) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, result in zip(grid, results, strict=False):
            fill(axes, draw, result)
            axes.set_title(fitted(result.run.name, letters(PANEL[0] - 0.9, 10.5)))
        for axes in grid[len(results) :]:
            axes.set_axis_off()
        add_legend(figure, 2 if columns == 1 else 4)
    return figure
