"""Figures of the information studies, drawn from their tables alone."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastattnerase.report.figures import PANEL, STYLE
from fastattnerase.studies.wen.options import ATTENTIONS, ENCODERS

# Okabe and Ito's colours, told apart with any colour vision.
ENCODER_COLOURS = {"bilstm": "#0072b2", "cnn": "#d98200", "mlp": "#009e73"}
ENCODER_NAMES = {"bilstm": "BiLSTM", "cnn": "CNN", "mlp": "MLP"}
NOISE = {
    "softmax": ("softmax", "#1b1f24", "o"),
    "noise_off": ("Gumbel, noise off", "#0072b2", "s"),
    "noise_on": ("Gumbel, noise on", "#d98200", "^"),
    "equal_scores": ("Gumbel noise on equal scores", "#8a8f98", "x"),
}
_TAU = {"weighted": "weighted tau", "plain": "plain tau"}


def figures(
    tables: dict[str, pd.DataFrame], titles: dict[str, str]
) -> Iterator[tuple[str, Figure]]:
    """Draw every figure for which there are numbers.

    Args:
        tables: of `tables.collect`.
        titles: names of the data sets.

    Yields:
        A file name without extension, and the figure.
    """
    measured = tables["measurements"]
    if measured.empty:
        return
    grid = measured[(measured["variant"] == "normal") & (measured["mechanism"] == "softmax")]
    if len(grid):
        for tau in ("weighted", "plain"):
            yield f"figure-2-{tau}", _grid(grid, tau, titles)
        yield "tau-and-skew", _skew(grid)
    curves = tables["curves"]
    if len(curves):
        normal = curves[(curves["variant"] == "normal") & (curves["mechanism"] == "softmax")]
        if len(normal):
            for dataset in normal["dataset"].unique():
                own = normal[normal["dataset"] == dataset]
                yield f"curves-{dataset}", _curves(own, titles.get(dataset, dataset))
    if len(tables["gumbel"]):
        yield "gumbel", _gumbel(tables["gumbel"], titles)


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


def _grid(grid: pd.DataFrame, tau: str, titles: dict[str, str]) -> Figure:
    """Tau of every seed and its box, by attention and encoder, a panel a data set."""
    datasets = list(grid["dataset"].unique())
    encoders = [encoder for encoder in ENCODERS if encoder in set(grid["encoder"])]
    attentions = [attention for attention in ATTENTIONS if attention in set(grid["attention"])]
    shifts = 0.26 * (np.arange(len(encoders)) - (len(encoders) - 1) / 2)
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(datasets))
        for axes, dataset in zip(panels, datasets, strict=True):
            for place, attention in enumerate(attentions):
                for shift, encoder in zip(shifts, encoders, strict=True):
                    chosen = (
                        (grid["dataset"] == dataset)
                        & (grid["attention"] == attention)
                        & (grid["encoder"] == encoder)
                    )
                    known = grid[chosen].dropna(subset=[tau])
                    values = known[tau].to_numpy()
                    colour = ENCODER_COLOURS[encoder]
                    if len(values) > 2:
                        axes.boxplot(
                            values,
                            positions=[place + shift],
                            widths=0.2,
                            patch_artist=True,
                            showfliers=False,
                            boxprops={"facecolor": colour + "30", "edgecolor": colour},
                            medianprops={"color": colour},
                            whiskerprops={"color": colour},
                            capprops={"color": colour},
                        )
                    chance = known[f"{tau}_chance"].eq(True).to_numpy()
                    for group, fill in ((~chance, colour), (chance, "white")):
                        axes.plot(
                            np.full(group.sum(), place + shift),
                            values[group],
                            linestyle="none",
                            marker="o",
                            markersize=3.6,
                            color=colour,
                            markerfacecolor=fill,
                            label=ENCODER_NAMES[encoder] if fill == colour and not place else "_",
                        )
            axes.axhline(0, color="#4a5058", linewidth=0.8)
            axes.set_xticks(range(len(attentions)), attentions)
            axes.set_xlim(-0.5, len(attentions) - 0.5)
            axes.set_ylim(-1.05, 1.05)
            axes.set_ylabel(_TAU[tau].capitalize())
            axes.set_title(titles.get(dataset, dataset))
            axes.grid(False, axis="x")
        _legend(figure, panels[0])
    return figure


def _legend(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """Put the legend of one panel above all: it covers no point."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)


def _skew(grid: pd.DataFrame) -> Figure:
    """Both taus against attention's skew: what weighted tau owes to it."""
    with mpl.rc_context(STYLE):
        figure, panels = _panels(2)
        for axes, tau in zip(panels, ("weighted", "plain"), strict=True):
            for marker, attention in zip("os^", ATTENTIONS, strict=True):
                for encoder in ENCODERS:
                    own = grid[(grid["attention"] == attention) & (grid["encoder"] == encoder)]
                    if own.empty:
                        continue
                    axes.plot(
                        own["largest_weight"],
                        own[tau],
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


def _curves(curves: pd.DataFrame, title: str) -> Figure:
    """Information by rank with the shuffled control's band, of each model's first seed."""
    first = curves[curves["seed"] == curves["seed"].min()]
    models = [
        (encoder, attention)
        for encoder in ENCODERS
        for attention in ATTENTIONS
        if ((first["encoder"] == encoder) & (first["attention"] == attention)).any()
    ]
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(models))
        for axes, (encoder, attention) in zip(panels, models, strict=True):
            own = first[(first["encoder"] == encoder) & (first["attention"] == attention)]
            rank = own["rank"].to_numpy()
            axes.fill_between(
                rank, own["control_low"], own["control_high"], color="#8a8f98", alpha=0.35,
                linewidth=0, label="outputs shuffled",
            )  # fmt: skip
            axes.plot(rank, own["plug_in"], color="#0072b2", marker=".", label="plug-in")
            axes.plot(
                rank, own["miller_madow"], color="#009e73", linestyle=(0, (5, 1.5)),
                label="Miller-Madow",
            )  # fmt: skip
            axes.set_xlabel("Attention rank")
            axes.set_ylabel("Information, nats")
            axes.set_ylim(bottom=min(0.0, float(own["miller_madow"].min()) * 1.1))
            twin = axes.twinx()
            twin.plot(rank, own["weight"], color="#d98200", linewidth=1.2)
            twin.set_ylim(bottom=0)
            twin.set_ylabel("Mean weight", color="#d98200")
            twin.grid(False)
            axes.set_title(f"{title}: {ENCODER_NAMES[encoder]}, {attention}")
        _legend(figure, panels[0])
    return figure


def _gumbel(table: pd.DataFrame, titles: dict[str, str]) -> Figure:
    """Both taus of each model under softmax, Gumbel with and without noise, and on equal scores."""
    table = table.reset_index(drop=True)
    names = [
        f"{titles.get(dataset, dataset)}: {ENCODER_NAMES[encoder]}, {attention}"
        for dataset, encoder, attention in zip(
            *(table[key].astype(str) for key in ("dataset", "encoder", "attention")), strict=True
        )
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.4 * PANEL[0], 1.4 + 0.24 * len(table)), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, tau in zip(panels, ("weighted", "plain"), strict=True):
            for column, (label, colour, marker) in NOISE.items():
                axes.plot(
                    table[f"{tau}_{column}"],
                    np.arange(len(table)),
                    linestyle="none",
                    marker=marker,
                    markersize=5,
                    color=colour,
                    label=label,
                )
            axes.axvline(0, color="#4a5058", linewidth=0.8)
            axes.set_xlim(-1.05, 1.05)
            axes.set_xlabel(_TAU[tau].capitalize())
        panels[0].set_yticks(range(len(table)), names, fontsize=7.5)
        panels[0].invert_yaxis()
        _legend(figure, panels[0], columns=4)
    return figure
