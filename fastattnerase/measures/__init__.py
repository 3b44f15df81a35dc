"""Measures of how well a ranking explains decisions: plain functions, one file a measure.

`MEASURES` has them all by name; each says which way is better, its range, and what a random and the
best order have where that is known (`base.Measure`).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from fastattnerase.measures.base import Measure

MEASURES: dict[str, Measure[Any, Any]] = {}


def find(name: str) -> Measure[Any, Any]:
    """Find a measure by its name.

    Args:
        name: such as "comprehensiveness".

    Returns:
        The measure.

    Raises:
        ValueError: there is none of that name; the message has all.

    Example:
        >>> from fastattnerase import measures
        >>> measures.find("optimality_gap").better
        'lower'
    """
    if name not in MEASURES:
        raise ValueError(f"measure: given {name!r}, needed one of {', '.join(sorted(MEASURES))}")
    return MEASURES[name]


def discover() -> None:
    """List the measures of every file in this folder."""
    for module in iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Measure):
                MEASURES[value.name] = value


discover()
