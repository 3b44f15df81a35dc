"""Sentences made from the numbers of a comparison by stated rules, never by reading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.fields import one_of
from fastattnerase.studies.compare.options import LAYER, OF_THE_LAYER, RANDOM, WORDS
from fastattnerase.studies.compare.summary import HUMAN, by_measure

with needs("report"):
    import pandas as pd

MEASURES = {
    "aopc_comprehensiveness": "comprehensiveness",
    "aopc_sufficiency": "sufficiency",
    "deletion_area": "deletion area",
    "insertion_area": "insertion area",
    "flip_fraction": "share erased at the first flip",
    "optimality_gap": "times the smallest flipping set",
    "auprc": "AUPRC",
    "token_f1": "token F1",
    "iou_f1": "IoU F1",
}
GRIDS = {"eraser": "ERASER’s shares", "ferret": "ferret’s shares", "every": "every prefix"}


@dataclass(frozen=True)
class First:
    """Which method a measure puts first.

    Attributes:
        level: what is erased, or `human words`.
        measure: the measure.
        grid: which prefixes it reads; empty where that is no question.
        best: the method of the best mean.
        alone: whether it is better than every other method, by intervals of the differences.
        beside: methods that are not surely worse than the best, itself among them.
        attention: the place of attention's mean, from 1; None where it is not compared.
        attention_alone: whether attention alone comes first.
        attention_beside: whether it is among `beside`.
        attention_random: `better`, `worse` or `alike`: attention against a random ranking.
        methods: how many methods there are.
    """

    level: str
    measure: str
    grid: str
    best: str
    alone: bool
    beside: tuple[str, ...]
    attention: int | None
    attention_alone: bool
    attention_beside: bool
    attention_random: str
    methods: int


@dataclass(frozen=True)
class Finding:
    """A question with its answer.

    Attributes:
        question: what is asked.
        answer: what the numbers say.
        rule: how the answer follows from them.
    """

    question: str
    answer: str
    rule: str


def title(measure: str, grid: str) -> str:
    """Name a measure with what it reads.

    Example:
        >>> title("aopc_sufficiency", "every")
        'sufficiency, every prefix'
    """
    return MEASURES[measure] + (f", {GRIDS[grid]}" if grid else "")


class Compared:
    """Which of two rankings is surely better, by the table of differences.

    Args:
        pairs: the table `pairs` of a comparison.
    """

    def __init__(self, pairs: pd.DataFrame) -> None:
        self._known: dict[tuple[str, ...], tuple[float, float]] = {}
        rows: Any = pairs.to_dict("records")
        for row in rows:
            key = row["level"], row["measure"], row["grid"]
            low, high = row["low"], row["high"]
            self._known[(*key, row["method"], row["other"])] = (low, high)
            self._known[(*key, row["other"], row["method"])] = (-high, -low)

    def better(self, key: tuple[str, str, str], a: str, b: str, direction: str) -> bool:
        """Say whether the interval of the difference lies on the side where `a` is better."""
        low, high = self._known[(*key, a, b)]
        return bool(low > 0 if direction == "higher" else high < 0)


def firsts(means: pd.DataFrame, pairs: pd.DataFrame) -> list[First]:
    """Say which method each measure puts first, and where attention stands.

    A method comes first alone where the 95 % interval of its mean difference to every other method,
    on the documents where both are defined, lies on the better side of 0.

    Args:
        means: the table `means` of a comparison.
        pairs: its table `pairs`.
    """
    compared = Compared(pairs)
    found = []
    for key, rows in by_measure(means).items():
        direction = str(rows["better"].iloc[0])
        own = rows[(rows["method"] != RANDOM) & rows["mean"].notna()]
        if own.empty:
            continue
        order = own.sort_values("mean", ascending=direction == "lower", kind="stable")
        names = [str(name) for name in order["method"]]
        best = names[0]
        beside = tuple(
            name
            for name in names
            if name == best or not compared.better(key, best, name, direction)
        )
        has = "attention" in names
        versus = "alike"
        if has and RANDOM in set(rows["method"]):
            if compared.better(key, "attention", RANDOM, direction):
                versus = "better"
            elif compared.better(key, RANDOM, "attention", direction):
                versus = "worse"
        found.append(
            First(
                *key,
                best=best,
                alone=len(beside) == 1 and len(names) > 1,
                beside=beside,
                attention=names.index("attention") + 1 if has else None,
                attention_alone=has and beside == ("attention",) and len(names) > 1,
                attention_beside="attention" in beside,
                attention_random=versus,
                methods=len(names),
            )
        )
    return found


def findings(first: list[First], agreement: pd.DataFrame) -> list[Finding]:
    """Answer the paper's question, and what belongs to it.

    Args:
        first: what `firsts` gives.
        agreement: the table `agreement` of a comparison.
    """
    made = []
    levels = (
        (WORDS, "when words of the input are erased and the rest is encoded again"),
        (LAYER, "when items are erased at the attention layer, whose weights are attention"),
        (HUMAN, "when scores are compared with the words that people marked"),
    )
    for level, when in levels:
        own = [one for one in first if one.level == level and one.attention is not None]
        if own:
            made.append(_attention_first(own, when))
    for level, when in levels:
        own = [one for one in first if one.level == level]
        if own:
            made.append(_who_first(own, when))
    for level, when in levels:
        own = [one for one in first if one.level == level and one.attention is not None]
        if own:
            made.append(_beyond_chance(own, when))
    made += _agreement(agreement)
    return made


def _attention_first(own: list[First], when: str) -> Finding:
    """Say whether attention ever comes first."""
    alone = [title(one.measure, one.grid) for one in own if one.attention_alone]
    shared = [
        title(one.measure, one.grid)
        for one in own
        if one.attention_beside and not one.attention_alone
    ]
    behind = [one.attention or 0 for one in own if not one.attention_beside]
    parts = [f"Attention alone comes first for {len(alone) or 'none'} of {len(own)} measures"]
    parts[0] += f": {'; '.join(alone)}." if alone else "."
    if shared:
        parts.append(f"It shares the first place for {len(shared)}: {'; '.join(shared)}.")
    if behind:
        low, high = min(behind), max(behind)
        places = f"place {low}" if low == high else f"places {low} to {high}"
        parts.append(
            f"Another method is surely better for {len(behind)}, where attention has {places} of "
            f"{own[0].methods}."
        )
    return Finding(
        f"Does attention ever come first, {when}?",
        " ".join(parts),
        "Alone: the 95 % interval of the mean difference to every other method is on the better "
        "side of 0. Shared: no method of the best mean is surely better.",
    )


def _who_first(own: list[First], when: str) -> Finding:
    """Say which methods come first."""
    counts: dict[str, list[int]] = {}
    for one in own:
        for name in one.beside:
            of = counts.setdefault(name, [0, 0])
            of[0] += 1
            of[1] += one.alone
    order = sorted(counts.items(), key=lambda item: (-item[1][0], -item[1][1]))
    told = "; ".join(
        f"{name} for {shared}" + (f" ({alone} alone)" if alone else "")
        for name, (shared, alone) in order
    )
    return Finding(
        f"Which methods come first, {when}?",
        f"First, alone or shared, of {len(own)} measures: {told}.",
        "First: the method of the best mean, and those to which its mean difference has an "
        "interval of 95 % that contains 0.",
    )


def _beyond_chance(own: list[First], when: str) -> Finding:
    """Say whether attention is better than a random ranking."""
    of = {
        kind: [title(o.measure, o.grid) for o in own if o.attention_random == kind]
        for kind in ("better", "alike", "worse")
    }
    parts = [f"Better for {len(of['better'])} of {len(own)} measures."]
    if of["alike"]:
        parts.append(f"Not told apart for {len(of['alike'])}: {'; '.join(of['alike'])}.")
    if of["worse"]:
        parts.append(f"Worse for {len(of['worse'])}: {'; '.join(of['worse'])}.")
    return Finding(
        f"Is attention better than a random ranking, {when}?",
        " ".join(parts),
        "Better or worse: the 95 % interval of the mean difference to the mean of the random "
        "rankings does not contain 0.",
    )


def _agreement(agreement: pd.DataFrame) -> list[Finding]:
    """Say which method's scores are most like attention's, and most unlike."""
    found = []
    for level, own in agreement.groupby("level", sort=False):
        with_attention = own[
            ((own["method"] == "attention") | (own["other"] == "attention")) & own["tau"].notna()
        ]
        rows: Any = with_attention.to_dict("records")
        rest: list[dict[str, Any]] = [
            row for row in rows if not {row["method"], row["other"]} <= set(OF_THE_LAYER)
        ]
        if not rest:
            continue

        def other(row: dict[str, Any]) -> str:
            return str(row["other"] if row["method"] == "attention" else row["method"])

        rest.sort(key=lambda row: -row["tau"])
        nearest, farthest = rest[0], rest[-1]
        of = "words" if level == WORDS else "the attention layer’s items"
        told = f"{other(nearest)} the most, tau {nearest['tau']:.2f}"
        if len(rest) > 1:
            told += f", with {other(farthest)} the least, {farthest['tau']:.2f}"
        found.append(
            Finding(
                f"Which saliency method agrees with attention about {of}?",
                f"It agrees with {told}.",
                "Mean over documents of Kendall’s tau-b of the scores; methods of the attention "
                f"layer ({one_of(list(OF_THE_LAYER[1:]))}) are left out.",
            )
        )
    return found
