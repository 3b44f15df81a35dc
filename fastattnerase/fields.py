"""Records of options: how their fields are documented, and which values they take."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:  # imported where they are used; hints that are read at run time say Any
    DataclassInstance = Any

_ENTRY = re.compile(r"    (\w+): (.*)")


@cache
def documentation(kind: type[DataclassInstance]) -> Mapping[str, str]:
    """Give what a dataclass says of each field under `Attributes:` in its docstring.

    Args:
        kind: a dataclass.

    Returns:
        From a field's name to its text on one line; a field that is not documented is missing.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Walk:
        ...     '''A walk.
        ...
        ...     Attributes:
        ...         steps: How many steps
        ...             are taken.
        ...     '''
        ...     steps: int = 3
        >>> documentation(Walk)["steps"]
        'How many steps are taken.'
    """
    texts: dict[str, list[str]] = {}
    entry: list[str] = []
    section = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")[2]
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        found = _ENTRY.fullmatch(line)
        if found:
            entry = texts.setdefault(found[1], [])
        entry.append(found[2] if found else line.strip())
    return MappingProxyType({name: " ".join(lines).strip() for name, lines in texts.items()})


@cache
def hints(kind: type[DataclassInstance]) -> Mapping[str, Any]:
    """Give the type of each field of a dataclass."""
    return MappingProxyType(get_type_hints(kind))


def members(hint: Any) -> tuple[Any, ...]:
    """Give the types of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def choices(hint: Any) -> tuple[str, ...]:
    """Give the names that a field of this type takes; empty where it is not one of names.

    Example:
        >>> choices(int | Literal["both", "length"])
        ('both', 'length')
    """
    literals = (member for member in members(hint) if get_origin(member) is Literal)
    return tuple(name for literal in literals for name in get_args(literal))


def wrong_choices(record: DataclassInstance) -> list[str]:
    """Name the fields whose value is none of the names that they take, each in an error's words.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Walk:
        ...     pace: Literal["slow", "fast"] = "slow"
        >>> wrong_choices(Walk("quick"))
        ["pace: given 'quick', needed slow or fast"]
    """
    problems = []
    for name, hint in hints(type(record)).items():
        names, value = choices(hint), getattr(record, name)
        others = tuple(member for member in members(hint) if isinstance(member, type))
        if names and value not in names and not isinstance(value, others):
            number = ("a number",) if int in others else ()
            problems.append(f"{name}: given {value!r}, needed {one_of((*names, *number))}")
    return problems


def one_of(names: tuple[str, ...] | list[str]) -> str:
    """Write names as a choice: `a, b or c`."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
