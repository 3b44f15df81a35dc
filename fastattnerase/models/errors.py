"""The error that models and training raise."""

from __future__ import annotations


class ModelError(ValueError):
    """A bad model configuration, model folder or training: one message that says what is wrong."""
