"""How the experiment is run, and the names of what is compared."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from fastattnerase.fields import wrong_choices

RANKINGS = ("random", "attention", "gradient", "product")
SINGLE_RANKINGS = ("attention", "gradient", "product")
ASCENDING = "ascending"  # attention, least first: what the published code measured beside these
PAIRS = (
    ("gradient", "attention"),
    ("product", "attention"),
    ("product", "gradient"),
    ("attention", "random"),
    ("gradient", "random"),
    ("product", "random"),
)
RULES = ("different", "uniform", "legacy")
CELLS = ("both", "only_top", "only_random", "neither")
EXCLUSIONS = {  # instances that are left out, and in words
    "empty": "without any item",
    "length_1": "with a single item: only one order exists",
    "non_finite": "with NaN or infinite values",
}
KIND = "serrano_smith"  # what run.json says the run is
# Raised when what run.json or result.json hold changes.
FORMAT = 2
LEAST_DIFFERENCE = 1e-9  # smaller differences of two divergences are rounding

# The stages of the experiment, for who watches.
ERASING, TABLES, DOCUMENTS = "erasing", "writing tables", "choosing documents"
INTERVALS = "drawing intervals"
# How long they take against each other where instances are many.
COSTS = {ERASING: 6.0, TABLES: 1.0, DOCUMENTS: 0.2, INTERVALS: 3.0}
DESCRIBING, DRAWING = "looking at every prefix", "drawing figures"
LISTING, WRITING = "writing the tables", "writing the page"
REPORT_COSTS = {DESCRIBING: 1.0, DRAWING: 8.0, LISTING: 0.5, WRITING: 1.0}

RandomItem = Literal["different", "uniform", "legacy"]
NeverFlips = Literal["left_out", "minus_one", "one"]
NEVER: dict[str, float] = {"left_out": math.nan, "minus_one": -1.0, "one": 1.0}


@dataclass(frozen=True)
class Config:
    """How the experiment is run.

    Attributes:
        seed: Seed of random rankings, random items and resampling; 0 to 2⁶³ - 1.
        random_orders: Random rankings of each instance; the paper plots one.
        random_item: How the random item of the single-weight test is drawn. `different`: uniformly
            over all items but the top one, the paper's stated requirement. `uniform`: over all
            items. `legacy`: over the positions from the second on, as the published code does.
        rankings: Further rankings for the multi-weight test, with commas between: `greedy`,
            `leave_one_out`, `leave_one_out_drop`, `renormalized_gradient` or `shapley`, or
            `module:name` for a function of a module.
        items: Whether the run gets the table `items` too, a row for each item of each instance: its
            place and text, attention, scores, what erasing it alone does, whether it is in the
            smallest set, and its rank in every ranking.
        never_flips: What the table `multi` says of the fraction and mass of an instance that a
            ranking never flips, where first_flip is -1: `left_out` (NaN), `minus_one` (-1, as the
            published code) or `one` (1, erased wholly). The first two stay out of what follows the
            paper's convention; in all other numbers they are beyond every fraction, whatever this
            is.
        backend: Backend of the engine: auto, or a name that `fastattnerase info` prints.
        resamples: Resamples of the bootstrap.
        confidence: Confidence of the intervals.
        exhibits: Documents that the report shows at a time. 60 are kept, or as many as there are,
            to search and page through; with 0 none, so that the results hold no text.

    Raises:
        ValueError: a value out of range, naming it.

    Source:
        Serrano and Smith 2019, sections 4 and 5.

    Example:
        >>> from fastattnerase.studies.serrano_smith.config import Config
        >>> Config(random_orders=5).random_item
        'different'
    """

    seed: int = 0
    random_orders: int = 1
    random_item: RandomItem = "different"
    rankings: tuple[str, ...] = ()
    items: bool = False
    never_flips: NeverFlips = "left_out"
    backend: str = "auto"
    resamples: int = 1000
    confidence: float = 0.95
    exhibits: int = 6

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed: given {self.seed}, needed 0 to 2**63 - 1")
        for name, least in (("random_orders", 1), ("resamples", 1), ("exhibits", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: given {getattr(self, name)}, needed at least {least}")
        object.__setattr__(self, "rankings", tuple(self.rankings))
        taken = [*RANKINGS, ASCENDING, "minimal"]
        for ranking in self.rankings:
            if ranking in taken:
                raise ValueError(
                    f"rankings: given {ranking!r}, needed ones that are not compared anyway, once"
                )
            taken.append(ranking)
        for problem in wrong_choices(self):
            raise ValueError(problem)
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence: given {self.confidence}, needed a number in (0, 1)")

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The rankings that are compared two by two."""
        own = [(ranking, other) for ranking in self.rankings for other in ("attention", "random")]
        return (*PAIRS, *own)

    def to_dict(self) -> dict[str, Any]:
        """Give the options as data for JSON; `rankings` and `items` only where they are asked for.

        Runs of versions that had no such option go on and open as before.
        """
        options = dataclasses.asdict(self)
        rankings, items = options.pop("rankings"), options.pop("items")
        if rankings:
            options["rankings"] = list(rankings)
        return options | ({"items": True} if items else {})
