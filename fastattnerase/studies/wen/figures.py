"""Figures of the information studies, drawn from their tables alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.report.figures import PANEL, STYLE, fitted, letters, place_legend
from fastattnerase.studies.wen.null_tables import NULL_TAUS
from fastattnerase.studies.wen.options import ATTENTIONS, ENCODERS, Cell
from fastattnerase.studies.wen.rows import (
    SAME,
    TAUS,
    GumbelRow,
    Measured,
    RankInformation,
    Tau,
    TauName,
)
from fastattnerase.studies.wen.tables import Tables, grouped

with needs("report"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which any colour vision can distinguish.
ENCODER_COLOURS = {"bilstm": "#0072b2", "cnn": "#d98200", "mlp": "#009e73"}
ENCODER_NAMES = {"bilstm": "BiLSTM", "cnn": "CNN", "mlp": "MLP"}
# How a model is drawn in the four states of a row of `gumbel`.
STATES = {
    "softmax": ("softmax", "#1b1f24", "o"),
    "noise_off": ("Gumbel, noise off", "#0072b2", "s"),
    "noise_on": ("Gumbel, noise on", "#d98200", "^"),
    "equal_scores": ("Gumbel noise on equal scores", "#8a8f98", "x"),
}
_TITLE = letters(PANEL[0] - 1.4, 10.5)  # of a line above a panel with two scales
_NULL_TITLES = {"permuted": "Permuted", "equal": "Equal", "untrained": "Untrained"}
_TAU = {"weighted": "weighted tau", "plain": "plain tau"}


def figures(tables: Tables, titles: dict[str, str]) -> Iterator[tuple[str, Figure]]:
    """Draw every figure for which there are numbers.

    Args:
        tables: of `tables.collect`.
        titles: names of the data sets.

    Yields:
        A file name without extension, and the figure.
    """
    grid = [row for row in tables.measurements if _is_normal(row.cell)]
    if grid:
        for tau in TAUS:
            yield f"figure-2-{tau}", _grid(grid, tau, titles)
            against = _nulls(grid, tau)
            if against is not None:
                yield f"figure-2-nulls-{tau}", against
        yield "tau-and-skew", _skew(grid)
    curves = [row for row in tables.curves if _is_normal(row.measured.cell)]
    for dataset, own in grouped(curves, lambda row: row.measured.cell.dataset).items():
        yield f"curves-{dataset}", _curves(own, titles.get(dataset, dataset))
    if tables.gumbel:
        yield "gumbel", _gumbel(tables.gumbel, titles)


def _is_normal(cell: Cell) -> bool:
    """Say whether a cell's model is a normal one with softmax."""
    return cell.variant == "normal" and cell.mechanism == "softmax"


def _panels(
    count: int, width: float = PANEL[0], height: float = PANEL[1]
) -> tuple[Figure, list[Axes]]:
    columns = min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, list(grid[:count])


def _grid(grid: Sequence[Measured], tau: TauName, titles: dict[str, str]) -> Figure:
    """Draw tau of every seed and its box, by attention and encoder, a panel a data set."""
    datasets = grouped(grid, lambda row: row.cell.dataset)
    encoders = [name for name in ENCODERS if any(row.cell.encoder == name for row in grid)]
    attentions = [name for name in ATTENTIONS if any(row.cell.attention == name for row in grid)]
    shifts = 0.26 * (np.arange(len(encoders)) - (len(encoders) - 1) / 2)
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(datasets))
        for axes, (dataset, own) in zip(panels, datasets.items(), strict=True):
            models = grouped(own, lambda row: (row.cell.attention, row.cell.encoder))
            for place, attention in enumerate(attentions):
                for shift, encoder in zip(shifts, encoders, strict=True):
                    taus = [row.tau(tau) for row in models.get((attention, encoder), [])]
                    known = [one for one in taus if not math.isnan(one.value)]
                    _seeds(axes, known, place + shift, encoder, named=not place)
            axes.axhline(0, color="#4a5058", linewidth=0.8)
            axes.set_xticks(range(len(attentions)), attentions)
            axes.set_xlim(-0.5, len(attentions) - 0.5)
            axes.set_ylim(-1.05, 1.05)
            axes.set_ylabel(_TAU[tau].capitalize())
            axes.set_title(fitted(titles.get(dataset, dataset), _TITLE))
            axes.grid(False, axis="x")
        _legend(figure, panels[0])
    return figure


def _nulls(grid: Sequence[Measured], tau: TauName) -> Figure | None:
    """Draw each model's tau against that of each null, a panel a null; None where none was
    measured. Above the diagonal learned attention orders information better."""
    found = {}
    for name, null in NULL_TAUS.items():
        pairs = [(null(row, tau), row.tau(tau).value, row.cell.encoder) for row in grid]
        known = [pair for pair in pairs if not any(map(math.isnan, pair[:2]))]
        if known:
            found[name] = known
    if not found:
        return None
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(found))
        for axes, (name, pairs) in zip(panels, found.items(), strict=True):
            axes.plot([-1, 1], [-1, 1], color="#4a5058", linewidth=0.8)
            for encoder in ENCODERS:
                own = [(x, y) for x, y, of in pairs if of == encoder]
                if any(of == encoder for known in found.values() for _, _, of in known):
                    axes.plot(
                        [x for x, _ in own],
                        [y for _, y in own],
                        linestyle="none",
                        marker="o",
                        markersize=4.5,
                        alpha=0.7,
                        color=ENCODER_COLOURS[encoder],
                        label=ENCODER_NAMES[encoder],
                    )
            more = sum(y - x > SAME for x, y, _ in pairs)
            axes.set_title(f"{_NULL_TITLES[name]}: {more} of {len(pairs)} above")
            axes.set_xlim(-1.05, 1.05)
            axes.set_ylim(-1.05, 1.05)
            axes.set_xlabel(f"{_TAU[tau].capitalize()} of the null")
            axes.set_ylabel(f"{_TAU[tau].capitalize()}, learned")
        _legend(figure, panels[0])
    return figure


def _seeds(axes: Axes, taus: Sequence[Tau], place: float, encoder: str, *, named: bool) -> None:
    """Draw the seeds of one model, hollow where tau is chance, and a box around three or more."""
    colour = ENCODER_COLOURS[encoder]
    if len(taus) > 2:
        axes.boxplot(
            [tau.value for tau in taus],
            positions=[place],
            widths=0.2,
            patch_artist=True,
            showfliers=False,
            boxprops={"facecolor": colour + "30", "edgecolor": colour},
            medianprops={"color": colour},
            whiskerprops={"color": colour},
            capprops={"color": colour},
        )
    for is_chance, fill in ((False, colour), (True, "white")):
        values = [tau.value for tau in taus if (tau.chance is True) == is_chance]
        axes.plot(
            np.full(len(values), place),
            values,
            linestyle="none",
            marker="o",
            markersize=3.6,
            color=colour,
            markerfacecolor=fill,
            label=ENCODER_NAMES[encoder] if named and not is_chance else "_",
        )


def _legend(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """Put the legend of one panel above all: it covers no point."""
    handles, labels = axes.get_legend_handles_labels()
    place_legend(figure, handles, labels, "upper", columns)


def _skew(grid: Sequence[Measured]) -> Figure:
    """Draw both taus against attention's skew: what weighted tau owes to it."""
    models = grouped(grid, lambda row: (row.cell.attention, row.cell.encoder))
    with mpl.rc_context(STYLE):
        figure, panels = _panels(2)
        for axes, tau in zip(panels, TAUS, strict=True):
            for marker, attention in zip("os^", ATTENTIONS, strict=True):
                for encoder in ENCODERS:
                    own = models.get((attention, encoder))
                    if own is None:
                        continue
                    axes.plot(
                        [row.largest_weight for row in own],
                        [row.tau(tau).value for row in own],
                        linestyle="none",
                        marker=marker,
                        markersize=4.5,
                        color=ENCODER_COLOURS[encoder],
                        label=f"{ENCODER_NAMES[encoder]}, {attention}",
                    )
            axes.axhline(0, color="#4a5058", linewidth=0.8)
            axes.set_xlim(0, 1.02)
            axes.set_ylim(-1.05, 1.05)
            axes.set_xlabel("Mean largest weight of an instance")
            axes.set_ylabel(_TAU[tau].capitalize())
        _legend(figure, panels[0])
    return figure


def _curves(curves: Sequence[RankInformation], title: str) -> Figure:
    """Draw information by rank with the band of shuffled outputs, of each model's first seed."""
    seed = min(row.measured.cell.seed for row in curves)
    first = grouped(
        (row for row in curves if row.measured.cell.seed == seed),
        lambda row: (row.measured.cell.encoder, row.measured.cell.attention),
    )
    models = [(e, a) for e in ENCODERS for a in ATTENTIONS if (e, a) in first]
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(models))
        for axes, (encoder, attention) in zip(panels, models, strict=True):
            own = first[encoder, attention]
            rank = [row.rank for row in own]
            axes.fill_between(
                rank, [row.control_low for row in own], [row.control_high for row in own],
                color="#8a8f98", alpha=0.35, linewidth=0, label="outputs shuffled",
            )  # fmt: skip
            axes.plot(
                rank, [row.plug_in for row in own], color="#0072b2", marker=".", label="plug-in"
            )
            corrected = [row.miller_madow for row in own]
            axes.plot(
                rank, corrected, color="#009e73", linestyle=(0, (5, 1.5)), label="Miller-Madow"
            )
            axes.set_xlabel("Attention rank")
            axes.set_ylabel("Information, nats")
            axes.set_ylim(bottom=min(0.0, min(corrected) * 1.1))
            twin = axes.twinx()
            twin.plot(rank, [row.weight for row in own], color="#d98200", linewidth=1.2)
            twin.set_ylim(bottom=0)
            twin.set_ylabel("Mean weight", color="#d98200")
            twin.grid(False)
            axes.set_title(fitted(f"{title}: {ENCODER_NAMES[encoder]}, {attention}", _TITLE))
        _legend(figure, panels[0])
    return figure


def _gumbel(rows: Sequence[GumbelRow], titles: dict[str, str]) -> Figure:
    """Draw both taus of each model: softmax, Gumbel with and without noise, the noise alone."""
    cells = [row.softmax.cell for row in rows]
    names = [
        fitted(titles.get(c.dataset, c.dataset), 30, lines=1)
        + f": {ENCODER_NAMES[c.encoder]}, {c.attention}"
        for c in cells
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.4 * PANEL[0], 1.4 + 0.24 * len(rows)), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, tau in zip(panels, TAUS, strict=True):
            for state, (label, colour, marker) in STATES.items():
                models: list[Measured] = [getattr(row, state) for row in rows]
                axes.plot(
                    [model.tau(tau).value for model in models],
                    np.arange(len(rows)),
                    linestyle="none",
                    marker=marker,
                    markersize=5,
                    color=colour,
                    label=label,
                )
            axes.axvline(0, color="#4a5058", linewidth=0.8)
            axes.set_xlim(-1.05, 1.05)
            axes.set_xlabel(_TAU[tau].capitalize())
        panels[0].set_yticks(range(len(rows)), names, fontsize=7.5)
        panels[0].invert_yaxis()
        _legend(figure, panels[0], columns=4)
    return figure
