"""The paper's figures in a form that hides nothing: all points, intervals, the smallest set."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.report.figures import STYLE, add_legend, fitted, letters, place_legend
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.statistics.shares import wilson
from fastattnerase.studies.serrano_smith.config import CELLS, LEAST_DIFFERENCE, RULES
from fastattnerase.studies.serrano_smith.figures import NEVER, fill, say_without_run
from fastattnerase.studies.serrano_smith.grid import Grid, places
from fastattnerase.studies.serrano_smith.looks import COLOURS, looks
from fastattnerase.studies.serrano_smith.result import Result

with needs("report"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter, StrMethodFormatter

_BINS = 10  # of Δα
_MARKERS = {"random": "s", "attention": "o", "gradient": "^", "product": "D", "minimal": "*"}
_OWN_MARKERS = "vPXphd"  # of rankings of one's own, in turn
_RULE_COLOURS = {"different": "#0072b2", "uniform": "#009e73", "legacy": "#c43c00"}

Draw = Callable[[Axes, Result], None]
Floats = NDArray[np.float64]


def figures(grid: Grid) -> Iterator[tuple[str, Figure]]:
    """Draw the better form of every figure.

    Args:
        grid: the runs.

    Yields:
        Names that begin with the number of the paper's figure, and figures: `figure-03-density`,
        `figure-04-shares`, `figure-05-curves`, `figure-09-rules`, `figure-10-medians`,
        `figure-11-medians`, `section-5-4-pairs`.
    """
    yield "figure-03-density", panels(grid, draw_density)
    yield "figure-04-shares", panels(grid, draw_negative_shares)
    yield "figure-05-curves", panels(grid, draw_curves)
    yield "figure-09-rules", panels(grid, draw_rules)
    yield "figure-10-medians", median_fractions(grid)
    yield "figure-11-medians", medians(grid, "mass", "Median attention mass erased at first flip")
    yield "section-5-4-pairs", pairs(grid)


def panels(grid: Grid, draw: Draw) -> Figure:
    """Draw a panel for each corpus and model, with one legend for all."""
    (rows, columns), cells = places(grid, grid.models, 2)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * columns, 2.7 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for place, (corpus, model) in cells.items():
            axes[place].set_axis_on()
            fill(axes[place], draw, grid.cells[corpus, model])
            title = fitted(grid.title(corpus, model), letters(2.6, 9))
            axes[place].set_title(title, fontsize=9)
        say_without_run(axes, grid, grid.models, 2.6, 9)
        add_legend(figure, 3 if columns == 1 else 5)
    return figure


def _edges(differences: Floats) -> Floats:
    """Give the edges of bins of Δα, from 0 to 1 or to the largest where all are small."""
    largest = float(differences.max(initial=0.0))
    return np.linspace(0, 1 if largest > 0.5 or largest <= 0 else 1.02 * largest, _BINS + 1)


def draw_density(axes: Axes, result: Result) -> None:
    """Draw ΔJS against Δα of all instances as density, with quartiles of ΔJS along Δα."""
    table = result.table("single", ["ranking", "delta_alpha", "delta_js"])
    table = table[table["ranking"] == "attention"]
    x, y = table["delta_alpha"].to_numpy(), table["delta_js"].to_numpy()
    axes.axhline(0, color="#4a5058", linewidth=0.8)
    if len(x):
        cells = axes.hexbin(
            x, y, gridsize=45, mincnt=1, cmap="Blues", linewidths=0.1, rasterized=True
        )
        # One instance is visible, too: the palest colour stands for a fifth of one.
        counts = np.asarray(cells.get_array())
        cells.set_norm(LogNorm(0.2, max(1.0, float(np.max(counts)))))
        edges = _edges(x)
        places = np.clip(np.digitize(x, edges) - 1, 0, _BINS - 1)
        some = [b for b in range(_BINS) if (places == b).sum() >= 5]
        if some:
            middle = [(edges[b] + edges[b + 1]) / 2 for b in some]
            quartiles = np.array([np.percentile(y[places == b], [25, 50, 75]) for b in some])
            axes.fill_between(middle, quartiles[:, 0], quartiles[:, 2], color="#d98200", alpha=0.25)
            axes.plot(middle, quartiles[:, 1], color="#b85f00", linewidth=1.6)
    axes.set_xlim(0, _edges(x)[-1])
    axes.locator_params(axis="x", nbins=5)
    for axis in (axes.xaxis, axes.yaxis):  # without a common factor, which would cover the title
        axis.set_major_formatter(StrMethodFormatter("{x:.4g}"))
    axes.set_xlabel("Δα")
    axes.set_ylabel("ΔJS")


def draw_negative_shares(axes: Axes, result: Result) -> None:
    """Draw the share of instances with a negative ΔJS along Δα, with Wilson's intervals."""
    table = result.table("single", ["ranking", "delta_alpha", "delta_js"])
    table = table[table["ranking"] == "attention"]
    x, y = table["delta_alpha"].to_numpy(), table["delta_js"].to_numpy()
    edges = _edges(x)
    places = np.clip(np.digitize(x, edges) - 1, 0, _BINS - 1)
    for number in range(_BINS):
        of_bin = y[places == number]
        if not len(of_bin):
            continue
        count = int((of_bin < -LEAST_DIFFERENCE).sum())
        low, high = wilson(count, len(of_bin))
        middle = (edges[number] + edges[number + 1]) / 2
        axes.vlines(middle, low, high, color=COLOURS["attention"], linewidth=1.4)
        axes.plot(middle, count / len(of_bin), "o", color=COLOURS["attention"], markersize=4)
        axes.text(middle, 1.01, f"{len(of_bin):,}", ha="center", fontsize=6, color="#565e68")
    axes.set_xlim(0, edges[-1])
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.4g}"))
    axes.set_ylim(0, 1.06)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("Δα")
    axes.set_ylabel("ΔJS < 0")


def draw_curves(axes: Axes, result: Result) -> None:
    """Draw the share of decisions changed against the fraction erased: never-flipping included."""
    table = result.table("multi", ["ranking", "first_flip", "fraction"])
    for ranking, look in looks(result).items():
        of_ranking = table[table["ranking"] == ranking]
        if of_ranking.empty:
            continue
        flipped = of_ranking.loc[of_ranking["first_flip"] > 0, "fraction"]
        fractions = np.sort(flipped.to_numpy())
        share = np.arange(1, len(fractions) + 1) / len(of_ranking)
        axes.step(
            np.concatenate([[0.0], fractions, [1.0]]),
            np.concatenate([[0.0], share, share[-1:] if len(share) else [0.0]]),
            where="post",
            color=look.colour,
            linestyle=look.style,
            linewidth=1.5,
            label=look.name,
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.02, 1.02)  # a curve at 0 is seen
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_xlabel("Fraction erased")
    axes.set_ylabel("Decisions changed")


def draw_rules(axes: Axes, result: Result) -> None:
    """Draw the decision-flip table of attention in exact expectation under each rule for r."""
    expected = result.single["attention"].expected_contingency
    labels = {
        "both": "both",
        "only_top": "only i*",
        "only_random": "only r",
        "neither": "neither",
        "same_item": "r is i*",
    }
    cells = [*CELLS[:3], "same_item"]
    for number, rule in enumerate(RULES):
        for place, cell in enumerate(cells):
            _interval(
                axes,
                expected[rule][cell],
                place + 0.2 * (number - 1),
                _RULE_COLOURS[rule],
                "o",
                f"r by the rule {rule}" if place == 0 else None,
            )
    axes.set_xticks(range(len(cells)), [labels[cell] for cell in cells])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(False, axis="x")


def median_fractions(grid: Grid) -> Figure:
    """Draw the median fractions of all models; see `medians`."""
    return medians(grid, "fraction", "Median fraction erased at first flip")


def medians(grid: Grid, quantity: Literal["fraction", "mass"], label: str) -> Figure:
    """Draw medians with intervals, a panel for each corpus, a group for each model.

    Those of fractions are over all instances, and what never flips is above 1; those of masses are
    over the instances that flip under the ranking, as in the paper.
    """

    def of(result: Result) -> Iterator[tuple[str, Estimate]]:
        for ranking, record in result.multi.items():
            counted = quantity == "fraction"
            yield ranking, (record.counted.fraction if counted else record.mass).median

    shown = looks(*grid.cells.values())
    names = {ranking: look.name for ranking, look in shown.items()}
    colours = {ranking: look.colour for ranking, look in shown.items()}
    own = [ranking for ranking in shown if ranking not in _MARKERS]
    markers = dict(zip(own, itertools.cycle(_OWN_MARKERS), strict=False))
    never = quantity == "fraction"
    return _dots(grid, of, label, names, colours, _MARKERS | markers, never=never)


def pairs(grid: Grid) -> Figure:
    """Draw how often one ranking flips with fewer items than another (section 5.4)."""
    names = {
        "gradient/attention": "Gradient before attention",
        "product/attention": "Product before attention",
        "attention/random": "Attention before random",
    }
    colours = {
        "gradient/attention": COLOURS["gradient"],
        "product/attention": COLOURS["product"],
        "attention/random": COLOURS["attention"],
    }
    markers = dict.fromkeys(names, "o")

    def of(result: Result) -> Iterator[tuple[str, Estimate]]:
        for (first, second), record in result.pairs.items():
            key = f"{first}/{second}"
            if key in names:
                yield key, record.share_first_smaller

    return _dots(grid, of, "Share with the smaller set", names, colours, markers)


def _dots(
    grid: Grid,
    of: Callable[[Result], Iterator[tuple[str, Estimate]]],
    label: str,
    names: dict[str, str],
    colours: dict[str, str],
    markers: dict[str, str],
    *,
    never: bool = False,
) -> Figure:
    keys = list(names)
    with mpl.rc_context(STYLE):
        columns = len(grid.corpora)
        width = max(3.2, 0.8 * len(grid.models) + 0.9)
        titles = [fitted(corpus, letters(width - 0.9, 10.5)) for corpus in grid.corpora]
        labels = {model: fitted(model, 14) for model in grid.models}
        lines = sum(max(text.count("\n") for text in texts) for texts in (titles, labels.values()))
        size = (width * columns, 3.7 + 0.2 * lines)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False, sharey=True)[0]
        shown: dict[str, Any] = {}
        for axis, corpus, title in zip(axes, grid.corpora, titles, strict=True):
            models = [model for model in grid.models if (corpus, model) in grid.cells]
            for place, model in enumerate(models):
                for key, estimate in of(grid.cells[corpus, model]):
                    x = place + 0.7 * (keys.index(key) - (len(keys) - 1) / 2) / len(keys)
                    drawn = _interval(axis, estimate, x, colours[key], markers[key], None)
                    if drawn is not None:
                        shown[key] = drawn
            axis.set_xticks(
                range(len(models)), [labels[model] for model in models], rotation=20, fontsize=7.5
            )
            axis.set_xlim(-0.6, max(len(models), 1) - 0.4)
            axis.set_ylim(-0.03, NEVER + 0.04 if never else 1.03)
            axis.grid(False, axis="x")
            axis.set_title(title)
        axes[0].set_ylabel(fitted(label, letters(2.2, 9.5)))
        if never:
            ticks = [0, 0.25, 0.5, 0.75, 1]
            axes[0].set_yticks([*ticks, NEVER], [*(f"{tick:g}" for tick in ticks), "never"])
        if shown:
            order = [key for key in keys if key in shown]
            place_legend(
                figure,
                [shown[key] for key in order],
                [names[key] for key in order],
                "lower",
                len(order),
            )
    return figure


def _interval(
    axes: Axes,
    estimate: Estimate,
    x: float,
    colour: str,
    marker: str,
    label: str | None,
) -> Any:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    value, low, high = np.minimum([estimate.value, estimate.low, estimate.high], NEVER)
    axes.vlines(x, low, high, color=colour, linewidth=1.4)
    (drawn,) = axes.plot(
        x, value, marker=marker, color=colour, markersize=5, linestyle="none", label=label
    )
    return drawn
