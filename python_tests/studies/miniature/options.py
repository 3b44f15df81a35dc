"""What may be varied in the miniature study."""

from __future__ import annotations

from dataclasses import dataclass

from fastattnerase.rankings import RANKINGS
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
        unknown = [ranking for ranking in self.rankings if ranking not in RANKINGS]
        if unknown or not self.rankings:
            given = ", ".join(unknown) or "none"
            raise RunError(f"rankings: given {given}, needed some of {', '.join(RANKINGS)}")
