"""Attention classifiers, their parts by name, training, saving and loading."""

from typing import TYPE_CHECKING

from fastattnerase.lazy import public_names

if TYPE_CHECKING:
    from fastattnerase.models.public import *  # noqa: F403
else:
    __getattr__, __dir__ = public_names(__name__)
