"""Packages whose public names are imported when the first of them is used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def public_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Give a package its `__getattr__` and `__dir__`, which find the names of its module `public`.

    Importing the package, or one of its modules, then imports neither torch nor pandas: the command
    line answers `--help` at once.

    Args:
        package: the package's name; the names are those of `__all__` in its module `public`.

    Returns:
        `__getattr__` and `__dir__` of the package.

    Example:
        >>> find, names = public_names("fastattnerase")
        >>> find("AttentionBatch").__name__, "sweep" in names()
        ('AttentionBatch', True)
    """

    def find(name: str) -> Any:
        # `from package import module` asks here first.
        public = None if name.startswith("_") and name != "__all__" else _public()
        if public is None or name not in ("__all__", *public.__all__):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(public, name)
        setattr(sys.modules[package], name, value)  # found there from now on
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *_public().__all__})

    def _public() -> Any:
        return import_module(f"{package}.public")

    return find, names
