"""The error that every reader and every preparation of text raises."""

from __future__ import annotations


class DataError(ValueError):
    """Bad input data: one message that names the file, what was found and what is needed."""
