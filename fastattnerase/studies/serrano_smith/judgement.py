"""How far attention explains a run's decisions: premises first, then a grade; no words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fastattnerase.statistics.shares import disagrees, hardly_better
from fastattnerase.studies.serrano_smith.result import Result

# Least skill, 0 for a random order and 1 for the smallest sets. Good: at most a tenth of what the
# smallest sets save is lost. Fair: nearer to the smallest sets than to a random order.
GOOD, FAIR = 0.9, 0.5
CHANCE = 0.05  # of the sign test against a random order
_FEWEST = 6  # decisions that attention or a random order flips; of fewer no sign test is below that
# Mean KL of attention from even weights, nats, below which it is called nearly uniform. KL is about
# half the squared coefficient of variation of the weights: below, they differ by less than a third
# of 1/n. In the committed study of five seeds another item moves the output more than that of most
# attention in over a tenth of the texts in 31 of 35 models below, 13 of 21 up to 0.5, none above.
EVEN = 0.05
_CONSTANT = 1e-12  # mean divergence of attention from even weights

Grade = Literal[
    "nothing",
    "not_the_model",
    "constant",
    "unknown",
    "no_choice",
    "never",
    "worse",
    "chance",
    "few",
    "good",
    "fair",
    "poor",
]


@dataclass(frozen=True)
class Judgement:
    """What a run says of attention as a guide to the model's decisions.

    Attributes:
        grade: `nothing`: no instance could be analysed. `not_the_model`: the decisions before any
            erasure are not the model's own. `constant`: all weights of an instance are equal.
            `unknown`: smallest sets are not known. `no_choice`: no decision changes before
            everything is erased. `never`: attention changes none. `worse`, `chance`: a random order
            needs fewer items, or is not told apart (sign test). `few`: too few decisions for a sign
            test to tell. `good`, `fair`, `poor`: by the skill, at least 0.9, at least 0.5, less.
        judged: instances that some, not all, of their items can flip.
        gap: median over these of items erased by attention over those of the smallest set,
            infinite where it never flips half of them; None where there are none.
        optimal: share of these in which attention needs no more than the smallest set.
        never: share of these that attention never flips.
        skill: how much of what separates a random order from the smallest sets attention gains.
    """

    grade: Grade
    judged: int = 0
    gap: float | None = None
    optimal: float | None = None
    never: float | None = None
    skill: float | None = None


def judge(result: Result) -> Judgement:
    """Judge attention as a guide to a model's decisions; a premise that fails comes first.

    Args:
        result: a finished run.

    Returns:
        The grade, with its numbers.
    """
    if result.counts.analysed == 0:
        return Judgement("nothing")
    if disagrees(*disagreement(result)):
        return Judgement("not_the_model")
    if is_constant(result):
        return Judgement("constant")
    sets = result.counts.smallest_set
    if not sets.known:
        return Judgement("unknown")
    if not sets.some:
        return Judgement("no_choice")
    gaps = result.gaps("attention")
    gap, never = float(np.median(gaps)), float(np.isinf(gaps).mean())
    skill = result.multi["attention"].counted.skill.overall.value
    grade = _grade(result, never, skill)
    return Judgement(grade, sets.some, gap, float((gaps <= 1).mean()), never, skill)


def _grade(result: Result, never: float, skill: float | None) -> Grade:
    pair = result.pairs["attention", "random"]
    if never == 1:
        return "never"
    if pair.p_sign > CHANCE or skill is None:  # all random orders are as good as can be
        return "few" if pair.judged < _FEWEST else "chance"
    if pair.first_smaller < pair.second_smaller:
        return "worse"
    return "good" if skill >= GOOD else "fair" if skill >= FAIR else "poor"


def disagreement(result: Result) -> tuple[int, int]:
    """Count the instances that the model itself decides otherwise, before any erasure.

    Returns:
        Those, and all whose own decision is known; instances with NaN or infinity are not counted.
    """
    counts = result.counts
    if not counts.label_differs_from_model:
        return 0, counts.compared_with_model
    table = result.table("instances", ["label", "model_label", "excluded"])
    table = table[table["excluded"] != "non_finite"].dropna(subset=["model_label"])
    return int((table["label"] != table["model_label"]).sum()), len(table)


def is_constant(result: Result) -> bool:
    """Say whether attention gives all items of an instance the same weight."""
    divergence = result.uniform.js.mean.value
    return divergence is not None and divergence <= _CONSTANT


def is_even(result: Result) -> bool:
    """Say whether attention is nearly uniform, but not constant."""
    divergence = result.uniform.kl.mean.value
    return divergence is not None and divergence < EVEN and not is_constant(result)


def only_decision(result: Result) -> int | None:
    """Find the class that is decided for every instance; None where several are."""
    decisions = result.counts.label_counts
    return int(next(iter(decisions))) if len(decisions) == 1 else None


def at_chance(result: Result) -> bool:
    """Say whether the model is hardly better than deciding the most frequent label always."""
    return hardly_better(result.counts.accuracy, result.counts.majority)
