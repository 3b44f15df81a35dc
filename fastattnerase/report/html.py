"""The report: one HTML file that opens from disk, with figures and tables as files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from fastattnerase.experiments.rundir import RunError
from fastattnerase.experiments.serrano_smith import SINGLE_RANKINGS, Result
from fastattnerase.report import figures, words
from fastattnerase.report.tables import tables

PAGE = "report.html"
_LABELS = {
    "fractions": "Box plots of the fraction of items erased at the first decision flip, a box for "
    "each ranking.",
    "divergences": "Scatter plot of the difference in output divergence against the difference in "
    "attention.",
    "gaps": "Cumulative distribution of items erased as a multiple of the smallest flipping set, "
    "a line for each ranking.",
}
_RANDOM_ITEM = {
    "different": "uniformly among the items but the top one",
    "uniform": "uniformly among all items, so that it can be the top one",
    "legacy": "as in the published code: among all items but the first, the top one included",
}
_EXCLUDED = {
    "empty": "without any item",
    "length_1": "with a single item: only one order exists",
    "non_finite": "with NaN or infinite values",
}


def build(results: Sequence[Result], folder: Path) -> Path:
    """Write a report on one run or several, side by side.

    Args:
        results: finished runs, with distinct names.
        folder: where to: `report.html`, `figures/*.{png,svg,pdf}` and `tables/*.csv`.

    Returns:
        The page's path.

    Raises:
        RunError: no runs, or two of one name.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.experiments import serrano_smith
        >>> from fastattnerase.report import build
        >>> build([serrano_smith.load(Path("run"))], Path("out"))  # doctest: +SKIP
    """
    names = [result.run["name"] for result in results]
    if not names:
        raise RunError("no runs to report on")
    if len(set(names)) < len(names):
        raise RunError(
            f"runs of a report need distinct names (erase --name), given: {', '.join(names)}"
        )
    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, draw in figures.FIGURES.items():
        figures.save(figures.side_by_side(draw, results), folder / "figures" / name)
    for name, table in tables(results).items():
        table.to_csv(folder / "tables" / f"{name}.csv", index=False)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fastattnerase.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "percent": words.percent,
        "number": words.number,
        "times": words.times,
    }
    page = environment.get_template("report.html.j2").render(
        models=[_model(result) for result in results],
        names=figures.NAMES,
        colours=figures.COLOURS,
        excluded=_EXCLUDED,
        random_item=_RANDOM_ITEM,
        single_rankings=SINGLE_RANKINGS,
        good=words.GOOD,
        fair=words.FAIR,
    )
    partial = folder / f"{PAGE}.partial"
    partial.write_text(page, encoding="utf-8")
    partial.replace(folder / PAGE)
    return folder / PAGE


def _model(result: Result) -> dict[str, Any]:
    name = result.run["name"]
    return {
        "name": name,
        "run": result.run,
        "counts": result.result["counts"],
        "multi": {record["ranking"]: record for record in result.result["multi"]},
        "single": {record["ranking"]: record for record in result.result["single"]},
        "verdict": words.verdict(result),
        "paragraphs": words.paragraphs(result),
        "figures": {
            # Labels come from this module and names are escaped: the markup is ours.
            figure: Markup(
                figures.inline(figures.panel(draw, result), f"{name}: {_LABELS[figure]}")
            )
            for figure, draw in figures.FIGURES.items()
        },
        "exhibits": [_exhibit(exhibit, result) for exhibit in result.result["exhibits"]],
        "settings": _flatten(
            {key: result.run[key] for key in ("config", "source", "versions", "machine")}
        ),
    }


def _exhibit(exhibit: dict[str, Any], result: Result) -> dict[str, Any]:
    classes = result.run["classes"]
    strongest = max(exhibit["weights"], default=0.0)
    erased, minimal = set(exhibit["erased"]), set(exhibit["minimal"])

    def name(label: int | None) -> str | None:
        return None if label is None or label < 0 else classes[label]

    return exhibit | {
        "gold_name": name(exhibit["gold"]),
        "label_name": name(exhibit["label"]),
        "flip_name": name(exhibit["flip_label"]),
        "spans": [
            {
                "text": text,
                "weight": weight,
                # Darkness of the background; 0.8 keeps black text readable on the darkest.
                "shade": round(0.8 * weight / strongest, 3) if strongest > 0 else 0.0,
                "erased": place in erased,
                "minimal": place in minimal,
            }
            for place, (text, weight) in enumerate(
                zip(exhibit["items"], exhibit["weights"], strict=True)
            )
        ],
    }


def _flatten(content: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, dict):
            rows += _flatten(value, f"{name} · ")
        elif value is not None:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            rows.append((name, shown))
    return rows
