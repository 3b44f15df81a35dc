"""Figures of a comparison: curves of erasing and keeping, and how far methods agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.measures.areas import areas
from fastattnerase.report.figures import STYLE, place_legend
from fastattnerase.studies.compare.options import RANDOM, WORDS
from fastattnerase.studies.compare.summary import Curves, input_curves, layer_curves

if TYPE_CHECKING:
    from fastattnerase.studies.compare.units import Compare
else:  # imported where they are used; hints that are read at run time say Any
    Compare = Any

with needs("report"):
    import matplotlib as mpl
    import pandas as pd
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# A colour a family, Okabe and Ito's, and a dash a method in it.
LOOKS: dict[str, tuple[str, str]] = {
    "gradient_norm": ("#cc79a7", "-"),
    "gradient_x_input": ("#0072b2", "-"),
    "integrated_gradients": ("#0072b2", "--"),
    "lrp": ("#009e73", "-"),
    "occlusion": ("#d55e00", "-"),
    "omission": ("#d55e00", "--"),
    "attention": ("#1b1f24", "-"),
    "gradient": ("#1b1f24", "--"),
    "product": ("#1b1f24", ":"),
    RANDOM: ("#8a929c", "-."),
}
_OTHER = ("#6a3d9a", "-")  # a method of somebody's own
_SHARES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)  # where a curve of ERASER's shares has points


@dataclass(frozen=True)
class Drawn:
    """A figure with its file name, without extension, and its caption."""

    name: str
    caption: str
    figure: Figure


def figures(work: Compare, agreement: pd.DataFrame) -> Iterator[Drawn]:
    """Draw every figure for which there are numbers.

    Args:
        work: the comparison.
        agreement: its table `agreement`.

    Yields:
        The figures.
    """
    lengths = work.documents.sizes.words
    every = "every" in work.options.grids
    if every or "eraser" in work.options.grids:
        grid = None if every else _SHARES
        drawn = _mean_curves(input_curves(work), lengths, grid, set(work.randoms))
        yield from _curve_figures(
            drawn, "words", "words", "at the input, the rest is encoded again"
        )
    instances, _ = work.layer_tables()
    drawn = _mean_curves(layer_curves(work), instances["items"].to_numpy(), None, set(work.randoms))
    yield from _curve_figures(drawn, "layer", work.subject.items, "at the attention layer")
    for level, own in agreement.groupby("level", sort=False):
        of = "words" if level == WORDS else "items of the attention layer"
        name = "agreement" if level == WORDS else "agreement-layer"
        yield Drawn(
            name,
            f"Agreement of methods about {of}: mean over documents of Kendall’s tau-b.",
            _draw_agreement(own),
        )


def _mean_curves(
    curves: Iterator[tuple[str, Curves]],
    lengths: NDArray[np.int64],
    shares: tuple[float, ...] | None,
    randoms: set[str],
) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Average curves over documents with items: shares, erased and kept, by ranking."""
    bounds = np.concatenate([[0], np.cumsum(lengths + 1)])  # [N + 1]
    some = np.flatnonzero(lengths)  # a document without items has no share
    found: dict[str, tuple[Floats, Floats, Floats]] = {}
    drawn: list[tuple[Floats, Floats, Floats]] = []
    for name, own in curves:
        if shares is None:
            pieces = [slice(bounds[n], bounds[n + 1]) for n in some]
            ends = np.concatenate([[0], np.cumsum(lengths[some] + 1)])
            means = [
                areas(np.concatenate([c[p] for p in pieces]), ends, points=41)
                for c in (own.erased, own.kept)
            ]
            points = means[0].grid, means[0].mean, means[1].mean
        else:
            at = np.array(shares)
            k = np.ceil(at * lengths[some, None] - 1e-9).astype(np.int64)  # [N, G]
            places = bounds[some, None] + k
            points = at, own.erased[places].mean(0), own.kept[places].mean(0)
        if name in randoms:
            drawn.append(points)
        else:
            found[name] = points
    if drawn:
        found[RANDOM] = (
            drawn[0][0],
            np.mean([points[1] for points in drawn], axis=0),
            np.mean([points[2] for points in drawn], axis=0),
        )
    return found


def _curve_figures(
    curves: dict[str, tuple[Floats, Floats, Floats]], name: str, items: str, where: str
) -> Iterator[Drawn]:
    """Draw erasing and keeping, a figure each, so that they stand above each other on a phone."""
    for place, verb, better in ((1, "erased", "lower"), (2, "kept", "higher")):
        yield Drawn(
            f"curves-{name}-{verb}",
            f"Mean probability of the explained class when the most important {items} are {verb} "
            f"{where}: {better} is better.",
            _draw_curves(curves, place, f"{items} {verb}, %"),
        )


def _draw_curves(
    curves: dict[str, tuple[Floats, Floats, Floats]], place: int, label: str
) -> Figure:
    """Draw a mean curve of each ranking."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 4.4), layout="constrained")
        axes = figure.subplots()
        for name, points in curves.items():
            colour, dash = LOOKS.get(name, _OTHER)
            marker = "o" if len(points[0]) < 20 else ""
            axes.plot(
                100 * points[0], points[place], dash, color=colour, label=name, marker=marker,
                markersize=3, linewidth=1.6,
            )  # fmt: skip
        axes.set_xlabel(label)
        axes.set_xlim(0, 100)
        axes.set_ylabel("mean probability")
        place_legend(figure, *axes.get_legend_handles_labels(), "lower", 3)
        return figure


def _draw_agreement(own: pd.DataFrame) -> Figure:
    """Draw a matrix of mean taus with its numbers."""
    names = list(dict.fromkeys([*own["method"], *own["other"]]))
    matrix = np.eye(len(names))
    rows: Any = own.to_dict("records")
    for row in rows:
        i, j = names.index(row["method"]), names.index(row["other"])
        matrix[i, j] = matrix[j, i] = np.nan if row["tau"] is None else row["tau"]
    with mpl.rc_context(STYLE | {"axes.grid": False}):
        size = 2.2 + 0.55 * len(names)
        figure = Figure(figsize=(size + 0.8, size), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(matrix, cmap="RdBu", vmin=-1, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        for i, line in enumerate(matrix):
            for j, tau in enumerate(line):
                text = "–" if np.isnan(tau) else f"{tau:.2f}".replace("0.", ".", 1)
                colour = "#ffffff" if abs(tau) > 0.6 else "#1b1f24"
                axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=8.5)
        figure.colorbar(image, ax=axes, label="mean tau-b", shrink=0.8)
        return figure
