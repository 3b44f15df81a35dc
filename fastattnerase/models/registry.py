"""A registry of parts by name: every file of this folder registers its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

from fastattnerase.fields import one_of
from fastattnerase.models.errors import ModelError

Part = TypeVar("Part")

_FIELDS = ("kind", "encoder", "attention", "mechanism")  # of `ModelConfig`, that name a part


@cache
def _import_parts() -> None:
    """Import every file of this folder: what registers a part there is known from then on."""
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f"{__package__}.{module.name}")


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
        self._registered: dict[str, Part] = {}
        _REGISTRIES[what] = self

    @property
    def _parts(self) -> dict[str, Part]:
        _import_parts()
        return self._registered

    def register(self, name: str) -> Callable[[Part], Part]:
        """Register a part under a name; give the decorator that does it."""

        def decorate(part: Part) -> Part:
            if name in self._registered:
                raise ModelError(f"{self.what} {name!r} is registered already")
            self._registered[name] = part
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


_REGISTRIES: dict[str, Registry[Any]] = {}  # by what their parts are


def require_parts(names: Mapping[str, Any]) -> None:
    """Refuse names that no part has.

    Args:
        names: the values of a `ModelConfig`.

    Raises:
        ModelError: the first unknown name, with those that are known.
    """
    _import_parts()
    for field in _FIELDS:
        _REGISTRIES[field][names[field]]
