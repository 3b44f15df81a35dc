"""Figures of what exact erasure alone can say, a panel for each corpus and model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.report.figures import STYLE, add_legend, fitted, letters
from fastattnerase.statistics.resampled import Floats
from fastattnerase.studies.serrano_smith.columns import fractions, lasting_fractions
from fastattnerase.studies.serrano_smith.config import SINGLE_RANKINGS
from fastattnerase.studies.serrano_smith.counted import smallest_sets
from fastattnerase.studies.serrano_smith.exact import SAME, Exact, top_ranks
from fastattnerase.studies.serrano_smith.figures import NEVER, say_without_run
from fastattnerase.studies.serrano_smith.full_figures import panels
from fastattnerase.studies.serrano_smith.grid import Grid, places
from fastattnerase.studies.serrano_smith.instance_tables import PLACES, read_columns
from fastattnerase.studies.serrano_smith.looks import COLOURS, looks
from fastattnerase.studies.serrano_smith.records import architecture
from fastattnerase.studies.serrano_smith.result import Result

with needs("report"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTIONS = {
    "exact-1-minimum": "The smallest set that changes the decision against the length of the text: "
    "medians and quartiles of instances of about one length, one that no set flips beyond "
    "everything; dotted, what erasing by attention takes.",
    "exact-2-lasting": "Decisions changed against the fraction erased: dotted, those that have "
    "changed at least once; solid, those that stay changed whatever more of the order is erased.",
    "exact-3-items": "Rank of each ranking’s top item by JS among all items of its instance, each "
    "erased alone: share of the instances in which it is at most so. Grey: an item at random.",
    "exact-4-skill": "Skill by kind of instance, with intervals: 0 is a random order, 1 the "
    "smallest sets. Below -1 it is drawn at -1.",
    "exact-5-js": "JS divergence from the original output against the fraction erased: means over "
    "the instances with their intervals.",
    "exact-5-label-prob": "Probability of the original decision against the fraction erased: means "
    "over the instances with their intervals.",
}
# Which part of the chapter each belongs to.
OF_PART = {
    "minimum": ("exact-1-minimum",),
    "lasting": ("exact-2-lasting",),
    "items": ("exact-3-items",),
    "skill": ("exact-4-skill",),
    "curves": ("exact-5-js", "exact-5-label-prob"),
}
_ENCODERS = {"noenc": "#009e73", "conv": "#d98200", "rnn": "#0072b2"}
_OTHER = "#1b1f24"  # of a model whose record names no such encoder
_NAMES = {"noenc": "no encoder", "conv": "convolution", "rnn": "recurrent"}
_BINS = 8  # of lengths
_CLASSES = 6  # classes at most that have a row
_LETTERS = 22  # of the name of a group
_TITLES = {"length": "length", "class": "decided", "confidence": "p"}


def figures(
    grid: Grid, said: Mapping[str, Exact], parts: Sequence[str]
) -> Iterator[tuple[str, str, Figure]]:
    """Draw the figures of the chapter.

    Args:
        grid: the runs.
        said: what was computed of each, by the run's name.
        parts: those to draw, of `exact.PARTS`.

    Yields:
        Part, name of `CAPTIONS` and figure; a panel is empty where its run has not what it takes.
    """
    draw: dict[str, Callable[[], Figure]] = {
        "exact-1-minimum": partial(minimum, grid),
        "exact-2-lasting": partial(panels, grid, draw_lasting),
        "exact-3-items": partial(panels, grid, draw_items),
        "exact-4-skill": partial(skills, grid, said),
        "exact-5-js": partial(panels, grid, partial(_draw_curves, said, "js")),
        "exact-5-label-prob": partial(panels, grid, partial(_draw_curves, said, "label_prob")),
    }
    for part in parts:
        for name in OF_PART[part]:
            yield part, name, draw[name]()


def minimum(grid: Grid) -> Figure:
    """Draw smallest sets by length: a panel for each corpus and kind of model, encoders in it."""
    cells: dict[tuple[str, str], list[tuple[str, Result]]] = {}
    for (corpus, model), result in grid.cells.items():
        parts = architecture(result)
        kind = model if parts is None else parts.kind.upper()
        encoder = "" if parts is None else parts.encoder
        if parts is not None and any(name == encoder for name, _ in cells.get((corpus, kind), ())):
            kind = model  # another model of the same parts
        cells.setdefault((corpus, kind), []).append((encoder, result))
    columns = min(3, len(cells))
    rows = -(-len(cells) // columns)
    several = len(grid.corpora) > 1
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * max(columns, 2) if columns < 3 else 10.8, 2.9 * rows),
                        layout="constrained")  # fmt: skip
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis in axes[len(cells) :]:
            axis.set_axis_off()
        for axis, ((corpus, kind), models) in zip(axes, cells.items(), strict=False):
            for encoder, result in models:
                draw_minimum(axis, result, encoder)
            title = " ".join(filter(None, (corpus, kind))) if several else kind
            axis.set_title(fitted(title, letters(2.6, 9)), fontsize=9)
            axis.set_ylim(-0.03, NEVER + 0.04)
            ticks = [0, 0.25, 0.5, 0.75, 1]
            axis.set_yticks([*ticks, NEVER], [*(f"{tick:g}" for tick in ticks), "never"])
            axis.set_xlabel("Items")
            axis.set_ylabel("Fraction erased")
        add_legend(figure, 3)
    return figure


def draw_minimum(axes: Axes, result: Result, encoder: str) -> None:
    """Draw the smallest sets of a model by length, and what attention takes, dotted."""
    table = read_columns(result.folder, "instances", ["n", "excluded"])
    n = table.loc[table["excluded"] == "", "n"].to_numpy()
    smallest = smallest_sets(result.folder).to_numpy(np.float64)
    if not len(n) or not len(smallest):
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
        return
    colour, name = _ENCODERS.get(encoder, _OTHER), _NAMES.get(encoder, encoder)
    prefix = f"{name}: " if name else ""
    attention = np.minimum(fractions(result, "attention")[:, 0], NEVER)
    needed = np.where(np.isnan(smallest), NEVER, smallest)
    edges = np.unique(np.quantile(n, np.arange(1, _BINS) / _BINS, method="nearest"))
    place = np.searchsorted(edges, n)
    chosen = [place == number for number in np.unique(place)]
    middle = [float(np.median(n[rows])) for rows in chosen]
    quartiles = np.array([_quartiles(needed[rows]) for rows in chosen])
    axes.fill_between(middle, quartiles[:, 0], quartiles[:, 2], color=colour, alpha=0.16)
    axes.plot(middle, quartiles[:, 1], "o-", color=colour, markersize=3.4, linewidth=1.7,
              label=f"{prefix}smallest set")  # fmt: skip
    of_attention = [_quartiles(attention[rows])[1] for rows in chosen]
    axes.plot(middle, of_attention, linestyle=(0, (1, 1.4)), color=colour, linewidth=1.6,
              label=f"{prefix}attention")  # fmt: skip


def _quartiles(values: Floats) -> Floats:
    """Find quartiles; between a fraction and never is never."""
    found = np.quantile(values, (0.25, 0.5, 0.75))
    return np.where(found > 1, NEVER, found)


def draw_lasting(axes: Axes, result: Result) -> None:
    """Draw the shares of decisions that have changed, and that stay changed."""
    for ranking, look in looks(result).items():
        if ranking == "minimal":
            continue
        stays = lasting_fractions(result, ranking)
        if stays is None:
            axes.text(0.5, 0.5, "not kept", ha="center", va="center", transform=axes.transAxes)
            break
        for values, style, label in (
            (fractions(result, ranking), (0, (1, 1.4)), None),
            (stays, "solid", look.name),
        ):
            places = np.sort(values[np.isfinite(values)])
            share = np.arange(1, len(places) + 1) / max(values.size, 1)
            axes.step(
                np.concatenate([[0.0], places, [1.0]]),
                np.concatenate([[0.0], share, share[-1:] if len(share) else [0.0]]),
                where="post",
                color=look.colour,
                linestyle=style,
                linewidth=1.4,
                label=label,
            )
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_xlabel("Fraction erased")
    axes.set_ylabel("Decisions changed")


def draw_items(axes: Axes, result: Result) -> None:
    """Draw the distribution of the rank of top items by JS, and of an item at random."""
    most, n = 2, np.empty(0)
    for ranking in SINGLE_RANKINGS:
        table = top_ranks(result, ranking)
        if table is None:
            axes.text(0.5, 0.5, "not kept", ha="center", va="center", transform=axes.transAxes)
            break
        n = table["n"].to_numpy()
        most = max(most, int(n.max(initial=2)))
        places = np.sort(table["rank"].to_numpy())
        share = np.arange(1, len(places) + 1) / max(len(places), 1)
        look = looks(result)[ranking]
        axes.step(np.append(places, most), np.append(share, 1), where="post", color=look.colour,
                  linestyle=look.style, linewidth=1.6, label=look.name)  # fmt: skip
    if len(n):
        at = np.unique(np.round(np.geomspace(1, most, 60)))
        chance = [float(np.minimum(place / n, 1).mean()) for place in at]
        axes.plot(at, chance, color=COLOURS["random"], linewidth=1.4, label="An item at random")
    axes.set_xscale("log")
    axes.set_xlim(0.95, most)
    axes.set_xticks(*_ranks(most))
    axes.minorticks_off()
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_xlabel("Rank by JS, 1 the largest")
    axes.set_ylabel("Share of instances")


def _ranks(most: int) -> tuple[list[int], list[str]]:
    """Choose ticks of a logarithmic axis of ranks: powers of ten, of few ranks others as well."""
    steps = (1,) if most > 100 else (1, 3) if most > 10 else (1, 2, 3, 5)
    ticks = [step * 10**power for power in range(9) for step in steps if step * 10**power <= most]
    return ticks, [f"{tick:,}" for tick in ticks]


def _draw_curves(said: Mapping[str, Exact], quantity: str, axes: Axes, result: Result) -> None:
    """Draw mean curves over prefixes with the intervals of the means."""
    shown = looks(result)
    curves = [c for c in said[result.run.name].curves if c.quantity == quantity]
    if not curves:
        axes.text(0.5, 0.5, "not kept", ha="center", va="center", transform=axes.transAxes)
    for curve in curves:
        look = shown[curve.ranking]
        means = np.array([[e.value, e.low, e.high] for e in curve.means], dtype=np.float64)
        axes.fill_between(PLACES, means[:, 1], means[:, 2], color=look.colour, alpha=0.2)
        axes.plot(PLACES, means[:, 0], color=look.colour, linestyle=look.style, linewidth=1.5,
                  label=look.name)  # fmt: skip
    axes.set_xlim(0, 1)
    if quantity == "js":
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:.4g}")
    axes.set_xlabel("Fraction erased")
    axes.set_ylabel("JS" if quantity == "js" else "Label’s probability")


def skills(grid: Grid, said: Mapping[str, Exact]) -> Figure:
    """Draw skills by kind of instance with intervals, a panel for each corpus and model."""
    (rows, columns), cells = places(grid, grid.models, 2)
    lines = {key: _groups(said[grid.cells[key].run.name]) for key in cells.values()}
    tallest = max([len(names) for names in lines.values()], default=1)
    with mpl.rc_context(STYLE):
        height = 0.9 + 0.19 * max(tallest, 4)
        figure = Figure(figsize=(3.7 * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for place, key in cells.items():
            axis, result = axes[place], grid.cells[key]
            axis.set_axis_on()
            _draw_skill(axis, said[result.run.name], lines[key], result)
            axis.set_title(fitted(grid.title(*key), letters(2.6, 9)), fontsize=9)
        say_without_run(axes, grid, grid.models, 2.6, 9)
        add_legend(figure, 3 if columns == 1 else 5)
    return figure


def _groups(exact: Exact) -> list[tuple[str, str]]:
    """List the groups that have a row: all, then by kind; of many classes the most frequent."""
    sizes = {(n.by, n.group): n.instances for n in exact.numbers if n.quantity == "some_set_flips"}
    classes = sorted((key for key in sizes if key[0] == "class"), key=lambda key: -sizes[key])
    return [key for key in sizes if key[0] != "class" or key in classes[:_CLASSES]]


def _draw_skill(axes: Axes, exact: Exact, lines: list[tuple[str, str]], result: Result) -> None:
    shown = looks(result)
    rankings = [r for r in shown if exact.find("skill", r) is not None]
    for number, ranking in enumerate(rankings):
        shift = 0.24 * (number - (len(rankings) - 1) / 2)
        for row, (by, group) in enumerate(lines):
            estimate = exact.value("skill", ranking, by, group)
            if estimate.value is None or estimate.low is None or estimate.high is None:
                continue
            value, low, high = np.clip([estimate.value, estimate.low, estimate.high], -1, 1)
            colour = shown[ranking].colour
            axes.hlines(row + shift, low, high, color=colour, linewidth=1.2)
            axes.plot(value, row + shift, "o", color=colour, markersize=3.4,
                      label=shown[ranking].name if row == 0 else None)  # fmt: skip
    if not rankings:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
    axes.axvline(0, color="#8a8f98", linewidth=0.9)
    names = [_label(by, group) for by, group in lines]
    axes.set_yticks(range(len(names)), names, fontsize=6.6)
    axes.set_ylim(max(len(lines), 1) - 0.4, -0.6)
    axes.set_xlim(-1.06, 1.06)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_xlabel("Skill")
    axes.grid(False, axis="y")


def _label(by: str, group: str) -> str:
    if by == "all":
        return "all"
    if by == "bias":
        return "as the bias" if group == SAME else "not as the bias"
    name = group.partition(": ")[2] if by in ("length", "confidence") else group
    return fitted(f"{_TITLES[by]} {name.removesuffix(' items')}", _LETTERS, 1)
