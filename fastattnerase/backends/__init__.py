"""Ways to compute the operators: what can run here, why the rest cannot, and which one is taken."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # torch is imported with the first backend
    from fastattnerase.backends.base import Backend
    from fastattnerase.problem import Problem
else:  # imported where they are used; hints that are read at run time say Any
    Backend = Problem = Any

_MODULES = ("cuda", "triton", "cpu", "reference")
_AUTO_CUDA = ("cuda", "triton", "reference")
_AUTO_OTHER = ("cpu", "reference")


class _Entry(NamedTuple):
    """A backend, or the reasons why it cannot run in this process."""

    backend: Backend | None
    reasons: list[str]


_ENTRIES: dict[str, _Entry] = {}


def register(backend: Backend) -> None:
    """Make a backend known under its name, replacing one of that name.

    It can be forced by name; `auto` chooses among those that come with the package only.
    """
    _ENTRIES[backend.name] = _Entry(backend, backend.unavailable())


def _entry(name: str) -> _Entry:
    """Find a backend, importing its module on first use."""
    entry = _ENTRIES.get(name)
    if entry is None:
        if name not in _MODULES:
            names = ", ".join(repr(known) for known in ("auto", *backends()))
            raise ValueError(f"backend: given {name!r}, needed one of {names}")
        try:
            register(import_module(f"{__name__}.{name}").BACKEND)
        except ImportError as error:
            _ENTRIES[name] = _Entry(None, [str(error)])
        entry = _ENTRIES[name]
    return entry


def backends() -> dict[str, list[str]]:
    """Say what can run here, and why the rest cannot.

    Returns a dictionary from each backend's name to the reasons why it cannot run in this
    process, an empty list for one that can.

    >>> import fastattnerase as fae
    >>> fae.backends()["reference"]
    []
    """
    return {name: list(_entry(name).reasons) for name in dict.fromkeys((*_MODULES, *_ENTRIES))}


def choose(
    name: str, device_type: str, problem: Problem | None = None, operator: str = "sweep"
) -> Backend:
    """Find the backend for a problem on a device, one that has the operator.

    A named backend is taken or refused, with its reasons; "auto" takes the first that can run.
    Without a problem only the device and the operator count.
    """
    if name == "auto":
        for candidate in _AUTO_CUDA if device_type == "cuda" else _AUTO_OTHER:
            backend, reasons = _fits(candidate, device_type, problem, operator)
            if backend is not None and not reasons:
                return backend
        raise RuntimeError(
            f"backend: given tensors on {device_type!r}, needed a device that a backend takes; "
            "move the batch to the CPU"
        )
    backend, reasons = _fits(name, device_type, problem, operator)
    if backend is None or reasons:
        raise RuntimeError(
            f"backend: given {name!r}, needed one that can run this: {'; '.join(reasons)}"
        )
    return backend


def _fits(
    name: str, device_type: str, problem: Problem | None, operator: str
) -> tuple[Backend | None, list[str]]:
    """Find the backend, and the reasons why it cannot run this."""
    entry = _entry(name)
    backend = entry.backend
    if backend is None or entry.reasons:
        return backend, entry.reasons
    if device_type not in backend.devices:
        takes = " or ".join(backend.devices)
        return backend, [f"it takes tensors on {takes}, these are on {device_type}"]
    if not hasattr(backend, operator):
        return backend, [f"it has no {operator}"]
    return backend, backend.unsupported(problem) if problem is not None else []
