"""What a run over slides says in sentences, by stated rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastattnerase.mil.options import RANDOM, SEARCHED
from fastattnerase.plurals import are, have, plural
from fastattnerase.statistics.shares import hardly_better

if TYPE_CHECKING:
    from fastattnerase.mil.run import MilResult
else:  # imported where they are used; hints that are read at run time say Any
    MilResult = Any

RULE = (
    "A decision that a ranking never changes is beyond every share of the patches. One ranking is "
    "said to order patches better than another where the 95 % interval of the mean difference of "
    "their symmetric relevance gains, slide by slide, is above 0."
)


def percent(share: float | None, digits: int = 1) -> str:
    """Write a share in percent; of None, that it is never.

    Example:
        >>> percent(0.123), percent(None)
        ('12.3\\xa0%', 'never')
    """
    return "never" if share is None else f"{100 * share:.{digits}f}\u00a0%"


def findings(result: MilResult) -> list[str]:
    """Say what the numbers of a run say; what speaks against reading them stands first."""
    s = result.summary
    read = s["slides"] - s["damaged"]
    told = []
    if s["damaged"]:
        told.append(
            f"{s['damaged']:,} of {s['slides']:,} {plural(s['slides'], 'slide')} could not be read "
            f"and {are(s['damaged'])} in no number."
        )
    if not read:
        return [*told, "No slide could be read."]
    accuracy, chance = s["accuracy"], s["majority"]
    right = f"Decisions are right for {percent(accuracy)} of {read:,} {plural(read, 'slide')}"
    beside = f"; deciding the most frequent class always is right for {percent(chance)}"
    if hardly_better(accuracy, chance):
        told.append(
            f"{right}{beside}: the model is hardly better, and what its decisions rest on says "
            "little about the slides."
        )
    else:
        told.append(f"{right}{beside}.")
    if s["near_ties"]:
        told.append(
            f"{s['near_ties']:,} {plural(s['near_ties'], 'slide')} {have(s['near_ties'])} a step "
            "at which the decision is too near to a tie for engines to promise the same."
        )
    if s["minimal"] is None:
        told.append(
            "No set of patches changes half of the decisions."
            if s["exact"]
            else "No smallest set is known: the classifier is not linear, or there are several "
            f"attention branches and more than {SEARCHED:,} patches."
        )
    else:
        told.append(
            f"For half of the slides {percent(s['minimal'], 2)} of the patches or fewer, chosen "
            f"best, are enough to change the decision; {_proved(s['proved'])}."
        )
    return [*told, *_rankings(result)]


def _rankings(result: MilResult) -> list[str]:
    """Compare attention with random orders and with the best ranking."""
    found = result.summary["rankings"]
    attention, random = found["attention"], found[RANDOM]
    told = [
        f"Attention changes half of the decisions {_after(attention['fraction'])}, random orders "
        f"{_after(random['fraction'])}."
    ]
    gains = {
        name: row["symmetric_relevance_gain"]
        for name, row in found.items()
        if name != RANDOM and row["symmetric_relevance_gain"]["value"] is not None
    }
    if not gains or "attention" not in gains:
        return told
    best = max(gains, key=lambda name: float(gains[name]["value"]))
    own = gains["attention"]
    if own["low"] is not None and own["low"] <= 0 <= own["high"]:
        told.append(
            "By the symmetric relevance gain attention is not distinguished from a random order: "
            f"{own['value']:.3f}, 95\u00a0% interval {own['low']:.3f} to {own['high']:.3f}."
        )
    if best == "attention":
        told.append("No ranking has a larger symmetric relevance gain than attention.")
        return told
    other, over = gains[best], found[best]["gain_over_attention"]
    told.append(
        f"The largest symmetric relevance gain is that of {best.replace('_', ' ')}, "
        f"{other['value']:.3f}; attention's is {own['value']:.3f}, and the difference "
        f"{over['value']:.3f} (95\u00a0% interval {over['low']:.3f} to {over['high']:.3f}): "
        + ("it orders patches better." if over["low"] > 0 else "the two are not told apart.")
    )
    return told


def _proved(share: float) -> str:
    """Say how many of the sets are known to be smallest."""
    if share == 1:
        return "that is exact"
    return f"sets are found by search, and {percent(share)} of them are proved smallest"


def _after(share: float | None) -> str:
    """Say when half of the decisions have changed."""
    return "not at all" if share is None else f"after {percent(share)} of the patches"
