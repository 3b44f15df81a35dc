"""Packages of extras: one that is missing is named with the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MissingPackageError(ImportError):
    """A package that an extra of fastattnerase would have brought is not installed."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Guard the imports of packages that an extra brings.

    Args:
        extra: the extra's name in `pyproject.toml`: `text`, `report`, `cli`, `word2vec`, `hub`,
            `quantus`, `saliency`, `ray`, `scale`, `mil`, `transformers` or `triton`.

    Raises:
        MissingPackageError: a package is not installed; the message has the command.

    Example:
        >>> with needs("text"):
        ...     import pandas as pd
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "fastattnerase":
            raise
        raise MissingPackageError(
            f"{package}: not installed, needed here; install it with "
            f"`pip install 'fastattnerase[{extra}]'`",
            name=error.name,
        ) from error
