"""Explanations shown: heat maps in a notebook or a file, lines of text elsewhere."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastattnerase.explanation.course import Course
from fastattnerase.report.heatmap import MINIMAL, HeatMap, Order, render

if TYPE_CHECKING:
    from fastattnerase.explanation.records import Explanation, TextExplanation
else:  # imported where they are used; hints that are read at run time say Any
    Explanation = TextExplanation = Any

# Rankings that are no guess at importance: grey, and black for the optimum.
_LOOKS = {"random": ("random", "#8a8f98"), MINIMAL: ("smallest set", "#1b1f24")}


def fragment(explanation: Explanation) -> str:
    """Write explanations as HTML that needs nothing else: notes, then a heat map of each text.

    A text of which nothing is decided has its note alone.
    """
    notes = [
        f"<li>#{number}: {html.escape(note)}</li>"
        for number, text in enumerate(explanation)
        for note in text.notes
    ]
    maps = [
        _heat_map(number, text, explanation.classes)
        for number, text in enumerate(explanation)
        if text.decision is not None
    ]
    parts = [f"<ul>{''.join(notes)}</ul>"] if notes else []
    if maps:
        parts.append(
            render(maps, explanation.classes, looks=_LOOKS, sentences=explanation.sentences)
        )
    return "".join(parts)


def page(explanation: Explanation) -> str:
    """Write explanations as a whole HTML file."""
    title = "What erasing items does to the decisions"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title></head><body><h1>{title}</h1>{fragment(explanation)}</body></html>"
    )


def lines(explanation: Explanation) -> str:
    """Write explanations as lines of text, the smallest set in brackets."""
    written = []
    for number, text in enumerate(explanation):
        marked = [
            f"[{item}]" if chosen else item
            for item, chosen in zip(text.items, text.in_smallest, strict=True)
        ]
        written += [f"#{number} {text!r}", " ".join(marked), *text.notes]
    return "\n".join(line for line in written if line)


def _heat_map(number: int, text: TextExplanation, classes: Sequence[str]) -> HeatMap:
    label: dict[str | None, int] = {name: i for i, name in enumerate(classes)}

    def order(ranking: str, flip: int, decision: str | None, course: Course) -> Order:
        return Order(
            ranking,
            tuple(course.order.tolist()),
            flip,
            -1 if decision is None else label[decision],
            tuple(label[name] for name in course.decisions),
            tuple(course.curve.tolist()),
            tuple(course.decision_curve.tolist()),
        )

    orders = [
        order(
            ranking,
            flip.first,
            flip.decision,
            Course(
                text.orders[ranking],
                text.curves[ranking],
                text.decisions[ranking],
                text.decision_curves[ranking],
            ),
        )
        for ranking, flip in text.flips.items()
    ]
    if MINIMAL not in text.flips and text.smallest_first is not None:
        smallest = text.smallest
        size, other = (-1, None) if smallest is None else (len(smallest.items), smallest.decision)
        orders.append(order(MINIMAL, size, other, text.smallest_first))
    assert text.decision is not None  # others are not shown
    return HeatMap(
        number,
        text.items,
        tuple(text.weights.tolist()),
        label[text.decision],
        text.probability,
        tuple(orders),
        query=text.query,
    )
