"""Figures of the tests: attention maps, divergence by bins of the largest weight, the trade-off."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fastattnerase.attention_tests.bins import BINS, bin_of
from fastattnerase.extras import needs
from fastattnerase.plurals import counted
from fastattnerase.report.figures import PANEL, STYLE, fitted, letters, place_legend
from fastattnerase.studies.pages import FEW, Drawn, draw_violin
from fastattnerase.studies.wiegreffe_pinter.cells import Cells
from fastattnerase.studies.wiegreffe_pinter.options import Cell
from fastattnerase.studies.wiegreffe_pinter.paper import strength
from fastattnerase.studies.wiegreffe_pinter.results import CellResult
from fastattnerase.studies.wiegreffe_pinter.tables import (
    Family,
    adversary_instances,
    seed_instances,
)

with needs("report"):
    import matplotlib as mpl
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which any colour vision can distinguish, by the decision.
_COLOURS = ("#0072b2", "#d98200", "#009e73", "#cc79a7")
_KINDS = {
    "seed": ("other seeds", "#0072b2", "o"),
    "uniform": ("uniform attention", "#1b1f24", "s"),
    "adversary": ("trained adversaries, by λ", "#d55e00", "^"),
}
_SHORT = (6, 24)  # words of a document whose maps can be read
_TITLE = letters(PANEL[0] + 0.6, 10.5)


def figures(workspace: Cells, of: Sequence[Family], titles: dict[str, str]) -> Iterator[Drawn]:
    """Draw every figure for which there are numbers.

    Args:
        workspace: the tests.
        of: base models with what is compared with them.
        titles: names of the data sets.

    Yields:
        The figures.
    """
    data = workspace.data()
    for family in of:
        base = family.base
        title = titles.get(base.dataset, base.dataset)
        suffix = f"{base.dataset}-{base.encoder}-{base.attention}"
        panels = _panels_of(workspace, family)
        if panels:
            yield Drawn(
                f"figure-3-{suffix}",
                f"Figure 3, {title}: divergence from the base model's attention, by the base "
                "model's largest weight and decision. Lines: quartiles; dots: groups of fewer than "
                f"{FEW} documents.",
                _divergences(panels, data[base.dataset].classes, title),
            )
        if len(family.results) > 1 and any(r.divergence for r in family.results.values()):
            yield Drawn(
                f"figure-5-{suffix}",
                f"Figure 5, {title}: how far outputs and attention are from the base model's, "
                "means over the test documents; full total variation distance, which the published "
                "code halves.",
                _trade_off(family, workspace.sought(base), title),
            )
        drawn = _maps(workspace, family, title)
        if drawn is not None:
            yield Drawn(
                f"figure-2-{suffix}",
                f"Figure 2, {title}: attention of the base model, of the trained adversary and of "
                "Jain & Wallace's on the short test document, decided alike, on which the first "
                "two differ most.",
                drawn,
            )


# --- Figure 3 ------------------------------------------------------------------------------------


def _panels_of(workspace: Cells, family: Family) -> dict[str, pd.DataFrame]:
    """Give the rows of each panel: the seeds, and the adversary of the published λ."""
    panels: dict[str, pd.DataFrame] = {}
    seeds = seed_instances(workspace, family)
    if not seeds.empty:
        panels[f"Median over {counted(len(family.of_kind('seed')), 'other seed')}"] = seeds
    found = workspace.sought(family.base)
    if found is not None:
        rows = workspace.instances(family.base).merge(found, on="document")
        panels["Jain & Wallace’s adversaries"] = rows.assign(bin=bin_of(rows["largest_weight"]))
    adversary = shown_adversary(family)
    if adversary is not None:
        rows = adversary_instances(workspace, family.base, adversary)
        panels[f"Trained adversary, λ = {adversary.strength:g}"] = rows
    return panels


def shown_adversary(family: Family) -> Cell | None:
    """Choose the adversary that figures show: the published λ, else the largest divergence.

    Of several it is the one that was trained longest; None where no adversary is finished.
    """
    found = family.of_kind("adversary")
    published = strength(family.base.dataset)
    own = [result for result in found if result.cell.strength == published]
    if own:
        return max(own, key=lambda result: result.max_epochs).cell
    known = [(r.divergence.attention_jsd, r.cell) for r in found if r.divergence is not None]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _divergences(panels: dict[str, pd.DataFrame], classes: Sequence[str], title: str) -> Figure:
    """Draw the distribution of the JSD in each bin of the largest weight, by decision."""
    width, height = PANEL[0] + 0.6, PANEL[1] + 0.6
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * len(panels), height), layout="constrained")
        for axes, (name, rows) in zip(
            figure.subplots(1, len(panels), squeeze=False).ravel(), panels.items(), strict=True
        ):
            decisions = sorted(rows["decision"].unique())
            shifts = 0.8 * (np.arange(len(decisions)) - (len(decisions) - 1) / 2) / len(decisions)
            for place in range(len(BINS)):
                for shift, decision in zip(shifts, decisions, strict=True):
                    own = rows[(rows["bin"] == place) & (rows["decision"] == decision)]
                    colour = _COLOURS[decision % len(_COLOURS)]
                    width = 0.72 / len(decisions)
                    draw_violin(axes, own["jsd"].to_numpy(float), place + shift, width, colour)
            for decision in decisions:
                colour = _COLOURS[decision % len(_COLOURS)]
                axes.plot([], [], color=colour, linewidth=6, alpha=0.45,
                          label=f"decided {fitted(classes[decision], 20, lines=1)}")  # fmt: skip
            axes.set_yticks(range(len(BINS)), BINS)
            axes.set_ylim(-0.6, len(BINS) - 0.4)
            axes.set_xlim(0, math.log(2) * 1.02)
            axes.set_xlabel("Jensen-Shannon divergence, nats")
            axes.set_ylabel("Largest weight")
            axes.set_title(fitted(f"{title}: {name}", _TITLE))
        handles, labels = figure.axes[0].get_legend_handles_labels()
        place_legend(figure, handles, labels, "lower", 2)
    return figure


# --- Figure 5 ------------------------------------------------------------------------------------


def _trade_off(family: Family, sought: pd.DataFrame | None, title: str) -> Figure:
    """Draw every model's output difference against its attention's divergence."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PANEL[0] + 1.6, PANEL[1] + 0.6), layout="constrained")
        axes = figure.subplots()
        for kind, (label, colour, marker) in _KINDS.items():
            found = [result for result in family.of_kind(kind) if result.divergence is not None]
            for epochs in sorted({result.max_epochs for result in found}):
                own = [result for result in found if result.max_epochs == epochs]
                points = [
                    (r.divergence.attention_jsd, r.divergence.tvd)
                    for r in own
                    if r.divergence is not None
                ]
                several = kind == "adversary"
                axes.plot(
                    *zip(*points, strict=True),
                    linestyle="-" if several and len(own) > 2 else "none",
                    linewidth=1.0,
                    marker=marker if epochs == min(r.max_epochs for r in found) else "v",
                    markersize=5.5,
                    color=colour,
                    alpha=0.85,
                    label=f"{label}, {counted(epochs, 'epoch')}" if several else label,
                )
                if several:
                    _name_ends(axes, own, points)
        if sought is not None:
            axes.plot(
                sought["jsd"].mean(), sought["tvd"].mean(), "D", color="#009e73", markersize=5.5,
                label="Jain & Wallace’s adversaries",
            )  # fmt: skip
        axes.axvline(math.log(2), color="#4a5058", linewidth=0.8, linestyle=(0, (4, 2)))
        axes.set_xlim(-0.02, math.log(2) + 0.03)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Divergence of attention (JSD, at most ln 2), nats")
        axes.set_ylabel("Difference of outputs (TVD)")
        axes.set_title(fitted(title, _TITLE))
        handles, labels = axes.get_legend_handles_labels()
        place_legend(figure, handles, labels, "lower", 2)
    return figure


def _name_ends(
    axes: Axes, results: Sequence[CellResult], points: Sequence[tuple[float, float]]
) -> None:
    """Write λ at the first and the last point of a curve."""
    for place in dict.fromkeys((0, len(results) - 1)):
        axes.annotate(
            f"{results[place].cell.strength:g}",
            points[place],
            xytext=(4, 5),
            textcoords="offset points",
            fontsize=8,
        )


# --- Figure 2 ------------------------------------------------------------------------------------


def _maps(workspace: Cells, family: Family, title: str) -> Figure | None:
    """Draw the attention of several models on one document; None without an adversary."""
    adversary = shown_adversary(family)
    if adversary is None:
        return None
    base, other = workspace.instances(family.base), workspace.instances(adversary)
    prepared, _ = workspace.load_data(family.base.dataset)
    words = {document.id: list(document.tokens) for document in prepared.test}
    lengths = np.array([len(words[key]) for key in base["document"]])
    alike = (base["decision"] == other["decision"]).to_numpy()
    short = (lengths >= _SHORT[0]) & (lengths <= _SHORT[1])
    if not (alike & short).any():
        short = lengths <= np.quantile(lengths, 0.1)
    if not (alike & short).any():
        return None
    place = int(np.where(alike & short, other["attention_jsd"].to_numpy(), -1.0).argmax())
    key = int(base["document"].iloc[place])
    shown = {"base model": family.base, "trained adversary": adversary}
    rows = {
        f"{name}\n{workspace.instances(cell)['probability'].iloc[place]:.2f}": (
            workspace.predictions(cell).weights[key].numpy()
        )
        for name, cell in shown.items()
    }
    found = workspace.sought(family.base)
    if found is not None and (found["document"] == key).any():
        moved = float(found.set_index("document")["tvd"].loc[key])
        rows[f"Jain & Wallace’s\n±{moved:.2f}"] = workspace.sought_weights(family.base)[key].numpy()
    return _heat(rows, words[key], title)


def _heat(rows: dict[str, np.ndarray], words: Sequence[str], title: str) -> Figure:
    """Draw weights as a row of cells a model, the words below."""
    labels = [fitted(word, 18, lines=1) for word in words]
    with mpl.rc_context(STYLE):
        width = max(5.0, 1.6 + 0.34 * len(words))
        figure = Figure(figsize=(width, 2.9), layout="constrained")
        axes = figure.subplots()
        axes.imshow(np.stack(list(rows.values())), aspect="auto", cmap="Blues", vmin=0)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_xticks(range(len(words)), labels, rotation=60, ha="right", fontsize=8)
        axes.grid(False)
        of_title = letters(width - 1.6, 10.5)
        axes.set_title(fitted(f"{title}: attention, and probability of class 1", of_title))
    return figure
