"""How slides are erased, and what the run's folder says it is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from fastattnerase.runs.rundir import RunError

KIND = "mil"
FORMAT = 1  # raised when what the tables or result.json hold changes
# What the field compares, and what `erase` compares; others are added by name.
RANKINGS = ("attention", "single", "one_removed", "gradient", "product")
RANDOM = "random"
ERASING, TABLES, INTERVALS = "erasing", "writing tables", "drawing intervals"
COSTS = {ERASING: 20.0, TABLES: 1.0, INTERVALS: 1.0}
# Patches of a slide up to which the smallest set of a model of several branches is searched for: it
# takes seconds there, and grows faster than the slide.
SEARCHED = 5_000
SHOWN = 12  # slides with heat maps on the page


@dataclass(frozen=True)
class Options:
    """How slides are erased.

    Attributes:
        rankings: Further rankings beside attention, single, one_removed, gradient, product and
            random.
        random_orders: Random orders of each slide.
        seed: Seed of random orders and of resamples.
        backend: Backend of the engine.
        resamples: Resamples of the bootstrap over slides.
        skip_damaged: Whether slides that cannot be read are counted and left out.

    Raises:
        RunError: a ranking that is compared anyway, or a number out of range.

    Example:
        >>> Options(rankings=("shapley",)).all_rankings
        ('attention', 'single', 'one_removed', 'gradient', 'product', 'shapley', 'random')
    """

    rankings: tuple[str, ...] = ()
    random_orders: int = 1
    seed: int = 0
    backend: str = "auto"
    resamples: int = 1000
    skip_damaged: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "rankings", tuple(self.rankings))
        for name in self.rankings:
            if name in (*RANKINGS, RANDOM) or self.rankings.count(name) > 1:
                raise RunError(
                    f"rankings: given {name!r}, needed ones that are not compared anyway, once"
                )
        for name in ("random_orders", "resamples"):
            if getattr(self, name) < 1:
                raise RunError(f"{name}: given {getattr(self, name)}, needed 1 or more")
        if not 0 <= self.seed < 2**63:
            raise RunError(f"seed: given {self.seed}, needed 0 to 2^63 - 1")

    def to_dict(self) -> dict[str, Any]:
        """Give what numbers depend on as data for JSON.

        Whether damaged slides are skipped is none of it: a run that one of them ended goes on.
        """
        options = dataclasses.asdict(self)
        del options["skip_damaged"]
        return options | {"rankings": list(self.rankings)}

    @property
    def all_rankings(self) -> tuple[str, ...]:
        """The rankings in the order of tables, random last."""
        return (*RANKINGS, *self.rankings, RANDOM)
