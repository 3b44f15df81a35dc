"""Between this library and others: scores from anywhere, Captum, Quantus, ERASER, inseq.

`interop.captum` and `interop.quantus` are imported when they are used; each needs its library only
where it says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastattnerase.lazy import public_names

_find, __dir__ = public_names(__name__)


def __getattr__(name: str) -> Any:
    if name in ("captum", "quantus"):
        return import_module(f"{__name__}.{name}")
    return _find(name)
