"""Pages: one HTML file each, which opens from disk and loads nothing from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastattnerase.extras import needs

with needs("report"):
    import jinja2

_KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".csv": "text/csv"}


def write(
    path: Path,
    package: str,
    template: str,
    filters: Mapping[str, Callable[..., str]] | None = None,
    **content: Any,
) -> Path:
    """Fill a study's template and write the page, as a whole or not at all.

    The template extends `base.html.j2`, which has the head, the style, light and dark, and the
    places of what a page says: blocks `title`, `style` (rules of this page alone), `heading`,
    `lead`, `sections` (links to the sections, which stay in sight), `main`, `footer` and `script`.
    Text is escaped; a name that the content lacks is an error. Pictures come in with `embedded`,
    so that the page can be sent as one file.

    Args:
        path: the page.
        package: of the study; its templates lie in its folder `templates`.
        template: the file.
        filters: functions for the template, by name.
        content: what the template shows.

    Returns:
        The path.

    Example:
        >>> from fastattnerase.report import page
        >>> page.write(Path("out/report.html"), "fastattnerase.studies.wen", "wen.html.j2",
        ...            claims=[])  # doctest: +SKIP
    """
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package), jinja2.PackageLoader("fastattnerase.report")]
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters or {}
    text = environment.get_template(template).render(**content)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path


def embedded(path: Path) -> str:
    """Give a file as an address that holds it, for `src`, or for `href` together with `download`.

    Args:
        path: a PNG, SVG or CSV.

    Returns:
        A `data:` address.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as tmp:
        ...     path = Path(tmp) / "table.csv"
        ...     _ = path.write_text("a")
        ...     embedded(path)
        'data:text/csv;base64,YQ=='
    """
    return f"data:{_KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
