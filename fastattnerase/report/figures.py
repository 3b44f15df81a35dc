"""The style of figures, and figures as files and in pages."""

from __future__ import annotations

import functools
import io
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from fastattnerase.extras import needs

with needs("report"):
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.transforms import blended_transform_factory

FORMATS = ("png", "svg", "pdf")
PANEL = (4.0, 3.3)  # inches of one panel
_LETTER = 0.72  # width of a letter by its size: the bold b's, which few letters exceed
_MISSING = 1.6  # letters that a character takes which the font lacks

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
    "axes.titley": 1.0,  # nothing is above a panel that a title would have to avoid
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.8,
    "xtick.color": "#30353b",
    "ytick.color": "#30353b",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.dpi": 150,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "svg.hashsalt": "fastattnerase",  # the same results give the same bytes
}


def letters(inches: float, points: float) -> int:
    """Say how many letters of a size fit into a width, as `fitted` counts them."""
    return max(2, int(inches * 72 / (points * _LETTER)))


@functools.cache
def _breadth(character: str) -> float:
    """Give the width of a character in bold, in letters; narrow ones count as one."""
    font = get_font(findfont(FontProperties(family=STYLE["font.family"], weight="bold")))
    if not font.get_char_index(ord(character)):
        return _MISSING
    font.set_size(100, 72)
    return max(1.0, font.load_char(ord(character)).linearHoriAdvance / 65536 / 100 / _LETTER)


def fitted(name: str, width: int, lines: int = 3) -> str:
    """Write a name as a label: in lines, shortened in the middle where they do not hold it.

    Args:
        name: of a model or corpus; nothing in it is markup.
        width: letters of a line; a wide character counts for more than one.
        lines: at most.

    Returns:
        The label.

    Example:
        >>> fitted("costs 5$", 20), fitted("abcdefghij", 3)
        ('costs 5\\\\$', 'abc\\nd…\\nhij')
    """
    found, left = _wrapped(name, width), len(name)
    while len(found) > lines and left > 1:
        left -= 1
        found = _wrapped(f"{name[: -(-left // 2)]}…{name[len(name) - left // 2 :]}", width)
    return "\n".join(found).replace("$", r"\$")


def _wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of so many letters, at spaces where a word fits into a line."""
    found = [""]
    for word in text.split():
        room = width - sum(map(_breadth, f"{found[-1]} ")) if found[-1] else width
        if sum(map(_breadth, word)) <= room or sum(map(_breadth, word)) > width:
            begun = _begin(word, room)
            found[-1] += f" {begun}" if found[-1] and begun else begun
            word = word[len(begun) :]
        while word:
            found.append(_begin(word, width) or word[0])
            word = word[len(found[-1]) :]
    return found


def _begin(text: str, width: float) -> str:
    """Give the beginning of a text that is so many letters wide."""
    ends = itertools.accumulate(map(_breadth, text))
    return text[: sum(1 for _ in itertools.takewhile(lambda end: end <= width, ends))]


@contextmanager
def _styled(more: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Lay out or draw with the style, and further settings."""
    with mpl.rc_context(STYLE | dict(more or {})), warnings.catch_warnings():
        # A name in a script that the font lacks shows as boxes in files, and as text in the page.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def settle(figure: Figure) -> None:
    """Lay a figure out, once for all formats: what is drawn later stays where it is.

    The layout is most of what drawing a small figure takes, and matplotlib makes it anew for each
    file.
    """
    canvas: Any = FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    if engine is None:
        return
    with _styled():
        engine.execute(figure)
        figure.set_layout_engine(None)  # with one of any kind matplotlib draws each file twice
        for axes in figure.axes:
            axes.get_tightbbox(canvas.get_renderer())  # places labels where panels now are
            # In inches, for resolutions differ; a label that is placed looks for no ticks.
            x, y = axes.xaxis.label.get_position()
            below = blended_transform_factory(axes.transAxes, figure.dpi_scale_trans)
            axes.xaxis.set_label_coords(x, y / figure.dpi, transform=below)
            x, y = axes.yaxis.label.get_position()
            beside = blended_transform_factory(figure.dpi_scale_trans, axes.transAxes)
            axes.yaxis.set_label_coords(x / figure.dpi, y, transform=beside)


def place_legend(
    figure: Figure,
    handles: Sequence[Any],
    labels: Sequence[str],
    place: Literal["upper", "lower"],
    columns: int,
) -> None:
    """Put a legend outside of all panels, in as many columns as the figure is wide.

    Args:
        figure: the figure.
        handles: what is explained.
        labels: by what.
        place: above or below them.
        columns: at most.
    """
    loc: Any = f"outside {place} center"
    canvas: Any = FigureCanvasAgg(figure)
    with _styled():
        for number in range(min(columns, len(labels)), 0, -1):
            legend = figure.legend(handles, labels, loc=loc, ncols=number)
            width = legend.get_window_extent(canvas.get_renderer()).width
            if number == 1 or width <= figure.bbox.width:
                return
            legend.remove()


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
        place_legend(figure, [*found.values()], [*found], "lower", columns)


def save(figure: Figure, path: Path, kinds: Sequence[str] = FORMATS) -> None:
    """Write a figure as PNG, SVG and PDF, or some of them; `path` has no extension."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with _styled():
        settle(figure)
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
    settle(figure)
    with _styled({"svg.fonttype": "none"}):
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
