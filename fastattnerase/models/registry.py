"""A registry of parts by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from fastattnerase.fields import one_of
from fastattnerase.models.errors import ModelError

Part = TypeVar("Part")


class Registry(Mapping[str, Part]):
    """Parts by name.

    Args:
        what: what the parts are: the field of `ModelConfig` that names one.

    Example:
        >>> colours = Registry[type]("colour")
        >>> @colours.register("red")
        ... class Red: ...
        >>> colours["red"].__name__
        'Red'
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._parts: dict[str, Part] = {}

    def register(self, name: str) -> Callable[[Part], Part]:
        """Register a part under a name; give the decorator that does it."""

        def decorate(part: Part) -> Part:
            if name in self._parts:
                raise ModelError(f"{self.what} {name!r} is registered already")
            self._parts[name] = part
            return part

        return decorate

    def __getitem__(self, name: str) -> Part:
        try:
            return self._parts[name]
        except KeyError:
            known = one_of(sorted(self._parts))
            raise ModelError(f"{self.what}: given {name!r}, needed {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
