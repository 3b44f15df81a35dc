"""Architectures by the name that `config.json` has as `model_type`: one file each in this folder.

To add one: a file with a subclass of `Family` under `@family("its model_type")`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from fastattnerase.huggingface.families.base import FAMILIES, Family, family
from fastattnerase.models.errors import ModelError

__all__ = ["FAMILIES", "Family", "family", "family_of"]


@cache
def _discover() -> None:
    """Import every file of this folder, so that its family is registered."""
    for module in sorted(m.name for m in iter_modules([str(Path(__file__).parent)])):
        import_module(f"{__package__}.{module}")


def family_of(model_type: str) -> type[Family]:
    """Find the family of an architecture.

    Args:
        model_type: as in a model's `config.json`.

    Returns:
        The class.

    Raises:
        ModelError: there is none; the message lists those that there are.

    Example:
        >>> family_of("bert").__name__
        'Bert'
    """
    _discover()
    if model_type not in FAMILIES:
        raise ModelError(
            f"transformer: given the architecture {model_type!r}, needed one of "
            f"{', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[model_type]
