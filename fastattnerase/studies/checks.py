"""Checks that the options of several studies share; each error names the option."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastattnerase.models.train_config import MOST_SEED
from fastattnerase.runs.rundir import RunError


def preset_names() -> tuple[str, ...]:
    """Name the published data sets."""
    from fastattnerase.data.presets import DATA_PRESETS  # imports torch

    return tuple(DATA_PRESETS)


def check_names(
    options: Any, known: Mapping[str, Sequence[str]], may_be_empty: Sequence[str] = ()
) -> None:
    """Refuse names that are unknown, given twice, or missing.

    Args:
        options: the record of options.
        known: from a field to the names that it takes; one that is None is left.
        may_be_empty: fields of which none need be given.

    Raises:
        RunError: for the first field that is refused.
    """
    for name, names in known.items():
        given = getattr(options, name)
        if given is None:
            continue
        if not given and name not in may_be_empty:
            raise RunError(f"{name}: given none, needed at least one of {', '.join(names)}")
        if not set(given) <= set(names) or len(set(given)) < len(given):
            raise RunError(
                f"{name}: given {', '.join(map(str, given))}, needed distinct names of "
                f"{', '.join(names)}"
            )


def check_seeds(options: Any, *names: str, most: int = MOST_SEED) -> None:
    """Refuse seeds that are given twice, negative or too large, and fields without any."""
    for name in names:
        seeds = getattr(options, name)
        fits = seeds and min(seeds) >= 0 and max(seeds) <= most
        if not fits or len(set(seeds)) < len(seeds):
            raise RunError(
                f"{name}: given {', '.join(map(str, seeds)) or 'none'}, needed distinct numbers "
                f"from 0 to {most}"
            )


def check_counts(options: Any, *names: str) -> None:
    """Refuse numbers below 1; None is no number."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise RunError(f"{name}: given {value}, needed at least 1")


def check_tvd(factor: float) -> None:
    """Refuse a factor of the outputs' difference in an adversary's loss that is not positive."""
    if not 0 < factor < math.inf:
        raise RunError(f"tvd: given {factor}, needed a number above 0")
