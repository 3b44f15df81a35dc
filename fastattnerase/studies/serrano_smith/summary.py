"""What a reader who has not read the paper wants first: a sentence a model, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastattnerase.plurals import are, plural
from fastattnerase.studies.serrano_smith.judgement import (
    Grade,
    Judgement,
    at_chance,
    disagreement,
    judge,
    only_decision,
)
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.sentences import PHRASES, listed, percent

_NAMES = "{names}"  # of the models that a step is for
_FEW = 100  # judged instances; with fewer, intervals are wide


# What attention is to models of these grades, in the order of telling.
_GROUPS: dict[str, tuple[Grade, ...]] = {
    "good": ("good",),
    "fair": ("fair",),
    "poor": ("poor", "never"),
    "no better than chance": ("chance",),
    "misleading": ("worse",),
    "no verdict": ("nothing", "not_the_model", "constant", "unknown", "no_choice", "few"),
}


class Opening(NamedTuple):
    """What runs found together, where they are too many to read a sentence on each first.

    Attributes:
        text: how many models attention is a good, fair or poor guide to.
        groups: for each of these the words and the names of the models.
    """

    text: str
    groups: tuple[tuple[str, str], ...]


class Summary(NamedTuple):
    """How a report opens.

    Attributes:
        models: for each run its name and one plain sentence, in the order of the runs.
        next_steps: what to do next, one sentence each, most urgent first.
        opening: of all runs together.
    """

    models: tuple[tuple[str, str], ...]
    next_steps: tuple[str, ...]
    opening: Opening


class _Words(NamedTuple):
    """What the run's record calls an item and an instance."""

    items: str
    instances: str


def summarise(results: Sequence[Result]) -> Summary:
    """Say in plain words what runs found, and what to do next.

    Args:
        results: finished runs.

    Returns:
        A sentence a run, and the steps, each once.

    Example:
        >>> from fastattnerase.studies.serrano_smith.summary import summarise
        >>> summarise([]).models
        ()
    """
    models = []
    grades: dict[str, Grade] = {}
    steps: dict[tuple[int, str], list[str]] = {}
    for result in results:
        found = judge(result)
        grades[result.run.name] = found.grade
        words = _words(result.run.source)
        models.append((result.run.name, _plain(result, found, words)))
        for urgency, step, name in _steps(result, found, words):
            steps.setdefault((urgency, step), []).append(name)
    ordered = sorted(steps, key=lambda step: step[0])
    told = (step.replace(_NAMES, listed(steps[urgency, step])) for urgency, step in ordered)
    return Summary(tuple(models), tuple(told), _opening(grades))


def _opening(grades: dict[str, Grade]) -> Opening:
    """Count the models by what attention is to them."""
    found = {
        words: names
        for words, of_group in _GROUPS.items()
        if (names := [name for name, grade in grades.items() if grade in of_group])
    }
    counts = ", ".join(f"{words} in {len(names)}" for words, names in found.items())
    text = f"Attention as a guide to what {len(grades)} models decide by: {counts}."
    return Opening(
        text,
        tuple((words[0].upper() + words[1:], listed(names)) for words, names in found.items()),
    )


def _words(source: dict[str, Any]) -> _Words:
    items = source.get("item")
    return _Words("items", "instances") if items is None else _Words(str(items), "texts")


def _plain(result: Result, found: Judgement, words: _Words) -> str:
    items, instances = words
    if found.grade == "nothing":
        return f"There is nothing to test: none of the {instances} has two {items} or more."
    if found.grade == "not_the_model":
        differ, compared = disagreement(result)
        return (
            f"No verdict: {differ:,} of {compared:,} {plural(compared, 'decision')} computed from "
            f"the given tensors {are(differ)} not the model's own, so the tensors are not what the "
            "model decided by."
        )
    if found.grade == "constant":
        return (
            f"No verdict: this attention gives all {items} of a text the same weight, so it points "
            "at none of them."
        )
    if found.grade in ("unknown", "chance", "few", "worse"):
        return _against_chance(result, found, words)
    if found.grade == "no_choice":
        return (
            f"Attention has nothing to point at: no decision changes while any of the {items} are "
            "left."
        )
    assert found.gap is not None  # some instance is judged
    assert found.skill is not None
    guide = "poor" if found.grade == "never" else found.grade
    if found.gap == np.inf:
        place, took = "of", f"never changes {percent(found.never)}, although removing others would"
    elif found.gap <= 1:
        place, took = "of", f"changes {percent(found.optimal)} with as few {items} as possible"
    else:
        place, took = "in", f"typically takes {_multiple(found.gap, items)} as needed"
    return (
        f"Attention is a {guide} guide to what this model decides by: {place} the "
        f"{found.judged:,} {instances} whose decision removing some of their {items} can change, "
        f"removing the {items} with the most attention first {took}. {_saved(found.skill, items)}"
    )


def _saved(skill: float, items: str) -> str:
    """Say in plain words what skill is."""
    if skill <= 0:
        return f"It saves none of the {items} that a random order removes needlessly."
    return f"It saves {percent(skill)} of the {items} that a random order removes needlessly."


def _against_chance(result: Result, found: Judgement, words: _Words) -> str:
    pair = result.pairs["attention", "random"]
    head = {
        "worse": "Attention misleads about what this model decides by",
        "chance": "Attention tells no more than chance what this model decides by",
        "few": f"Too few {words.instances} to say whether attention tells what this model decides "
        "by",
        "unknown": "Attention was only compared to chance",
    }[found.grade]
    chance = ", a difference that chance explains" if found.grade == "chance" else ""
    return (
        f"{head}: of the {pair.judged:,} {words.instances} whose decision either changes, removing "
        f"the {words.items} with the most attention first takes fewer {words.items} than removing "
        f"them in a random order in {pair.first_smaller:,} and more in {pair.second_smaller:,}"
        f"{chance}."
    )


def _multiple(gap: float, items: str) -> str:
    if gap < 1.05:
        return f"about as many {items}"
    return f"{gap:.0f} times as many {items}" if gap >= 10 else f"{gap:.1f} times as many {items}"


def _steps(result: Result, found: Judgement, words: _Words) -> Iterator[tuple[int, str, str]]:
    """Yield what to do next for one model: how urgent, 0 before all, the step, and for whom.

    Steps of several models that are the same but for `_NAMES` become one.
    """
    name, counts = result.run.name, result.counts
    items, instances = words
    if found.grade == "not_the_model":
        yield (
            0,
            f"Check the tensors of {_NAMES}, then erase again: are the values what attention sums, "
            "are weights or scores of the same forward pass, and are head_weight and head_bias the "
            "layer right after the sum?",
            name,
        )
    mend = f"Mend {_NAMES} before its attention is looked at: "
    if only_decision(result) is not None:
        yield 1, f"{mend}it decides one class for all {instances}.", name
    elif at_chance(result):
        right = f"{percent(counts.accuracy, 1)} against {percent(counts.majority, 1)}"
        yield (
            1,
            f"{mend}always deciding the most frequent class is about as good.",
            f"{name} ({right})",
        )
    if "tensors" in result.run.source and not counts.compared_with_model:
        yield (
            2,
            f"Store the model's own logits beside the tensors of {_NAMES}: only then is it checked "
            "that they are what the model decided by.",
            name,
        )
    if found.grade in ("poor", "never", "chance", "worse", "constant"):
        yield (
            3,
            f"Do not show the attention of {_NAMES} as an explanation.{_instead(result, items)}",
            name,
        )
    elif found.grade in ("good", "fair"):
        yield (
            4,
            f"Before the attention of {_NAMES} is shown as an explanation, look at the {instances} "
            f"that need more {items} than the smallest set; in multi.parquet of the run's folder "
            "the column gap is above 1 there, or empty.",
            name,
        )
    if 0 < found.judged < _FEW:
        yield (
            5,
            f"Erase from more {instances}, for intervals that are less wide: fewer than {_FEW} "
            f"could be judged of {_NAMES}.",
            f"{name} ({found.judged})",
        )


def _instead(result: Result, items: str) -> str:
    """Say what to show instead: the smallest sets, and the rankings most often as short."""
    if not result.counts.smallest_set.some:
        return ""
    shares = {
        ranking: record.share_optimal.value or 0.0
        for ranking, record in result.multi.items()
        if ranking not in ("random", "minimal")
    }
    most = max(shares.values())
    best = [PHRASES.get(ranking, ranking) for ranking, share in shares.items() if share == most]
    if PHRASES["attention"] in best or most == 0:
        return " Show the smallest sets instead."
    return (
        f" Show the smallest sets instead, or rank by {listed(best, 'or')}: most often as few "
        f"{items} as possible."
    )
