"""Records in JSON files: what fits is read, what does not is named with its place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import RunError

PATH = Path("point.json")


@dataclass(frozen=True)
class Point:
    x: float
    y: float | None = None

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError(f"x: given {self.x}, needed 0 or more")


@dataclass(frozen=True)
class Drawing:
    name: str
    kind: Literal["line", "area"]
    closed: bool
    points: tuple[Point, ...]
    named: dict[str, Point] = field(default_factory=dict)
    best: Point | None = None
    about: dict[str, Any] = field(default_factory=dict)


CONTENT = {
    "name": "a",
    "kind": "line",
    "closed": False,
    "points": [{"x": 1.0, "y": None}, {"x": 2.5, "y": -1.0}],
    "named": {"first": {"x": 1.0, "y": 2.0}},
    "best": None,
    "about": {"any": [1, {"thing": None}]},
}


def test_what_is_written_is_read_again() -> None:
    drawing = read_record(Drawing, CONTENT, PATH)
    assert drawing.points == (Point(1.0), Point(2.5, -1.0))
    assert drawing.named == {"first": Point(1.0, 2.0)}
    assert to_json(drawing) == CONTENT
    assert read_record(Drawing, json.loads(json.dumps(to_json(drawing))), PATH) == drawing


def test_keys_of_a_later_version_are_passed_over_and_defaults_taken() -> None:
    few = {key: CONTENT[key] for key in ("name", "kind", "closed", "points")}
    drawing = read_record(Drawing, few | {"colour": "red"}, PATH)
    assert (drawing.named, drawing.best, drawing.about) == ({}, None, {})
    assert read_record(Point, {"x": 3}, PATH).x == 3  # a whole number is a number


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": 5}, "name is 5"),
        ({"name": None}, "name is None"),
        ({"kind": "dot"}, "kind is 'dot'"),
        ({"closed": 0}, "closed is 0"),
        ({"points": {}}, "points is {}"),
        ({"points": [{"x": 1.0}, {"x": True}]}, r"points\[1\]\.x is True"),
        ({"points": [3]}, r"points\[0\] is 3"),
        ({"points": [{}]}, "it lacks 'x'"),
        ({"named": {"first": []}}, r"named\.first is \[\]"),
        ({"best": "none"}, "best is 'none'"),
        ({"best": {"x": -1.0}}, "x: given -1.0, needed 0 or more"),
        ({"name": "x" * 99, "closed": "y" * 99}, "closed is 'y{59};"),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=rf"point\.json is damaged: {message}.*run again"):
        read_record(Drawing, CONTENT | changed, PATH)


def test_no_record_at_all() -> None:
    with pytest.raises(RunError, match=r"point\.json is damaged: it is \[\]; delete it"):
        read_record(Drawing, [], PATH)
