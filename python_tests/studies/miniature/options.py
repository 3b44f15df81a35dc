"""What may be varied in the miniature study."""

from __future__ import annotations

from dataclasses import dataclass

from fastattnerase.rankings import resolve
from fastattnerase.runs.rundir import RunError


@dataclass(frozen=True)
class Options:
    """Erase items by several rankings until each decision changes.

    Attributes:
        rankings: Rankings to compare.
        seed: Seed of the random ranking.
    """

    rankings: tuple[str, ...] = ("attention", "random")
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.rankings:
            raise RunError("rankings: given none, needed one or more")
        for ranking in self.rankings:
            try:
                resolve(ranking)
            except ValueError as error:
                raise RunError(str(error)) from error
