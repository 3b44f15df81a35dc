"""What the reports of several studies share: folders, figures, tables and options of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.report import page
from fastattnerase.report.figures import save as save_figure

with needs("report"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 5  # values below which a group is drawn as points
_MANY = 8  # classes above which they are not named or counted one by one
_INCH = 115  # CSS pixels of an inch of a figure, where the page is wide enough
_WIDE = 6.5  # inches from which a figure is not made narrower than this on a phone, but scrolled


@dataclass(frozen=True)
class Drawn:
    """A figure of a report.

    Attributes:
        name: Of its files, without extension.
        caption: What it shows.
        figure: The figure.
    """

    name: str
    caption: str
    figure: Figure


class Titled(Protocol):
    """A table of a page: the name of its files, its title, and what a reader must know."""

    @property
    def name(self) -> str:
        """The name of its files, without extension."""

    @property
    def title(self) -> str:
        """The title above it."""

    @property
    def note(self) -> str:
        """The note below it; empty for none."""


def empty_folders(folder: Path) -> None:
    """Make the folders `figures` and `tables` of a report, without files of an earlier one."""
    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for path in (folder / part).iterdir():
            path.unlink()


def picture(folder: Path, name: str, caption: str) -> dict[str, str]:
    """Embed a figure of a report's folder, so that the page can be sent as one file."""
    return {"caption": caption, "picture": page.embedded(folder / "figures" / f"{name}.png")}


def save_drawn(folder: Path, figures: Iterable[Drawn]) -> list[tuple[Drawn, dict[str, str]]]:
    """Write each figure, and give it with what the page shows of it, and how wide that is."""
    found = []
    for one in figures:
        inches = float(one.figure.get_figwidth())
        save_figure(one.figure, folder / "figures" / one.name)
        style = f"width: {inches * _INCH:.0f}px; max-width: 100%"
        if inches > _WIDE:
            style = f"width: {inches * _INCH:.0f}px; max-width: max(100%, {_WIDE * _INCH:.0f}px)"
        found.append((one, picture(folder, one.name, one.caption) | {"style": style}))
    return found


def table(
    folder: Path, about: Titled, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Give a table as the page shows it; its CSV is in the report's folder and in the page."""
    return {
        "name": about.name,
        "title": about.title,
        "note": about.note,
        "head": list(head),
        "rows": rows,
        "csv": page.embedded(folder / "tables" / f"{about.name}.csv"),
    }


def by_class(text: str, between: str) -> str:
    """Write names of classes, or numbers of their documents, as they are; many in short.

    Args:
        text: the names, or the numbers, which may have commas for thousands.
        between: what stands between two of them.

    Example:
        >>> by_class("3,034 / 3,321", " / "), by_class("/".join("123456789"), "/")
        ('3,034 / 3,321', '45 in all')
        >>> by_class("/".join("abcdefghi"), "/")
        '9 classes'
    """
    parts = [part.replace(",", "") for part in text.split(between)]
    if len(parts) <= _MANY:
        return text
    if all(part.isdecimal() for part in parts):
        return f"{sum(map(int, parts)):,} in all"
    return f"{len(parts)} classes"


def options(given: Any, width: str = "that of the word vectors") -> list[tuple[str, str]]:
    """Name every option with its value; of word vectors the file's name.

    Args:
        given: the record of options.
        width: what stands for the width of embeddings where there are word vectors.
    """
    values = dict(vars(given))
    if values["vectors"] is not None:
        values["vectors"] = Path(values["vectors"]).name
        values["embedding_size"] = width
    return [
        (name.replace("_", " "), ", ".join(map(str, v)) if isinstance(v, tuple) else str(v))
        for name, v in values.items()
    ]


def draw_violin(
    axes: Axes, values: NDArray[np.float64], place: float, width: float, colour: str
) -> None:
    """Draw a lying density with quartiles, and points where values are few or all the same."""
    if len(values) < FEW or float(np.ptp(values)) < 1e-9:
        axes.plot(
            values, np.full(len(values), place), linestyle="none", marker="o", markersize=2.5,
            color=colour,
        )  # fmt: skip
        return
    parts = axes.violinplot(
        values, [place], orientation="horizontal", widths=width, showextrema=False
    )
    for body in parts["bodies"]:  # type: ignore[attr-defined]  # a list, by matplotlib's pages
        body.set(facecolor=colour, edgecolor=colour, alpha=0.45)
    quartiles = np.quantile(values, [0.25, 0.5, 0.75])
    axes.vlines(quartiles, place - width / 3, place + width / 3, color=colour, linewidth=1.2)
