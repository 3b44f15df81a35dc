"""Heat maps of documents: what attention weighs, and what erasing does, as HTML of plain data."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastattnerase.extras import needs

with needs("report"):
    import jinja2
    from markupsafe import Markup, escape

MINIMAL = "minimal"  # the ranking that begins with the smallest set, which is framed
_PLAIN = "random"  # a ranking that tells nothing of a document: it has a curve, but no bars
# Okabe and Ito's colours, told apart with any colour vision, and a dark violet.
_COLOURS = ("#0072b2", "#d98200", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#6a3d9a")
_WIDTH, _HEIGHT = 280, 110  # units of a curve's panel


@dataclass(frozen=True)
class Order:
    """A ranking of a document's items, and what erasing by it does.

    Attributes:
        ranking: its name; `minimal` begins with the smallest set.
        items: positions, the first erased first; as many as are known.
        first_flip: items erased when the decision first changes, -1 for never.
        flip_label: the decision there, -1 for never.
        decisions: the decision after erasing the first k items, k from 0 on; empty where unknown.
        label_probabilities: likewise, the probability of the original decision.
        decision_probabilities: likewise, the probability of the decision at k.
    """

    ranking: str
    items: tuple[int, ...]
    first_flip: int
    flip_label: int
    decisions: tuple[int, ...] = ()
    label_probabilities: tuple[float, ...] = ()
    decision_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class HeatMap:
    """A document with what is known of its items.

    Attributes:
        row: its number.
        items: the text of each item.
        weights: the attention of each item; sums to one.
        label: its decision, the number of the class.
        probability: of the decision; None where unknown.
        orders: rankings, in the order in which they are shown.
        gold: its label in the data; None where unknown.
        query: its second text, of a model that reads two; None without one.
    """

    row: int
    items: tuple[str, ...]
    weights: tuple[float, ...]
    label: int
    probability: float | None
    orders: tuple[Order, ...]
    gold: int | None = None
    query: str | None = None


@functools.cache
def _templates() -> jinja2.Environment:
    """Make what reads the templates, once: compiling them takes longer than filling them."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("fastattnerase.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["breakable"] = _breakable
    return templates


def _breakable(name: str) -> Markup:
    """Let a name that is too long for a line break after `_`, `:` and `.`, and not in a word."""
    return Markup(re.sub("([_:.])", r"\1<wbr>", str(escape(name))))


def render(
    maps: Sequence[HeatMap],
    classes: Sequence[str],
    *,
    looks: Mapping[str, tuple[str, str]] | None = None,
    sentences: bool = False,
    a_page: int = 6,
    most_bytes: int | None = None,
    assets: bool = True,
) -> str:
    """Draw documents as HTML that needs nothing else, and no script but to search and slide.

    The background of an item is its attention, from 0 to the largest weight of the document. The
    bars under it are rankings: one that erases the item before the decision changes has a bar, the
    stronger, the earlier. The smallest set is framed. The curves are the probability of the
    original decision over the fraction of items that is erased.

    Args:
        maps: the documents.
        classes: names of the classes.
        looks: from a ranking to its title and its colour as `#rrggbb`; others have their own name.
        sentences: whether items are sentences, a line each.
        a_page: documents shown at a time.
        most_bytes: of the documents' HTML; those beyond are left out, which is said. None: all.
        assets: whether style and script come with it; a page that has several takes them once,
            from the templates `heatmap.css` and `heatmap.js`.

    Returns:
        The HTML, in which every text is escaped.

    Example:
        >>> from fastattnerase.report.heatmap import HeatMap, Order, render
        >>> order = Order("attention", (1, 0), first_flip=1, flip_label=0)
        >>> shown = HeatMap(0, ("a", "<good>"), (0.2, 0.8), 1, 0.9, (order,))
        >>> "&lt;good&gt;" in render([shown], ["bad", "good"])
        True
    """
    found = dict.fromkeys(order.ranking for one in maps for order in one.orders)
    colours = itertools.cycle(_COLOURS)
    shown = {name: (looks or {}).get(name) or (name, next(colours)) for name in found}
    bars = [name for name in found if name not in (MINIMAL, _PLAIN)]
    template = _templates().get_template("heatmap-document.html.j2")
    documents: list[Markup] = []
    size = 0
    for one in maps:
        # A template escapes what it is given: its result is markup.
        text = Markup(template.render(d=_view(one, classes, shown, bars)))
        size += len(text.encode())
        if most_bytes is not None and size > most_bytes:
            break
        documents.append(text)
    return (
        _templates()
        .get_template("heatmap.html.j2")
        .render(
            documents=documents,
            kept=len(maps),
            bars=[{"name": shown[name][0], "colour": _triple(shown[name][1])} for name in bars],
            first=bars[0] if bars else "",
            minimal=MINIMAL in found,
            curves=any(order.label_probabilities for one in maps for order in one.orders),
            sentences=sentences,
            a_page=a_page,
            assets=assets,
        )
    )


def _view(
    one: HeatMap,
    classes: Sequence[str],
    looks: Mapping[str, tuple[str, str]],
    bars: Sequence[str],
) -> dict[str, Any]:
    """Say what the template shows of a document."""
    orders = {order.ranking: order for order in one.orders}
    first = next((orders[name] for name in bars if name in orders), None)
    smallest = orders.get(MINIMAL)
    strongest = max(one.weights, default=0.0)
    styles = [[f"--w:{_short(weight / strongest)}"] if weight > 0 else [] for weight in one.weights]
    for number, name in enumerate(bars, start=1):
        if name in orders:
            for place, item in enumerate(_erased(orders[name])):
                strength = 1 - 0.8 * place / len(_erased(orders[name]))
                styles[item].append(f"--s{number}:{_short(strength)}")
    gone = set(_erased(first)) if first and first.first_flip > 0 else set()
    framed = set(_erased(smallest)) if smallest and smallest.first_flip > 0 else set()
    return {
        "row": one.row,
        "label": _class(classes, one.label),
        "gold": None if one.gold is None else _class(classes, one.gold),
        "probability": one.probability,
        "query": one.query,
        "first": first and _told(first, one, classes, looks),
        "smallest": smallest and smallest.first_flip,
        "orders": [_told(order, one, classes, looks) for order in one.orders],
        "n": len(one.items),
        "strongest": strongest,
        "spans": [
            {
                "text": text,
                "style": ";".join(style),
                "weight": weight,
                "classes": " gone" * (place in gone) + " least" * (place in framed),
            }
            for place, (text, style, weight) in enumerate(
                zip(one.items, styles, one.weights, strict=True)
            )
        ],
        "curves": [
            {"path": _path(order.label_probabilities), "colour": looks[order.ranking][1],
             "minimal": order.ranking == MINIMAL, "plain": order.ranking == _PLAIN}
            for order in one.orders if order.label_probabilities
        ],
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": json.dumps(
            {
                "classes": [str(name) for name in classes],
                "label": one.label,
                "orders": [
                    [list(order.items), order.first_flip, order.flip_label, _changes(order),
                     [round(p, 3) for p in order.decision_probabilities]]
                    for order in one.orders
                ],
            },
            separators=(",", ":"),
        ),
    }  # fmt: skip


def _told(
    order: Order, one: HeatMap, classes: Sequence[str], looks: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """Say what erasing by a ranking does, for the row of a table and for a sentence."""
    flips = order.first_flip > 0
    after = order.decision_probabilities[order.first_flip :] if flips else ()
    return {
        "ranking": order.ranking,
        "name": looks[order.ranking][0],
        "colour": looks[order.ranking][1],
        "minimal": order.ranking == MINIMAL,
        "known": len(order.items),
        "first_flip": order.first_flip,
        "start": max(order.first_flip, 0),
        "after": _class(classes, order.flip_label) if flips else None,
        "probability": after[0] if after else None,
    }


def _erased(order: Order) -> tuple[int, ...]:
    """The items that are erased until the decision changes; all where it never does."""
    return order.items[: order.first_flip] if order.first_flip > 0 else order.items


def _changes(order: Order) -> list[tuple[int, int]]:
    """Where the decision changes: how many items are erased, and the decision from there on."""
    found: list[tuple[int, int]] = []
    for count, label in enumerate(order.decisions):
        if not found or found[-1][1] != label:
            found.append((count, label))
    return found


def _path(probabilities: Sequence[float]) -> str:
    """Draw probabilities as a path over the panel, from none erased to all."""
    steps = max(len(probabilities) - 1, 1)
    points = [
        (round(_WIDTH * place / steps, 1), round(_HEIGHT * (1 - p), 1))
        for place, p in enumerate(probabilities)
    ]
    return "M" + " ".join(f"{x:g},{y:g}" for x, y in points)


def _class(classes: Sequence[str], label: int) -> str:
    return str(classes[label])


def _short(share: float) -> str:
    return f"{share:.2f}".lstrip("0") or "0"


def _triple(colour: str) -> str:
    """Give `#rrggbb` as the three numbers that CSS takes together with an opacity."""
    return " ".join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))
