"""The page of a comparison: findings, tables of methods by measures, curves, agreement, texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastattnerase import saliency
from fastattnerase.extras import needs
from fastattnerase.plurals import plural
from fastattnerase.report import page
from fastattnerase.report.figures import save as save_figure
from fastattnerase.report.tables import save as save_table
from fastattnerase.statistics.shares import hardly_better, majority
from fastattnerase.studies.compare.figures import figures
from fastattnerase.studies.compare.findings import (
    GRIDS,
    MEASURES,
    Finding,
    First,
    findings,
    firsts,
)
from fastattnerase.studies.compare.options import LAYER, RANDOM, WORDS
from fastattnerase.studies.compare.summary import HUMAN, by_measure
from fastattnerase.studies.compare.texts import shown_texts
from fastattnerase.studies.compare.units import Compare

with needs("report"):
    import pandas as pd

PAGE = "compare.html"
_FAMILIES = {RANDOM: "control", "attention": "attention layer"}  # where a name says more
_HEADINGS = {
    WORDS: "Words erased at the input",
    LAYER: "{items} erased at the attention layer",
    HUMAN: "Against the words that people marked",
}
_NOTES = {
    WORDS: "The text without the words is encoded and attended to anew. Nothing exact is known "
    "about the smallest set of words that flips a decision here.",
    LAYER: "Nothing is encoded again: the attention layer averages what is left.",
    HUMAN: "How well a method finds the words by which people explained the label of a text.",
}
_GROWN = 1000
_FLIPS = (
    "A decision that never flips counts as all erased, in the share erased at the first flip; it "
    "has no value where items are divided by the smallest set."
)


def build(work: Compare, folder: Path) -> tuple[Path, list[Finding]]:
    """Write the page, with its tables and figures as files beside it.

    Args:
        work: a comparison all of whose steps are done.
        folder: where to: `compare.html`, `figures/*.{png,svg,pdf}`, `tables/*.{csv,tex}`.

    Returns:
        The page's path, and the findings on it.
    """
    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for path in (folder / part).iterdir():  # of an earlier report
            path.unlink()
    means, pairs, agreement = (work.summary(name) for name in ("means", "pairs", "agreement"))
    first = firsts(means, pairs)
    found = findings(first, agreement)
    frames = {
        "means": means,
        "pairs": pairs,
        "agreement": agreement,
        "firsts": _first_table(first),
        "checks": check_table(work),
        "findings": pd.DataFrame([vars(one) for one in found]),
    }
    if work.subject.marked:
        frames["f1"] = work.summary("f1")
    for name, frame in frames.items():
        save_table(frame, folder / "tables" / name)
    drawn = []
    for one in figures(work, agreement):
        save_figure(one.figure, folder / "figures" / one.name)
        picture = page.embedded(folder / "figures" / f"{one.name}.png")
        drawn.append({"caption": one.caption, "picture": picture, "name": one.name})
    path = page.write(
        folder / PAGE,
        "fastattnerase.studies.compare",
        "compare.html.j2",
        title=work.name,
        subject=work.subject,
        premises=premises(work),
        findings=found,
        tables=_tables(work, means, first),
        downloads=[
            (name, page.embedded(folder / "tables" / f"{name}.csv"))
            for name in ("means", "pairs", "agreement", "firsts", "checks")
        ],
        figures=drawn,
        texts=shown_texts(work),
        methods=[(name, _family(name), saliency.find_method(name)) for name in work.methods],
        checks=_checks(frames["checks"]),
        options=[
            (name.replace("_", " "), ", ".join(map(str, v)) if isinstance(v, tuple) else str(v))
            for name, v in (vars(work.options) | work.subject.choices).items()
        ],
        by_sentences=not work.flat,
    )
    return path, found


def premises(work: Compare) -> list[str]:
    """Say what speaks against reading anything from the numbers; it stands first."""
    told = []
    instances = work.instances()
    known = instances[instances["label"] >= 0]
    if len(known):
        accuracy = float((known["label"] == known["decision"]).mean())
        chance = majority(known["label"].to_numpy())
        beside = "" if chance is None else f", the most frequent class {chance:.3f}"
        told.append(
            f"The model is right about {accuracy:.3f} of {len(known):,} "
            f"{plural(len(known), 'label')}{beside}."
        )
        if hardly_better(accuracy, chance):
            told.append(
                "That is hardly better than deciding the most frequent class always, so there is "
                "little that any method could explain."
            )
    if work.subject.spans_cut or work.subject.spans_unfit:
        told.append(
            f"Of the marked spans {work.subject.spans_cut:,} lost words where documents were cut, "
            f"and {work.subject.spans_unfit:,} do not fit the words."
        )
    return told + _residual(work) + _grown_relevance(work)


def _residual(work: Compare) -> list[str]:
    """Say of a transformer what erasing in its last layer leaves, and how much that is."""
    if work.subject.transformer is None:
        return []
    instances, _ = work.layer_tables()
    same = int((instances["decision"] == instances["nothing"]).sum())
    share = f" ({100 * same / len(instances):.1f}\u00a0%)" if len(instances) else ""
    return [
        "At the attention layer words are erased from a transformer’s last layer: its residual "
        "keeps the classifying position’s own state, which earlier layers have filled from all "
        "words, and special tokens are never erased. Erasing every word there leaves "
        f"{same:,} of {len(instances):,} {plural(len(instances), 'decision')}{share} as they are."
    ]


def _grown_relevance(work: Compare) -> list[str]:
    """Say where relevance of both signs grew on its way through LRP and only its sum is left.

    Stated where `Σ|R|` of the words is above `_GROWN` in at least 5 % of the documents: an output
    of 10 is a probability of 1 already.
    """
    if "lrp" not in work.methods:
        return []
    sizes = np.array([np.abs(scores).sum() for scores in work.scores("lrp")])  # [N]
    share = float((sizes > _GROWN).mean())
    if share < 0.05:
        return []
    return [
        f"LRP's relevance of words adds up without signs to more than {_GROWN:,} in {share:.0%} of "
        f"the documents (median {np.median(sizes):.1e}, at most {sizes.max():.1e}), far above any "
        "output: both signs grew layer by layer and cancel, so that LRP's numbers say little here."
    ]


def check_table(work: Compare) -> pd.DataFrame:
    """Count how well methods keep the rules of sums that they have."""
    rows = []
    for method, own in work.scored().items():
        delta = own["delta"].abs().to_numpy()
        if method == "integrated_gradients":  # whose error is no share; `Σ − δ` is what they sum to
            sums = np.array([scores.sum() for scores in work.scores(method)])
            whole = np.abs(sums - own["delta"].to_numpy())
            delta = np.divide(delta, whole, out=np.zeros_like(delta), where=whole > 0)
        delta = delta[~np.isnan(delta)]
        if len(delta):
            rows.append(
                {
                    "method": method,
                    "documents": len(delta),
                    "median": float(np.median(delta)),
                    "q95": float(np.quantile(delta, 0.95)),
                    "largest": float(delta.max()),
                    "within_1e-3": float((delta <= 1e-3).mean()),
                }
            )
    columns = ["method", "documents", "median", "q95", "largest", "within_1e-3"]
    return pd.DataFrame(rows, columns=columns)


def _checks(table: pd.DataFrame) -> list[str]:
    """Write the checks in sentences."""
    rules = {
        "integrated_gradients": "The sum of integrated gradients against the difference that they "
        "have to add up to, as a share of it",
        "lrp": "The relevance that LRP passes down against what it started from, as a share",
    }
    return [
        f"{rules[row['method']]}: median error {row['median']:.1e}, 95 % of the documents below "
        f"{row['q95']:.1e}, {row['within_1e-3']:.1%} of them below 1e-3, at most "
        f"{row['largest']:.1e}"
        for row in table.to_dict("records")
        if row["method"] in rules
    ]


def _first_table(first: list[First]) -> pd.DataFrame:
    """Write which method comes first as a table."""
    return pd.DataFrame([vars(one) | {"beside": " ".join(one.beside)} for one in first])


def _tables(work: Compare, means: pd.DataFrame, first: list[First]) -> list[dict[str, Any]]:
    """Lay out a table for each level: methods by measures."""
    alone = {(one.level, one.measure, one.grid): one.best for one in first if one.alone}
    found = []
    for level, heading in _HEADINGS.items():
        cells = {key: rows for key, rows in by_measure(means).items() if key[0] == level}
        if not cells:
            continue
        notes = [_NOTES[level]]
        if level == LAYER or "every" in work.options.grids:
            notes += [_FLIPS] if level != HUMAN else []
        reasons = [
            f"{MEASURES[key[1]]}{f', {GRIDS[key[2]]}' if key[2] else ''}: {_undefined(rows)}"
            for key, rows in cells.items()
            if (rows["reasons"] != "").any()
        ]
        found.append(
            {
                "id": level.replace(" ", "-"),
                "title": heading.format(items=work.subject.items.capitalize()),
                "note": " ".join(notes),
                # Those that read shares of the items, and the others: else a page is too narrow.
                "parts": [
                    _part({key: cells[key] for key in keys}, alone)
                    for keys in ([k for k in cells if k[2]], [k for k in cells if not k[2]])
                    if keys
                ],
                "reasons": reasons,
                "sentences": level == LAYER and not work.flat,
            }
        )
    return found


def _part(
    cells: dict[tuple[str, str, str], pd.DataFrame], alone: dict[tuple[str, str, str], str]
) -> dict[str, Any]:
    """Lay out some measures: a line for each method."""
    columns = {key: rows.set_index("method") for key, rows in cells.items()}
    return {
        "head": [
            (MEASURES[key[1]], GRIDS.get(key[2], ""), rows["better"].iloc[0])
            for key, rows in cells.items()
        ],
        "lines": [
            {
                "method": method,
                "family": _family(str(method)),
                "cells": [
                    _cell(rows.loc[method], bold=alone.get(key) == method)
                    for key, rows in columns.items()
                ],
            }
            for method in next(iter(columns.values())).index
        ],
    }


def _family(method: str) -> str:
    """Say what a method's scores say."""
    found = method if method == RANDOM else saliency.find_method(method).family
    return _FAMILIES.get(found, found)


def _cell(own: Any, *, bold: bool) -> dict[str, Any]:
    """Write a mean with its interval."""
    if pd.isna(own["mean"]):
        return {"mean": "–", "interval": "", "bold": False}
    return {
        "mean": _number(own["mean"]),
        "interval": f"{_number(own['low'])} to {_number(own['high'])}",
        "bold": bold,
    }


def _number(value: float) -> str:
    """Write a number with a minus sign; nothing is minus zero.

    Example:
        >>> _number(-0.25), _number(-0.0001)
        ('−0.250', '0.000')
    """
    text = f"{value:.3f}".replace("-", "−")
    return text.lstrip("−") if float(f"{value:.3f}") == 0 else text


def _undefined(rows: pd.DataFrame) -> str:
    """Say of which methods documents have no value, and why."""
    same: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        if row["reasons"]:
            same.setdefault(row["reasons"], []).append(row["method"])
    if len(same) == 1 and len(rows) == len(next(iter(same.values()))):
        return next(iter(same))
    return "; ".join(f"{', '.join(methods)}: {why}" for why, methods in same.items())
