"""Figures 1 to 8 of the paper, drawn from the study's tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastattnerase.attention_tests.bins import BINS, bin_of
from fastattnerase.extras import needs
from fastattnerase.report.figures import PANEL, STYLE, fitted, letters, place_legend
from fastattnerase.studies.jain_wallace.tables import ALL, Found, Tables
from fastattnerase.studies.pages import Drawn, draw_violin

with needs("report"):
    import matplotlib as mpl
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

# Okabe and Ito's colours, which any colour vision can distinguish: of predicted classes, in order.
COLOURS = ("#0072b2", "#d98200", "#009e73")
ENCODERS = {"bilstm": "BiLSTM", "cnn": "CNN", "mlp": "MLP"}
ENCODER_COLOURS = {"bilstm": "#0072b2", "cnn": "#d98200", "mlp": "#009e73"}
_TITLE = letters(PANEL[0] - 0.6, 10.5)
_GREY = "#8a8f98"
_LINE = 88  # letters of a line of a document

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Review:
    """A document with its attention and an adversary's, for Figure 1.

    Attributes:
        tokens: Its words.
        weights: `[n]`, the model's attention.
        adversary: `[n]`, the adversary's.
        probability: Of the predicted class, under the model's attention.
        moved: How far the adversary moves the output.
        divergence: Jensen-Shannon divergence of the two attentions.
        predicted: Name of the predicted class.
        title: Which model on which data.
    """

    tokens: list[str]
    weights: Floats
    adversary: Floats
    probability: float
    moved: float
    divergence: float
    predicted: str
    title: str


def figures(tables: Tables, review: Review | None) -> Iterator[Drawn]:
    """Draw the figures of the first seed.

    Args:
        tables: of `tables.collect`.
        review: for Figure 1; None where no document has an adversary.

    Yields:
        The figures; those of single models for every encoder and attention.
    """
    if review is not None:
        yield Drawn(
            "figure-1",
            f"Figure 1: a text with the model’s attention and with adversarial attention, and "
            f"nearly the same output ({review.title}).",
            _review(review),
        )
    seed = min(one.cell.seed for one in tables.found)
    first = [one for one in tables.found if one.cell.seed == seed]
    for attention in dict.fromkeys(one.cell.attention for one in first):
        own = [one for one in first if one.cell.attention == attention]
        for number, pair, what in (
            (2, "attention_gradient", "gradient"),
            (5, "attention_loo", "leave-one-out"),
        ):
            yield Drawn(
                f"figure-{number}-{attention}",
                f"Figure {number}: tau of attention and {what} by predicted class, {attention} "
                "attention.",
                _histograms(tables, own, pair, f"Tau of attention and {what}"),
            )
        for number, other, what in (
            (3, "attention_loo", "leave-one-out"),
            (4, "attention_gradient", "gradient"),
        ):
            rows = tables.frame("comparisons")
            rows = rows[
                (rows["seed"] == seed) & (rows["attention"] == attention) & (rows["other"] == other)
            ]
            yield Drawn(
                f"figure-{number}-{attention}",
                f"Figure {number}: tau of gradient and leave-one-out less tau of attention and "
                f"{what}, mean and 95 % interval, {attention} attention. Right of 0, attention "
                "agrees less.",
                _differences(tables, rows),
            )
        for encoder in dict.fromkeys(one.cell.encoder for one in own):
            models = [one for one in own if one.cell.encoder == encoder]
            name = f"{ENCODERS[encoder]}, {attention} attention"
            yield Drawn(
                f"figure-6-{encoder}-{attention}",
                f"Figure 6: median output difference under permuted attention, by the largest "
                f"weight; {name}. Lines: quartiles.",
                _violins(tables, models, lambda one: (one.permuted, "median_tvd"),
                         "Median output difference", 1.0),
            )  # fmt: skip
            yield Drawn(
                f"figure-7-{encoder}-{attention}",
                f"Figure 7: largest divergence of attention with an output difference of at most "
                f".05, by predicted class; {name}.",
                _divergences(tables, models),
            )
            yield Drawn(
                f"figure-8-{encoder}-{attention}",
                f"Figure 8: the same by the largest weight; {name}. Lines: quartiles.",
                _violins(tables, models, lambda one: (one.adversaries, "jsd_code"),
                         "Largest divergence, nats", 0.7),
            )  # fmt: skip


def _grid(count: int, columns: int, height: float = PANEL[1]) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels in so many columns; those beyond `count` are empty."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(PANEL[0] * columns, height * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, panels[:count]


def _classes(found: Found, frame: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Give name, colour and rows of each predicted class, or of all where classes are many."""
    groups = list(found.groups(frame))
    if len(groups) == 1:
        return [(ALL, _GREY, frame)]
    return [(name, COLOURS[int(key)], rows) for key, name, rows in groups[:-1]]


def _explain(figure: Figure, panels: Sequence[Axes], models: Sequence[Found]) -> None:
    """Name the predicted classes: by their names where one data set is drawn, else by number."""
    names = {tuple(one.classes) for one in models if len(one.classes) <= len(COLOURS)}
    if not names:
        return
    most = max(len(classes) for classes in names)
    labels = [*names.pop()] if len(names) == 1 else [f"class {i}" for i in range(most)]
    patches = [Patch(color=colour) for colour in COLOURS[: len(labels)]]
    place_legend(figure, patches, [fitted(text, 30, 1) for text in labels], "upper", 3)


def _histograms(tables: Tables, models: Sequence[Found], pair: str, label: str) -> Figure:
    """Draw the distribution of a tau by predicted class, a row a data set, a column an encoder."""
    encoders = [name for name in ENCODERS if any(one.cell.encoder == name for one in models)]
    datasets = list(dict.fromkeys(one.cell.dataset for one in models))
    by = {(one.cell.dataset, one.cell.encoder): one for one in models}
    edges = np.linspace(-1, 1, 31).tolist()
    with mpl.rc_context(STYLE):
        figure, panels = _grid(len(encoders) * len(datasets), len(encoders), 2.0)
        places = [(dataset, encoder) for dataset in datasets for encoder in encoders]
        for axes, (dataset, encoder) in zip(panels, places, strict=True):
            one = by.get((dataset, encoder))
            if one is None:
                axes.set_axis_off()
                continue
            own = one.taus[one.taus["pair"] == pair]
            for _, colour, rows in _classes(one, own):
                values = rows["tau"].dropna().to_numpy(float)
                if len(values):
                    share = np.full(len(values), 1 / len(values))
                    axes.hist(values, edges, weights=share, color=colour, alpha=0.5)
            axes.axvline(0, color="#4a5058", linewidth=0.8)
            axes.set_xlim(-1, 1)
            axes.set_xticks([-1, -0.5, 0, 0.5, 1])
            axes.set_xlabel(label)
            axes.set_ylabel("Share")
            axes.set_title(fitted(f"{tables.titles[dataset]}: {ENCODERS[encoder]}", _TITLE, 2))
        _explain(figure, panels, models)
    return figure


def _differences(tables: Tables, rows: pd.DataFrame) -> Figure:
    """Draw mean differences with their intervals, a line a data set, a colour an encoder."""
    datasets = list(dict.fromkeys(rows["dataset"]))
    encoders = [name for name in ENCODERS if name in set(rows["encoder"])]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.6 * PANEL[0], 1.4 + 0.5 * len(datasets)), layout="constrained")
        axes = figure.subplots()
        for shift, encoder in enumerate(encoders):
            own = rows[rows["encoder"] == encoder].dropna(subset=["difference"])
            middle = own["difference"].to_numpy(float)
            # An interval of one document is unknown.
            reach = np.nan_to_num(own["high"].to_numpy(float) - middle)
            places = [datasets.index(name) + 0.2 * (shift - 1) for name in own["dataset"]]
            axes.errorbar(
                middle,
                places,
                xerr=reach,
                linestyle="none",
                marker="o",
                markersize=4.5,
                capsize=3,
                color=ENCODER_COLOURS[encoder],
                label=ENCODERS[encoder],
            )
        axes.axvline(0, color="#4a5058", linewidth=0.8)
        axes.set_yticks(
            range(len(datasets)), [fitted(tables.titles[name], 20, 2) for name in datasets]
        )
        axes.set_ylim(len(datasets) - 0.5, -0.5)
        axes.set_xlabel("Difference of taus")
        place_legend(figure, *axes.get_legend_handles_labels(), "upper", 3)
    return figure


def _violins(
    tables: Tables,
    models: Sequence[Found],
    chosen: Callable[[Found], tuple[pd.DataFrame, str]],
    label: str,
    limit: float,
) -> Figure:
    """Draw densities by the largest weight and predicted class, a panel a data set."""
    with mpl.rc_context(STYLE):
        figure, panels = _grid(len(models), 3)
        for axes, one in zip(panels, models, strict=True):
            frame, column = chosen(one)
            groups = _classes(one, frame)
            for number, (_, colour, rows) in enumerate(groups):
                place = bin_of(rows["largest_weight"].to_numpy(float))
                values = rows[column].to_numpy(float)
                width = 0.8 / len(groups)
                for which in range(len(BINS)):
                    at = which + width * (number - (len(groups) - 1) / 2)
                    draw_violin(axes, values[place == which], at, 0.9 * width, colour)
            axes.set_yticks(range(len(BINS)), BINS)
            axes.set_ylim(-0.5, len(BINS) - 0.5)
            axes.set_xlim(0, limit)
            axes.set_xlabel(label)
            axes.set_ylabel("Largest weight")
            axes.grid(False, axis="y")
            axes.set_title(fitted(tables.titles[one.cell.dataset], _TITLE, 2))
        _explain(figure, panels, models)
    return figure


def _divergences(tables: Tables, models: Sequence[Found]) -> Figure:
    """Draw the distribution of the largest divergence by predicted class, a panel a data set."""
    edges = np.linspace(0, 0.7, 41).tolist()
    with mpl.rc_context(STYLE):
        figure, panels = _grid(len(models), 3, 2.6)
        for axes, one in zip(panels, models, strict=True):
            for _, colour, rows in _classes(one, one.adversaries):
                values = rows["jsd_code"].to_numpy(float)
                if len(values):
                    share = np.full(len(values), 1 / len(values))
                    axes.hist(values, edges, weights=share, color=colour, alpha=0.5)
            axes.axvline(math.log(2), color="#4a5058", linewidth=0.8, linestyle=":")
            axes.set_xlim(0, 0.7)
            axes.set_xlabel("Largest divergence, nats")
            axes.set_ylabel("Share")
            axes.set_title(fitted(tables.titles[one.cell.dataset], _TITLE, 2))
        _explain(figure, panels, models)
    return figure


def _review(review: Review) -> Figure:
    """Draw the words of a document twice, each on a ground as dark as its weight."""
    lines: list[list[int]] = [[]]
    used = 0
    for number, token in enumerate(review.tokens):
        if lines[-1] and used + len(token) + 1 > _LINE:
            lines.append([])
            used = 0
        lines[-1].append(number)
        used += len(token) + 1
    height = 0.24 * len(lines) + 0.5
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.3 * PANEL[0], 2 * height), layout="constrained")
        panels = figure.subplots(2, 1)
        texts = (
            f"Attention: {review.predicted} with probability {review.probability:.3f}",
            f"Adversarial: output differs by {review.moved:.3f}, attention by "
            f"{review.divergence:.2f} nats",
        )
        for axes, weights, title in zip(
            panels, (review.weights, review.adversary), texts, strict=True
        ):
            axes.set(xlim=(0, _LINE + 1), ylim=(len(lines) - 0.4, -0.6), xticks=[], yticks=[])
            axes.grid(False)
            axes.spines[:].set_visible(False)
            axes.set_title(title.replace("$", r"\$"))
            strongest = max(float(weights.max()), 1e-12)
            for row, line in enumerate(lines):
                column = 0
                for number in line:
                    token = review.tokens[number]
                    axes.barh(
                        row,
                        len(token) + 0.6,
                        0.86,
                        column - 0.3,
                        color="#d55e00",
                        alpha=0.85 * float(weights[number]) / strongest,
                        linewidth=0,
                    )
                    axes.text(
                        column,
                        row,
                        token.replace("$", r"\$"),
                        fontsize=8.5,
                        family="DejaVu Sans Mono",
                        va="center",
                        clip_on=True,
                    )
                    column += len(token) + 1
    return figure
