"""What rankings are called and how they are drawn, in figures, pages and on the command line."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from fastattnerase.studies.serrano_smith.result import Result

NAMES = {
    "random": "Random",
    "attention": "Attention",
    "gradient": "Gradient",
    "product": "Product",
    "minimal": "Smallest set",
}
# Okabe and Ito's colours, told apart with any colour vision; black for the optimum.
COLOURS = {
    "random": "#8a8f98",
    "attention": "#0072b2",
    "gradient": "#d98200",
    "product": "#009e73",
    "minimal": "#1b1f24",
}
STYLES = {
    "random": (0, (1, 1.2)),
    "attention": "solid",
    "gradient": (0, (5, 1.5)),
    "product": (0, (7, 1.5, 1, 1.5)),
    "minimal": "solid",
}
# Other rankings, in turn: Okabe and Ito's other colours and two more, as many as are registered.
_OWN = (
    ("#cc79a7", "dashed"),
    ("#d55e00", "dashdot"),
    ("#56b4e9", "dotted"),
    ("#6a3d9a", (0, (3, 1, 1, 1, 1, 1))),
    ("#8c564b", (0, (7, 1, 1, 1, 1, 1))),
)


def title(ranking: str) -> str:
    """Give the name that readers see: `leave_one_out` is "Leave one out", `module:name` stays.

    >>> title("minimal"), title("greedy"), title("my_module:by_norm")
    ('Smallest set', 'Greedy', 'my_module:by_norm')
    """
    if ranking in NAMES:
        return NAMES[ranking]
    return ranking if ":" in ranking else ranking.replace("_", " ").strip().capitalize()


class Look(NamedTuple):
    """How a ranking is shown."""

    name: str
    colour: str
    style: Any  # of a line


def looks(*results: Result) -> dict[str, Look]:
    """Say how rankings are shown: the paper's, those of these runs' own, the smallest set last."""
    own = dict.fromkeys(name for result in results for name in result.run.config.rankings)
    shown = {name: Look(NAMES[name], COLOURS[name], STYLES[name]) for name in NAMES}
    last = {"minimal": shown.pop("minimal")}
    turn = itertools.cycle(_OWN)
    return shown | {name: Look(title(name), *next(turn)) for name in own} | last
