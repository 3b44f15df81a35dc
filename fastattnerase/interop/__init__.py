"""Between this library and others: scores from anywhere, Captum, Quantus, ERASER's results.

`interop.captum` and `interop.quantus` are imported by their names; each needs its library only
where it says so.
"""

from __future__ import annotations

from fastattnerase.lazy import public_names

__getattr__, __dir__ = public_names(__name__)
