"""Tables from files, checked against the dataclass that they are for."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from fastattnerase.runs.records import fields_of, is_plain
from fastattnerase.runs.rundir import RunError

_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def check_table(kind: type, values: Any, place: str = "") -> None:
    """Check that a table has the keys and types of a dataclass, before it is made.

    Args:
        kind: the dataclass.
        values: the table.
        place: where it stands in the file, for errors.

    Raises:
        RunError: no table, an unknown key, a value of another type; names the key, the value and
            what is needed.

    Example:
        >>> @dataclasses.dataclass
        ... class Options:
        ...     random_orders: int = 1
        >>> check_table(Options, {"random_orders": "two"}, "erase")
        Traceback (most recent call last):
        fastattnerase.runs.rundir.RunError: erase.random_orders: given 'two', needed a \
whole number
    """
    if not isinstance(values, Mapping):
        raise RunError(f"{place}: given {values!r}, needed a table")
    fields = fields_of(kind)
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise RunError(
            f"{place or 'keys'}: given {', '.join(map(repr, unknown))}, needed some of "
            f"{', '.join(fields)}"
        )
    for key, (hint, required) in fields.items():
        name = f"{place}.{key}" if place else key
        if key not in values and required:
            raise RunError(f"{name}: given nothing, needed {_needed(hint)}")
        if key in values and not _fits(values[key], hint):
            raise RunError(f"{name}: given {values[key]!r}, needed {_needed(hint)}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple:  # lists in files
        if not isinstance(value, (list, tuple)):
            return False
        wanted = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(wanted) and all(map(_fits, value, wanted))
    if origin is not None and origin is not Literal:
        return isinstance(value, Mapping) and all(_fits(one, inner[1]) for one in value.values())
    if dataclasses.is_dataclass(hint):
        return isinstance(value, Mapping)  # checked by itself
    return is_plain(value, hint)


def _needed(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_needed(one) for one in inner if one is not type(None))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        count = "" if inner[-1] is Ellipsis else f"{len(inner)} "
        return f"a list of {count}{_needed(inner[0]).removeprefix('a ')}s"
    if origin is not None or dataclasses.is_dataclass(hint):
        return "a table"
    return _NAMES[hint]
