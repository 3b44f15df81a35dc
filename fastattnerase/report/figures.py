"""The style of figures, and figures as files and in pages."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastattnerase.extras import needs

with needs("report"):
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
PANEL = (4.0, 3.3)  # inches of one panel

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#4a5058",
    "axes.labelcolor": "#1b1f24",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.8,
    "xtick.color": "#30353b",
    "ytick.color": "#30353b",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.dpi": 150,
    "svg.hashsalt": "fastattnerase",  # the same results give the same bytes
}


def fitted(name: str, width: int, lines: int = 3) -> str:
    """Write a name as a label: in lines, shortened in the middle where they do not hold it.

    Args:
        name: of a model or corpus; nothing in it is markup.
        width: characters of a line.
        lines: at most, for a name without spaces.

    Returns:
        The label.

    Example:
        >>> fitted("costs 5$", 20), fitted("abcdefghij", 3)
        ('costs 5\\\\$', 'abc\\nd…g\\nhij')
    """
    most = width * lines
    if len(name) > most:
        name = f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"
    return "\n".join(textwrap.wrap(name, width)).replace("$", r"\$")


def add_legend(figure: Figure, columns: int) -> None:
    """Explain what the panels draw, once and below all of them: nothing is covered.

    A panel that has a legend of its own has numbers in it.
    """
    found: dict[str, Any] = {}
    for axes in figure.axes:
        if axes.get_legend() is None:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                found.setdefault(label, handle)
    if found:
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)


def save(figure: Figure, path: Path, kinds: Sequence[str] = FORMATS) -> None:
    """Write a figure as PNG, SVG and PDF, or some of them; `path` has no extension."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # A name in a script that the font lacks shows as boxes here, and as text in the page.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        FigureCanvasAgg(figure)
        for kind in kinds:
            figure.savefig(path.with_name(f"{path.name}.{kind}"), metadata=dates[kind])


def inline(figure: Figure, label: str) -> str:
    """Give a figure as an SVG element for a page: text stays text, the width is the page's.

    Args:
        figure: the figure.
        label: what it shows, for those who cannot see it.

    Returns:
        One `<svg>` element without a declaration or metadata.
    """
    buffer = io.StringIO()
    with mpl.rc_context(STYLE | {"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    escaped = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return re.sub(
        r'^<svg ([^>]*?)width="[^"]*" height="[^"]*"|^<svg ([^>]*?)height="[^"]*" width="[^"]*"',
        lambda match: f'<svg role="img" aria-label="{escaped}" {match[1] or match[2]}',
        text,
        count=1,
    )
