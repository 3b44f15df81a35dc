"""Records: dataclasses in JSON files. A file that was edited or damaged is refused, not trusted."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fastattnerase.runs.rundir import RunError

T = TypeVar("T")
_INFINITE = ("inf", "-inf")


def read_record(kind: type[T], content: Any, path: Path) -> T:
    """Make a dataclass of what a JSON file holds.

    Objects become dataclasses or dictionaries, arrays tuples; keys that the dataclass lacks are
    ignored, so that a file of a later version opens.

    Args:
        kind: the dataclass. Its fields have types of JSON, of other dataclasses, and
            `tuple[X, ...]`, `dict[str, X]` and unions of these.
        content: what was read.
        path: the file, for errors.

    Returns:
        The record.

    Raises:
        RunError: a key is missing, or something is of another type; names the file, the place and
            what is there.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Point:
        ...     x: float
        ...     names: tuple[str, ...] = ()
        >>> read_record(Point, {"x": 1.5, "names": ["a"]}, Path("point.json"))
        Point(x=1.5, names=('a',))
        >>> read_record(Point, {"x": "much"}, Path("point.json"))
        Traceback (most recent call last):
        fastattnerase.runs.rundir.RunError: point.json is damaged: x is 'much'; delete it and run \
again
    """
    made: T = _read(kind, content, path, "")
    return made


def to_json(record: Any) -> Any:
    """Turn a dataclass into what JSON can hold: objects, arrays, and keys that are texts.

    JSON has no infinity: it is written as the text `inf`, and read again where a number is due.
    """
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        fields = dataclasses.fields(record)
        return {field.name: to_json(getattr(record, field.name)) for field in fields}
    if isinstance(record, Mapping):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(value) for value in record]
    if isinstance(record, float) and math.isinf(record):
        return str(float(record))
    return record


@functools.cache
def fields_of(kind: type) -> dict[str, tuple[Any, bool]]:
    """Give the type of each field of a dataclass, and whether it must be given."""
    hints = get_type_hints(kind)
    return {
        field.name: (
            hints[field.name],
            field.default is field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    }


def _read(hint: Any, content: Any, path: Path, place: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if content is None and type(None) in inner:
            return None
        [hint] = [one for one in inner if one is not type(None)]
        return _read(hint, content, path, place)
    if dataclasses.is_dataclass(hint) and isinstance(content, dict):
        values = {}
        for name, (of_field, required) in fields_of(hint).items():  # type: ignore[arg-type]
            if name in content:
                inside = f"{place}.{name}" if place else name
                values[name] = _read(of_field, content[name], path, inside)
            elif required:
                raise RunError(f"{path} is damaged: it lacks {name!r}; delete it and run again")
        try:
            return hint(**values)  # type: ignore[operator]
        except ValueError as error:  # of the dataclass's own checks
            raise RunError(f"{path} is damaged: {error}; delete it and run again") from error
    if origin is dict and isinstance(content, dict):
        return {
            key: _read(inner[1], value, path, f"{place}.{key}") for key, value in content.items()
        }
    if origin is tuple and isinstance(content, list):
        if {type(value) for value in content} == {inner[0]}:  # many numbers or words, at once
            return tuple(content)
        return tuple(
            _read(inner[0], value, path, f"{place}[{number}]")
            for number, value in enumerate(content)
        )
    if hint is float and content in _INFINITE:
        return float(content)
    if not is_plain(content, hint):
        raise RunError(
            f"{path} is damaged: {place or 'it'} is {content!r:.60}; delete it and run again"
        )
    return content


def is_plain(value: Any, hint: Any) -> bool:
    """Say whether a value is a truth value, number, text or choice of the type that is wanted."""
    if hint is Any:
        return True
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return hint in (bool, str, type(None)) and isinstance(value, hint)
