"""Readers of labelled text, one a file format or data set, registered by name.

A reader is a function `(path, columns) -> rows`: it streams one mapping a row with the wanted
columns. To add one, write a file beside this one and decorate the function with `register_reader`:
every file here is imported.
"""

from importlib import import_module
from pkgutil import iter_modules

from fastattnerase.data.readers.registry import (
    READERS,
    Reader,
    find_reader,
    register_reader,
    require_columns,
)

__all__ = ["READERS", "Reader", "find_reader", "register_reader", "require_columns"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
