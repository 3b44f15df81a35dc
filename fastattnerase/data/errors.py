"""The error that every reader and every preparation of text raises."""

from __future__ import annotations


class DataError(ValueError):
    """Bad input data: one message that names the file, what was found and what is needed."""


class MissingColumnError(DataError):
    """A file lacks a wanted column."""


class LabelError(DataError):
    """A row has no label, or one that is none of the classes."""
