"""Heat maps of a slide by the coordinates of its patches, with a set of patches marked."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastattnerase.extras import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # imported where they are used; hints that are read at run time say Any
    Figure = Any

_CELLS = 2_000  # of a map, a side: finer maps are drawn coarser
_SET = "smallest flipping set"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Scores of a slide's patches, where they lie.

    Attributes:
        slide_id: Name of the slide.
        coords: [n, 2]: x and y of the upper left corner of each patch.
        scores: From the name of each score to one number a patch, [n].
        marked: [n], bool: the patches of the smallest set whose erasure changes the decision.
        side: Side of a patch in the unit of the coordinates; 0 where it is the smallest step
            between coordinates.
    """

    slide_id: str
    coords: ArrayLike
    scores: Mapping[str, ArrayLike]
    marked: ArrayLike
    side: float = 0

    def __post_init__(self) -> None:
        xy = np.asarray(self.coords)
        n = len(xy)
        if xy.ndim != 2 or xy.shape[1] != 2 or not n:
            raise ValueError(f"coords: given {list(xy.shape)}, needed [n, 2] with n at least 1")
        object.__setattr__(self, "coords", xy)
        found = {name: np.asarray(given, dtype=np.float64) for name, given in self.scores.items()}
        object.__setattr__(self, "scores", found)
        object.__setattr__(self, "marked", np.asarray(self.marked, dtype=bool))
        for name, values in (*found.items(), ("marked", np.asarray(self.marked))):
            if values.shape != (n,):
                raise ValueError(f"{name}: given {list(values.shape)}, needed [{n}], one a patch")
        if not self.side:
            steps = [np.diff(np.unique(column)) for column in xy.T]
            steps = [step[step > 0].min() for step in steps if len(step)]
            object.__setattr__(self, "side", float(min(steps)) if steps else 1.0)

    def write_csv(self, path: Path) -> Path:
        """Write a row a patch: patch, x, y, each score, marked (0 or 1)."""
        xy, marked = np.asarray(self.coords), np.asarray(self.marked)
        columns = [np.asarray(values).tolist() for values in self.scores.values()]
        rows = zip(range(len(xy)), *xy.T.tolist(), *columns, marked.astype(int).tolist(),
                   strict=True)  # fmt: skip
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["patch", "x", "y", *self.scores, "marked"])
            writer.writerows(rows)
        return path

    def write_geojson(self, path: Path) -> Path:
        """Write a square a patch, with its scores, in the coordinates of the slide.

        A `FeatureCollection` that QuPath reads: `objectType` "detection", scores under
        `measurements`, and patches of the set in a class of their own.
        """
        xy, marked = np.asarray(self.coords), np.asarray(self.marked)
        names = list(self.scores)
        columns = [np.asarray(self.scores[name]) for name in names]
        with path.open("w", encoding="utf-8") as file:
            file.write('{"type": "FeatureCollection", "features": [')
            for i, (x, y) in enumerate(xy.tolist()):
                right, below = x + self.side, y + self.side
                ring = [[x, y], [right, y], [right, below], [x, below], [x, y]]
                about: dict[str, Any] = {
                    "objectType": "detection",
                    "patch": i,
                    "measurements": {
                        name: _number(column[i])
                        for name, column in zip(names, columns, strict=True)
                    },
                }
                if marked[i]:
                    about["classification"] = {"name": _SET, "color": [0, 0, 0]}
                feature = {
                    "type": "Feature",
                    "geometry": {"type": "Polygon", "coordinates": [ring]},
                    "properties": about,
                }
                file.write((",\n" if i else "\n") + json.dumps(feature, allow_nan=False))
            file.write("\n]}\n")
        return path

    def figure(self, name: str, title: str = "") -> Figure:
        """Draw a score by percentile within the slide, as the field does, the set outlined.

        Args:
            name: of the score.
            title: above it; by default the slide.
        """
        with needs("report"):
            from matplotlib.collections import LineCollection
            from matplotlib.figure import Figure

        cells, at = self.cells(percentiles(np.asarray(self.scores[name])))
        height, width = cells.shape
        ratio = min(max(height / width, 0.35), 1.6)
        figure = Figure(figsize=(4.6, 4.6 * ratio * 0.82 + 0.9), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(cells, cmap="viridis", vmin=0, vmax=100, interpolation="nearest")
        thick = 1.8 if max(height, width) <= 60 else 1.0
        edges = _borders(at[np.asarray(self.marked)], cells.shape)
        axes.add_collection(LineCollection(edges, colors="#e8000b", linewidths=thick))
        axes.set(xticks=[], yticks=[], title=title or self.slide_id)
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
        bar.set_label(f"{name.replace('_', ' ')}, percentile")
        return figure

    def write_png(self, path: Path, name: str) -> Path:
        """Draw a score as a PNG, as `figure` does."""
        with needs("report"):
            from fastattnerase.report.figures import save
        save(self.figure(name), path.with_suffix(""), ("png",))
        return path.with_suffix(".png")

    def cells(self, values: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """Lay out one number a patch on a grid of squares, the largest where several share one.

        Returns:
            The grid, NaN where no patch is, and the row and column of each patch, [n, 2].
        """
        xy = np.asarray(self.coords, dtype=np.float64)
        low = xy.min(0)
        side = max(self.side, float((xy.max(0) - low).max()) / _CELLS)
        at = np.floor((xy - low) / side + 1e-6).astype(np.int64)[:, ::-1]  # [n, 2], row and column
        grid = np.full(tuple(at.max(0) + 1), -np.inf)
        np.maximum.at(grid, (at[:, 0], at[:, 1]), np.where(np.isnan(values), -np.inf, values))
        return np.where(np.isinf(grid), np.nan, grid), at


def _borders(squares: NDArray[np.int64], shape: tuple[int, ...]) -> list[list[tuple[float, float]]]:
    """Outline squares of a grid [m, 2]: the edges that have one of them on one side alone."""
    inside = np.zeros((shape[0] + 2, shape[1] + 2), dtype=bool)
    inside[squares[:, 0] + 1, squares[:, 1] + 1] = True
    across = np.argwhere(inside[1:] != inside[:-1])  # an edge below row r - 1
    along = np.argwhere(inside[:, 1:] != inside[:, :-1])
    return [
        *([(c - 1.5, r - 0.5), (c - 0.5, r - 0.5)] for r, c in across.tolist()),
        *([(c - 0.5, r - 1.5), (c - 0.5, r - 0.5)] for r, c in along.tolist()),
    ]


def percentiles(values: Floats) -> Floats:
    """Give the share of the values, in percent, that are not above each; ties have the same.

    Example:
        >>> percentiles(np.array([0.1, 0.9, 0.1, 0.5])).tolist()
        [50.0, 100.0, 50.0, 75.0]
    """
    ascending = np.sort(values)
    return np.searchsorted(ascending, values, side="right") / len(values) * 100


def _number(value: float) -> float | None:
    """Give a number that JSON can hold."""
    return float(value) if np.isfinite(value) else None
