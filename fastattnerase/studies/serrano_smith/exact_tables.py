"""Tables of what exact erasure alone can say: for files, and short ones for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fastattnerase.extras import needs
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.statistics.two_level import spread
from fastattnerase.studies.serrano_smith.exact import OTHERWISE, PARTS, SAME, Exact, Number
from fastattnerase.studies.serrano_smith.instance_tables import PLACES
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.sentences import number, percent

with needs("report"):
    import pandas as pd

_FORMS: dict[str, Callable[[float], str]] = {
    "share": lambda value: percent(value, 1),
    "count": lambda value: number(value, 0),
    "number": lambda value: number(value, 3),
    "area": lambda value: f"{value:.3g}",  # it may be small
}
_OVER_SEEDS = {  # label: quantity and ranking
    "share of what attention erases that no order spares": ("unavoidable", "attention"),
    "share of attention’s flips that erasing more undoes": ("undone", "attention"),
    "share in which the item of most attention moves the output most": ("first", "attention"),
    "P(ΔJS < 0), exact": ("negative", "attention"),
    "area under JS, attention": ("js_area", "attention"),
    "area under the label’s probability, attention": ("label_prob_area", "attention"),
}
_SHOWN = ("random", "attention", "gradient", "product")


class Cell(NamedTuple):
    """A cell of a table on the page: a number, and its interval."""

    value: str
    interval: str


class Table(NamedTuple):
    """A table on the page: titles of its columns, and a row for each run."""

    titles: list[str]
    rows: list[tuple[str, list[Cell]]]


def exact_tables(results: Sequence[Result], said: Sequence[Exact]) -> dict[str, pd.DataFrame]:
    """Make the tables of the chapter.

    Args:
        results: finished runs.
        said: what was computed of each.

    Returns:
        By name: `exact_minimum`, `exact_lasting`, `exact_items`, `exact_skill` and `exact_curves`
        (areas), with a row for each number (`exact.describe`), `by` and `group` of instances: over
        all seeds with its interval (`all`, `all_low`, `all_high`), and its mean, standard deviation
        and ends over the seeds; and `exact_points`: means of curves over prefixes with intervals,
        and quartiles over the instances. Parts that no run has are left out.
    """
    rows: dict[str, list[dict[str, Any]]] = {f"exact_{part}": [] for part in PARTS}
    points: list[dict[str, Any]] = []
    for result, exact in zip(results, said, strict=True):
        model = {"model": result.run.name}
        for found in exact.numbers:
            rows[f"exact_{found.part}"].append(model | _row(found))
        for curve in exact.curves:
            for place, mean, q1, q3 in zip(PLACES, curve.means, curve.q1, curve.q3, strict=True):
                about = {"quantity": curve.quantity, "ranking": curve.ranking, "fraction": place}
                points.append(
                    model
                    | about
                    | {"mean": mean.value, "mean_low": mean.low, "mean_high": mean.high}
                    | {"q1": q1, "q3": q3}
                )
    made = rows | {"exact_points": points}
    return {name: pd.DataFrame(records) for name, records in made.items() if records}


def _row(found: Number) -> dict[str, Any]:
    estimate = found.estimate
    row = {
        "quantity": found.quantity,
        "ranking": found.ranking,
        "by": found.by,
        "group": found.group,
        "instances": found.instances,
        "all": estimate.value,
        "all_low": estimate.low,
        "all_high": estimate.high,
    }
    known = [value for value in found.values if value is not None]
    if len(found.values) > 1 and known:
        over = spread(known)
        row |= {"seeds": over.seeds, "mean": over.mean, "sd": over.sd}
        row |= {"least": over.least, "most": over.most}
        row["by_seed"] = " ".join("–" if v is None else f"{v:.4g}" for v in found.values)
    return row


def page_tables(
    results: Sequence[Result], said: Sequence[Exact], names: dict[str, str]
) -> dict[str, Table]:
    """Make the tables that the page shows, one for each part that some run has.

    Args:
        results: finished runs.
        said: what was computed of each.
        names: of rankings, as the page writes them.
    """
    columns: dict[str, list[tuple[str, str, str, str, str, str]]] = {
        # Title, quantity, ranking, by, group, form.
        "minimum": [
            ("Smallest set, median", "smallest_fraction", "minimal", "all", "", "share"),
            ("decided as the bias", "smallest_fraction", "minimal", "bias", SAME, "share"),
            ("decided otherwise", "smallest_fraction", "minimal", "bias", OTHERWISE, "share"),
            *(
                (f"No order spares, of {names[r].lower()}", "unavoidable", r, "all", "", "share")
                for r in _SHOWN
            ),
        ],
        "lasting": [
            *((f"Undone, {names[r].lower()}", "undone", r, "all", "", "share") for r in _SHOWN),
            *(
                (f"{when}, {names[r].lower()}", f"{which}_fraction", r, "all", "", "share")
                for r in ("attention", "gradient")
                for when, which in (("First change", "first"), ("Stays changed", "lasting"))
            ),
        ],
        "items": [
            (f"{title}, {names[r].lower()}", quantity, r, "all", "", form)
            for title, quantity, form in (
                ("Top item is first", "first", "share"),
                ("Median rank", "rank", "count"),
                ("P(ΔJS < 0)", "negative", "share"),
            )
            for r in ("attention", "gradient", "product")
        ],
        "skill": [
            ("Skill of attention", "skill", "attention", "all", "", "number"),
            ("decided as the bias", "skill", "attention", "bias", SAME, "number"),
            ("decided otherwise", "skill", "attention", "bias", OTHERWISE, "number"),
            ("Some set flips", "some_set_flips", "", "all", "", "share"),
            ("as the bias", "some_set_flips", "", "bias", SAME, "share"),
            ("otherwise", "some_set_flips", "", "bias", OTHERWISE, "share"),
        ],
        "curves": [
            (f"{title}, {names[r].lower()}", f"{quantity}_area", r, "all", "", "area")
            for title, quantity in (("JS", "js"), ("Probability", "label_prob"))
            for r in _SHOWN
        ],
    }
    made = {}
    for part, wanted in columns.items():
        rows = [
            (
                result.run.name,
                [_cell(exact.value(*about), form) for _, *about, form in wanted],
            )
            for result, exact in zip(results, said, strict=True)
            if any(found.part == part for found in exact.numbers)
        ]
        if rows:
            made[part] = Table([title for title, *_ in wanted], rows)
    return made


def seed_rows(exact: Exact) -> Iterator[dict[str, Any]]:
    """Yield numbers of a run that joins several seeds as rows of the page's table over seeds."""
    for label, (quantity, ranking) in _OVER_SEEDS.items():
        found = exact.find(quantity, ranking)
        known = [] if found is None else [value for value in found.values if value is not None]
        if found is not None and known:
            yield {"label": label, "estimate": found.estimate, "spread": spread(known)}


def _cell(estimate: Estimate, form: str) -> Cell:
    if estimate.value is None:
        return Cell("–", "")
    write = _FORMS[form]
    ends = [value for value in (estimate.low, estimate.high) if value is not None]
    return Cell(write(estimate.value), " to ".join(write(value) for value in ends))
