"""The paper's figures 3 to 13, in its own form, from whatever models there are.

Source of all: Serrano and Smith 2019; what its text leaves open, as its published code drew it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.report.figures import STYLE, fitted, letters, place_legend
from fastattnerase.studies.serrano_smith.config import RANKINGS, SINGLE_RANKINGS
from fastattnerase.studies.serrano_smith.figures import NO_RUN, fill, say_without_run
from fastattnerase.studies.serrano_smith.grid import Grid, places
from fastattnerase.studies.serrano_smith.looks import COLOURS, NAMES
from fastattnerase.studies.serrano_smith.records import Architecture
from fastattnerase.studies.serrano_smith.result import Result

with needs("report"):
    import matplotlib as mpl
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

Floats = NDArray[np.float64]
Panel = Callable[[Axes, Result], None]

# The models of a figure, by their parts; the others show all. Those that the paper did not have
# stand beside the like of them.
_NO_FIGURE_5 = Architecture("han", "conv")
_MODELS: dict[str, Callable[[Architecture], bool]] = {
    "figure-03": Architecture("han", "rnn").__eq__,
    "figure-04": Architecture("han", "rnn").__eq__,
    "figure-05": lambda parts: parts.encodes and parts != _NO_FIGURE_5,
    "figure-06": lambda parts: not parts.encodes,
}
# What the figures draw.
_DRAWN = {
    "figure-03": "sample",
    "figure-04": "negatives",
    "figure-05": "fraction",
    "figure-06": "fraction",
    "figure-07": "sample",
    "figure-08": "negatives",
    "figure-09": "attention",
    "figure-10": "fraction",
    "figure-11": "mass",
    "figure-12": "gradient",
    "figure-13": "product",
}
_BINS, _OF_BIN = 200, 10
_MOST_BINS = 50


def figures(grid: Grid) -> Iterator[tuple[str, Figure]]:
    """Draw every figure of the paper that the runs allow.

    Args:
        grid: the runs.

    Yields:
        `figure-03` … `figure-13` with their figures, one for all that show the same. Figures 3 and
        4 show the HANrnn, 5 the models with an encoder but the HANconv, 6 those without encoder,
        the others all; where none of the wanted models is there, all are shown.
    """
    draw: dict[str, Callable[[tuple[str, ...]], Figure]] = {
        "sample": partial(panels, grid, draw=draw_sample),
        "negatives": partial(panels, grid, draw=draw_negatives),
        "fraction": partial(boxes, grid, column="fraction"),
        "mass": partial(boxes, grid, column="mass"),
        **{name: partial(contingencies, grid, ranking=name) for name in SINGLE_RANKINGS},
    }
    drawn: dict[tuple[str, tuple[str, ...]], Figure] = {}
    for name, what in _DRAWN.items():
        key = what, models_of(name, grid)
        if key not in drawn:
            drawn[key] = draw[what](key[1])
        yield name, drawn[key]


def models_of(figure: str, grid: Grid) -> tuple[str, ...]:
    """Give the models that a figure shows: the paper's by their parts, or all without any."""
    return grid.some(_MODELS[figure]) if figure in _MODELS else grid.models


def panels(grid: Grid, models: Sequence[str], draw: Panel) -> Figure:
    """Draw a panel for each corpus and model."""
    (rows, columns), cells = places(grid, models, 2)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.2 * columns, 2.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for place, (corpus, model) in cells.items():
            axis = axes[place]
            axis.set_axis_on()
            fill(axis, draw, grid.cells[corpus, model])
            axis.set_title(fitted(grid.title(corpus, model), letters(2.3, 8.5)), fontsize=8.5)
        say_without_run(axes, grid, models, 2.3, 8.5)
    return figure


def draw_sample(axes: Axes, result: Result) -> None:
    """Draw ΔJS against Δα, thinned as in figures 3 and 7."""
    x, y = _differences(result)
    # Of what was erased, not of what it is called.
    seed = zlib.crc32(json.dumps(result.run.source, sort_keys=True).encode())
    shown = thin(x, y, seed)
    axes.plot(
        x[shown],
        np.clip(y[shown], None, 0.45),
        linestyle="none",
        marker="o",
        markersize=2,
        alpha=0.15,
        color=COLOURS["attention"],
        rasterized=True,
    )
    if not len(shown):
        axes.text(0.5, 0.2, "no data", ha="center", va="center")
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.05, 0.45)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_xlabel("Attention weight difference")
    axes.set_ylabel("ΔJS")


def draw_negatives(axes: Axes, result: Result) -> None:
    """Draw how many instances have a negative ΔJS, by Δα, as in figures 4 and 8."""
    x, y = _differences(result)
    negative = x[y < 0]
    if len(negative):
        axes.hist(negative, bins=bin_count(negative), color=COLOURS["attention"])
    else:
        axes.text(0.5, 0.5, "no instance", ha="center", va="center")
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_xlabel("Attention weight difference")
    axes.set_ylabel("Count")


def _differences(result: Result) -> tuple[Floats, Floats]:
    table = result.table("single", ["ranking", "delta_alpha", "delta_js"])
    table = table[table["ranking"] == "attention"]
    return table["delta_alpha"].to_numpy(), table["delta_js"].to_numpy()


def thin(x: Floats, y: Floats, seed: int) -> NDArray[np.int64]:
    """Choose the points of figures 3 and 7.

    The points of the largest y are left out. Of each of 200 bins of x in [0, 1) all points are
    taken if they are fewer than 10, else 10 drawn with replacement, so that there may be fewer.

    Args:
        x: `[N]`, Δα.
        y: `[N]`, ΔJS.
        seed: of the draw.

    Returns:
        Indices of the points, each once, ascending.

    Source:
        Serrano and Smith 2019, their published code.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.studies.serrano_smith.paper_figures import thin
        >>> thin(np.array([0.1, 0.2, 1.0, -0.1]), np.array([0.0, 0.3, 0.1, 0.1]), 0).tolist()
        [0]
    """
    rng = np.random.default_rng(seed)
    usable = np.flatnonzero((x >= 0) & (x < 1))
    if len(y):
        usable = usable[y[usable] < y.max()]
    bins = np.floor(x[usable] * _BINS).astype(np.int64)
    chosen: list[int] = []
    for number in np.unique(bins):
        members = usable[bins == number]
        if len(members) >= _OF_BIN:
            members = rng.choice(members, _OF_BIN)
        chosen += members.tolist()
    return np.unique(np.array(chosen, dtype=np.int64))


def bin_count(values: Floats) -> int:
    """Give the number of bins of figures 4 and 8: Freedman and Diaconis's, at most 50.

    `⌈range / (2 IQR / n^⅓)⌉`, and `⌊√n⌋` where the quartiles are equal.

    Args:
        values: `[N]`, at least one.

    Returns:
        At least 1.

    Source:
        The plotting library that the published code used.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.studies.serrano_smith.paper_figures import bin_count
        >>> bin_count(np.arange(8.0)), bin_count(np.zeros(9))
        (2, 3)
    """
    low, high = np.percentile(values, [25, 75])
    width = 2 * (high - low) / len(values) ** (1 / 3)
    count = math.sqrt(len(values)) if width == 0 else np.ceil(np.ptp(values) / width)
    return int(max(1, min(count, _MOST_BINS)))


def boxes(grid: Grid, models: Sequence[str], column: str) -> Figure:
    """Draw box plots as in figures 5, 6, 10 (`fraction`) and 11 (`mass`): a wide row a model.

    Instances that never flip are left out for each ranking separately; of the random orders the
    first is shown.
    """
    with mpl.rc_context(STYLE):
        width = min(12.0, max(6.4, 1.2 * len(grid.corpora)))
        figure = Figure(figsize=(width, 2 * len(models) + 0.3), layout="constrained")
        for axes, model in zip(
            figure.subplots(len(models), 1, squeeze=False)[:, 0], models, strict=True
        ):
            for place, corpus in enumerate(grid.corpora):
                result = grid.cells.get((corpus, model))
                if result is None:
                    axes.text(place, 0.625, **NO_RUN)  # between two lines of the grid
                    continue
                table = result.fractions(column)
                table = table[table["order"] == 0]
                for number, ranking in enumerate(RANKINGS):
                    values = table.loc[table["ranking"] == ranking, column].dropna()
                    _box(axes, values, place + 0.2 * (number - 1.5), COLOURS[ranking])
            space = letters((width - 1) / len(grid.corpora), 9.5)
            corpora = [fitted(corpus, min(28, space)) for corpus in grid.corpora]
            axes.set_xticks(range(len(corpora)), corpora)
            axes.set_xlim(-0.5, len(grid.corpora) - 0.5)
            axes.set_ylim(-0.02, 1.02)
            axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
            axes.grid(False, axis="x")
            axes.set_ylabel(fitted(model, letters(1.3, 8)), fontsize=8)
        handles = [Rectangle((0, 0), 1, 1, color=COLOURS[ranking]) for ranking in RANKINGS]
        names = [NAMES[ranking] for ranking in RANKINGS]
        place_legend(figure, handles, names, "upper", len(RANKINGS))
    return figure


def _box(axes: Axes, values: pd.Series, place: float, colour: str) -> None:
    if values.empty:
        axes.text(place, 0.5, "no data", rotation=90, ha="center", va="center", fontsize=7)
        return
    parts = axes.boxplot(
        values.to_numpy(),
        positions=[place],
        widths=0.18,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "linewidth": 0.8},
        medianprops={"color": "#1b1f24", "linewidth": 1.2},
        whiskerprops={"linewidth": 0.8},
        capprops={"linewidth": 0.8},
        flierprops={"marker": "d", "markersize": 2, "markerfacecolor": "#30353b"},
    )
    for marks in parts["fliers"]:
        marks.set_rasterized(True)


def contingencies(grid: Grid, models: Sequence[str], ranking: str) -> Figure:
    """Draw the decision-flip tables of figures 9 (attention), 12 (gradient) and 13 (product)."""
    assert ranking in SINGLE_RANKINGS
    symbol = {"attention": "i*", "gradient": "i$_g$*", "product": "i$_p$*"}[ranking]
    with mpl.rc_context(STYLE):
        shape, cells = places(grid, models, 3)
        figure = Figure(figsize=(2.3 * shape[1] + 0.3, 1.5 * shape[0] + 0.2), layout="constrained")
        axes = figure.subplots(*shape, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for place, (corpus, model) in cells.items():
            _cells(axes[place], grid.cells[corpus, model], ranking, symbol)
            title = fitted(grid.title(corpus, model), letters(2.1, 8.5))
            axes[place].set_title(title, fontsize=8.5)
        say_without_run(axes, grid, models, 2.1, 8.5)
    return figure


def _cells(axes: Axes, result: Result, ranking: str, symbol: str) -> None:
    shares = result.single[ranking].contingency
    fills = {"both": "#ffffff", "only_top": "#cfe3f2", "only_random": "#fbdcc0", "neither": "#fff"}
    axes.set_xlim(0, 3.02)
    axes.set_ylim(-0.02, 3)
    places: dict[str, tuple[float, float]] = {
        "both": (1, 1),
        "only_top": (2, 1),
        "only_random": (1, 0),
        "neither": (2, 0),
    }
    for cell, (x, y) in places.items():
        axes.add_patch(
            Rectangle((x, y), 1, 1, facecolor=fills[cell], edgecolor="#4a5058", linewidth=0.7)
        )
        value = shares[cell].value
        text = "–" if value is None else f"{100 * value:.1f}"
        axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8.5)
    for column, text in ((1.5, "r: yes"), (2.5, "r: no")):
        axes.text(column, 2.3, text, ha="center", va="center", fontsize=7.5)
    for row, text in ((1.5, f"{symbol}: yes"), (0.5, f"{symbol}: no")):
        axes.text(0.5, row, text, ha="center", va="center", fontsize=7.5)
