"""What is wrong with the layout of a figure: what is cut off, what lies on something else."""

from __future__ import annotations

import itertools

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from fastattnerase.report.figures import settle

_PIXEL = 1.0  # of rounding


def faults(figure: Figure) -> list[str]:
    """Draw nothing, lay the figure out, and say which of its parts are cut or overlap.

    Parts are each panel with its title, labels and ticks, and each legend of the figure. Panels on
    the same place (of two scales) may overlap.
    """
    settle(figure)
    renderer = figure.canvas.get_renderer()
    parts: list[tuple[str, Bbox, Axes | None]] = []
    for number, axes in enumerate(figure.axes):
        box = axes.get_tightbbox(renderer)
        if box is not None and axes.get_visible():
            parts.append((f"panel {number} {axes.get_title(loc='left')!r}", box, axes))
    parts += [("legend", legend.get_window_extent(renderer), None) for legend in figure.legends]
    found = []
    for name, box, _ in parts:
        beyond = {
            "left": -box.x0,
            "bottom": -box.y0,
            "right": box.x1 - figure.bbox.x1,
            "top": box.y1 - figure.bbox.y1,
        }
        cut = [f"{by:.0f} pixels {side}" for side, by in beyond.items() if by > _PIXEL]
        if cut:
            found.append(f"{name} is cut: {', '.join(cut)}")
    for (one, a, first), (other, b, second) in itertools.combinations(parts, 2):
        panels = [axes.get_position().bounds for axes in (first, second) if axes is not None]
        if len(panels) == 2 and panels[0] == panels[1]:
            continue
        width = min(a.x1, b.x1) - max(a.x0, b.x0)
        height = min(a.y1, b.y1) - max(a.y0, b.y0)
        if width > _PIXEL and height > _PIXEL:
            found.append(f"{one} lies on {other}: {width:.0f} by {height:.0f} pixels")
    return found
