"""What the numbers of a run say, in words, from saved results alone."""

from __future__ import annotations

import numpy as np

from fastattnerase.studies.serrano_smith.config import CELLS
from fastattnerase.studies.serrano_smith.result import Result

PHRASES = {
    "random": "a random order",
    "attention": "attention",
    "gradient": "the gradient",
    "product": "attention times gradient",
    "minimal": "the smallest possible set",
}
# The verdict on attention: bounds of the median of first flip over smallest set, where never
# flipping counts as infinitely many.
GOOD, FAIR = 1.1, 2.0
CHANCE = 0.05  # of the sign test against a random order
NEAR_BIAS = 0.02
_CONSTANT = 1e-12  # mean divergence of attention from even weights
_NOTHING = "No instance that could be analysed has two items or more, so there is nothing to rank."


def percent(value: float | None, digits: int = 0) -> str:
    """Write a share as a percentage; a dash where it is undefined."""
    return "–" if value is None else f"{100 * value:.{digits}f}\u00a0%"


def number(value: float | None, digits: int = 2) -> str:
    """Write a number, never -0; a dash where it is undefined."""
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def times(value: float | None) -> str:
    """Write a multiple, two significant digits below 10; a dash where it is undefined."""
    if value is None:
        return "–"
    if value == np.inf:
        return "∞"
    return f"{value:.0f}×" if value >= 10 else f"{value:.1f}×"


def typical_gap(result: Result, ranking: str) -> float | None:
    """Give the median gap of a ranking to the smallest sets, where never flipping is infinite.

    Args:
        result: a finished run.
        ranking: its name.

    Returns:
        The median over the instances that a part of their items flips; None where there are none.
    """
    gaps = result.gaps(ranking)
    return float(np.median(gaps)) if len(gaps) else None


def verdict(result: Result) -> str:
    """Say in one sentence how far attention explains the model's decisions.

    Judged are the instances that a part of their items flips. Where attention never flips one of
    them, it needs infinitely many items. Where it needs fewer items than a random order no more
    often than that needs fewer than it (sign test), it is no guide, however few they are.
    """
    counts = result.counts
    if counts.analysed == 0:
        return _NOTHING
    sets = counts.smallest_set
    if not sets.known:
        return "The smallest sets are not known here, so attention is only compared to rankings."
    if not sets.some:
        return (
            "Nothing to choose: no decision changes before everything is erased, so every "
            "ranking is as good as any other."
        )
    share = percent(sets.some / sets.known)
    scope = (
        ""
        if sets.some == sets.known
        else f"In the {share} of instances that a part of their items flips, "
    )
    gaps = result.gaps("attention")
    gap = float(np.median(gaps))
    optimal = float((gaps <= 1).mean())
    never = float(np.isinf(gaps).mean())
    chance = result.pairs["attention", "random"]
    worse = chance.first_smaller < chance.second_smaller
    if never == 1:
        text = "no decision changes under attention although some set would change it."
    elif chance.p_sign > CHANCE or worse:
        text = (
            "attention is a worse guide than a random order"
            if worse and chance.p_sign <= CHANCE
            else "attention is not told apart from a random order"
        )
        text += (
            f": it needs fewer items in {chance.first_smaller:,} instances and more in "
            f"{chance.second_smaller:,}; "
        )
        text += (
            f"erasing by it never changes the decision in {percent(never)}, though a set would."
            if never >= 0.5
            else f"it typically needs {times(gap)} the items of the smallest set that changes the "
            "decision."
        )
    elif gap <= GOOD:
        text = (
            "attention is a good guide to what decides: typically erasing by it needs about as "
            f"few items as any choice could, and exactly as few in {percent(optimal)}."
        )
    elif gap <= FAIR:
        text = (
            "attention is a fair guide, not an optimal one: erasing by it typically needs "
            f"{times(gap)} the items of the smallest set that changes the decision."
        )
    elif never >= 0.5:
        text = (
            "attention is a poor guide to what decides: erasing by it never changes the decision "
            f"in {percent(never)}, although some set would change it."
        )
    else:
        text = (
            "attention is a poor guide to what decides: erasing by it typically needs "
            f"{times(gap)} the items of the smallest set that changes the decision."
        )
    return scope + (text if scope else text[0].upper() + text[1:])


def paragraphs(result: Result) -> list[str]:
    """Say what a run's numbers mean, one thought a paragraph.

    Args:
        result: a finished run.

    Returns:
        Plain text.
    """
    counts = result.counts
    if counts.analysed == 0:
        return [_NOTHING]
    texts = [
        _constant(result),
        _one_decision(result),
        _sets(result),
        _why_not(result),
        _singles(result),
        _theory(result),
    ]
    return [text for text in texts if text]


def notices(result: Result) -> list[str]:
    """Say what a reader of a run's numbers must know before reading any: one sentence each."""
    counts = result.counts
    bad = counts.excluded["non_finite"]
    left_out = f"{bad:,} of {counts.instances:,} instances hold NaN or infinity: left out."
    texts = [left_out if bad else "", _constant(result)]
    return [text for text in texts if text]


def _constant(result: Result) -> str:
    divergence = result.uniform.js.mean.value
    if divergence is None or divergence > _CONSTANT:
        return ""
    return (
        "Attention is constant: all items of an instance have the same weight, so erasing by "
        "attention is erasing by position."
    )


def _one_decision(result: Result) -> str:
    decisions = result.counts.label_counts
    if len(decisions) > 1:
        return ""
    name = result.run.classes[int(next(iter(decisions)))]
    return (
        f"Beware: the model decides “{name}” for every instance, so it has learned little that "
        "these numbers could be about."
    )


def _sets(result: Result) -> str:
    records = result.multi

    def flips(ranking: str) -> str:
        record = records[ranking]
        median = record.fraction.median.value
        after = "" if median is None else f", after a median of {percent(median)} of the items"
        return f"{percent(record.share_flipped.value)} of the decisions{after}"

    sentence = f"Erasing in order of attention changes {flips('attention')}. "
    if "minimal" in records:
        sentence += f"The smallest sets that can change them do so for {flips('minimal')}. "
    sentence += "; ".join(
        f"{words}: {flips(ranking)}"
        for ranking, words in (
            ("gradient", "In order of the gradient"),
            ("product", "of attention times gradient"),
            ("random", "at random"),
        )
    )
    sentence += "."
    known = ("attention", "gradient", "product")
    optimal = {r: records[r].share_optimal.value for r in known}
    sets = result.counts.smallest_set
    if sets.some:
        best = max(known, key=lambda r: optimal[r] or 0.0)
        sentence += (
            f" In the {sets.some:,} instances where a part of the items suffices, attention "
            f"needs no more than the smallest set in {percent(optimal['attention'])}"
        )
        sentence += (
            ", more often than either alternative."
            if best == "attention"
            else f", {PHRASES[best]} in {percent(optimal[best])}."
        )
    return sentence + _against_random(result)


def _against_random(result: Result) -> str:
    pair = result.pairs["attention", "random"]
    if pair.judged == 0:
        return ""
    better = pair.first_smaller > pair.second_smaller
    if pair.p_sign > CHANCE:
        text = "Attention and a random order are not told apart"
    else:
        text = f"Attention is {'better' if better else 'worse'} than a random order"
    return (
        f" {text}: it needs fewer items in {pair.first_smaller:,} of the {pair.judged:,} "
        f"instances that either flips, more in {pair.second_smaller:,} (sign test, p "
        f"{pair.p_sign:.2g})."
    )


def _why_not(result: Result) -> str:
    below = [r for r in result.multi.values() if (r.share_flipped.value or 0.0) < 0.5]
    if not below:
        return ""
    counts = result.counts
    names = [PHRASES.get(record.ranking, record.ranking) for record in below]
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    text = f"Fewer than half of the decisions flip under {listed}. "
    same, analysed = counts.label_is_bias_label, counts.analysed
    classes = result.run.classes
    bias_labels = counts.bias_label_counts
    if len(bias_labels) == 1:
        name = classes[int(next(iter(bias_labels)))]
        text += f"Without any item the model's bias alone decides “{name}”. "
    text += (
        f"{same:,} of the {analysed:,} instances ({percent(same / analysed)}) are decided as the "
        "bias alone decides: erasing everything gives the same decision again, so only a partial "
        "erasure can flip them, and that needs items that speak for another class."
    )
    sets = counts.smallest_set
    if sets.known:
        text += (
            f" No set of items at all changes the decision of {sets.none:,} instances, and "
            f"nothing less than everything that of {sets.everything:,}."
        )
    return text


def _singles(result: Result) -> str:
    record = result.single["attention"]
    cells = record.contingency
    both, top, random, neither = (cells[cell].value for cell in CELLS)
    if both is None or top is None or random is None:
        return ""
    text = (
        f"Erasing only the item with the most attention changes {percent(top + both, 1)} of the "
        f"decisions, erasing only a random other item {percent(random + both, 1)}; in "
        f"{percent(neither, 1)} neither does. "
    )
    ahead = record.expected_contingency[result.run.config.random_item]
    text += (
        f"Averaged over all other items instead of one drawn, the top item alone flips "
        f"{percent(ahead['only_top'].value, 1)} and another alone "
        f"{percent(ahead['only_random'].value, 1)}. "
    )
    negative = record.negative_delta_js.value
    text += (
        f"The top item shifts the output distribution less than the random one in "
        f"{percent(negative, 1)} of the instances; the median difference ΔJS is "
        f"{_small(record.delta_js.median.value)}."
    )
    return text


def _small(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{round(value, 9) + 0.0:.2g}"


def _theory(result: Result) -> str:
    head = result.head
    if head.classes != 2 or head.bias is None:
        return ""
    difference = abs(head.bias[0] - head.bias[1])
    if difference == 0:
        return (
            "With two classes and equal biases, as here, attention times gradient is the best "
            "possible ranking by proof; its gap of 1 is no finding."
        )
    if difference < NEAR_BIAS:
        return (
            f"With two classes and equal biases attention times gradient is the best possible "
            f"ranking by proof; here the biases differ by only {difference:.2g}, so its small gap "
            f"is expected."
        )
    return ""
