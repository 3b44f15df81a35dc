"""The error that bags, tables of labels and weights of models raise."""

from __future__ import annotations

from fastattnerase.data.errors import DataError


class BagError(DataError):
    """A file is not what it must be: one line that names the file, what was given, what is needed.

    A run with `--skip-damaged` counts those of single bags and goes on.
    """
