"""What the numbers of a run say, in words, from saved results alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastattnerase.plurals import are, have, plural
from fastattnerase.statistics.shares import disagrees
from fastattnerase.studies.serrano_smith.config import CELLS
from fastattnerase.studies.serrano_smith.dumped import of_dump
from fastattnerase.studies.serrano_smith.judgement import (
    CHANCE,
    EVEN,
    Judgement,
    at_chance,
    disagreement,
    is_constant,
    is_even,
    judge,
    only_decision,
)
from fastattnerase.studies.serrano_smith.residual import left, residual
from fastattnerase.studies.serrano_smith.result import Counts, MultiWeight, Result

# How a ranking is called, here and everywhere, in a sentence.
PHRASES = {
    "random": "a random order",
    "attention": "attention",
    "gradient": "the gradient",
    "product": "the product of attention and gradient",
    "minimal": "the smallest sets",
}
NEAR_BIAS = 0.02
NEVER = "never"  # a median that is among the instances that never flip
_NOTHING = "No instance that could be analysed has two items or more, so there is nothing to rank."


def percent(value: float | None, digits: int = 0) -> str:
    """Write a share as a percentage; a dash where it is undefined, `never` where infinite.

    A share that is not everything or nothing is not written as 100 % or 0 %.
    """
    if value is None:
        return "–"
    if value == np.inf:
        return NEVER
    while digits < 4 and 0 < value < 1 and round(100 * value, digits) in (0, 100):
        digits += 1
    return f"{100 * value:.{digits}f}\u00a0%"


def listed(names: Sequence[str], last: str = "and") -> str:
    """List names as a sentence does: `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def number(value: float | None, digits: int = 2) -> str:
    """Write a number, never −0; a dash where it is undefined, `never` where infinite."""
    if value == np.inf:
        return NEVER
    if value is None:
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def times(value: float | None) -> str:
    """Write a multiple, two significant digits below 10; a dash where undefined, or `never`.

    One that is more than 1 is not written as 1.
    """
    if value is None:
        return "–"
    if value == np.inf:
        return NEVER
    if 1 < value < 1.05:
        return f"{max(value, 1.01):.2f}×"
    return f"{value:.0f}×" if value >= 10 else f"{value:.1f}×"


def median_fraction(result: Result, ranking: str) -> float | None:
    """Give the median fraction erased at the first flip over all instances, infinite for never."""
    return result.multi[ranking].counted.fraction.median.value


def typical_gap(result: Result, ranking: str) -> float | None:
    """Give the median gap of a ranking to the smallest sets, where never flipping is infinite.

    Args:
        result: a finished run.
        ranking: its name.

    Returns:
        The median over the instances that some, not all, of their items can flip; None where
        there are none.
    """
    return result.multi[ranking].counted.gap.median.value


def skew(result: Result) -> str:
    """Say how far attention is from even: mean KL from uniform weights, and the largest weight."""
    uniform = result.uniform
    largest = percent(uniform.largest.mean.value, 1)
    return f"mean KL {_small(uniform.kl.mean.value)}, largest weight {largest}"


# --- the verdict ---------------------------------------------------------------------------------


def verdict(result: Result) -> str:
    """Say how far attention explains the model's decisions; a failed premise instead, if any.

    It goes by attention's skill, 0 for a random order and 1 for the smallest sets; the numbers
    beside it are over the instances that some, not all, of their items can flip. Where attention
    needs fewer items than a random order no more often than that needs fewer than it (sign test),
    it is no guide, however few they are.
    """
    found = judge(result)
    if found.grade in ("nothing", "not_the_model", "constant"):
        return premises(result)[0]
    if found.grade == "unknown":
        return (
            "The smallest sets are not known here, so attention is only compared to a random "
            f"order. {_against_random(result)}"
        )
    if found.grade == "no_choice":
        return (
            "Nothing to choose: no decision changes before everything is erased, so every "
            "ranking is as good as any other."
        )
    return _grade(result, found)


def _scope(result: Result) -> str:
    """Name the group that the verdict is about."""
    sets = result.counts.smallest_set
    return (
        f"Erasing some, not all, items can flip {percent(sets.some / sets.known)} of the decisions "
        f"({sets.some:,} of {sets.known:,})."
    )


def _grade(result: Result, found: Judgement) -> str:
    if found.grade == "never":
        return f"{_scope(result)} Erasing by attention flips none of these: other items would."
    if found.grade in ("worse", "chance", "few"):
        among = f"{_scope(result)} Among these, erasing by attention {_needs(found)}."
        few = "Too few decisions for a verdict. " if found.grade == "few" else ""
        return f"{few}{_against_random(result)} {among}"
    guide = {
        "good": "a good guide to what decides",
        "fair": "a fair guide, not an optimal one",
        "poor": "a poor guide to what decides",
    }[found.grade]
    return (
        f"{_scope(result)} Among these, attention is {guide}: its skill is {number(found.skill)} "
        f"(0: a random order, 1: the smallest sets), and erasing by it {_needs(found)}."
    )


def _needs(found: Judgement) -> str:
    """Say what erasing by attention takes against the smallest set."""
    assert found.gap is not None  # some instance is judged
    if found.gap == np.inf:
        return f"never flips {percent(found.never)} of them, although other items would"
    if found.gap <= 1:
        return f"flips {percent(found.optimal)} with as few items as the smallest set"
    return (
        f"needs {times(found.gap)} the items of the smallest set (median), and no more than it in "
        f"{percent(found.optimal)}"
    )


def facts(result: Result) -> list[tuple[str, str]]:
    """Give the numbers that stand beside the verdict, each with the group that it is of."""
    counts, multi = result.counts, result.multi
    known: list[tuple[str, str]] = []
    if counts.accuracy is not None:
        known.append(("Accuracy on these data", percent(counts.accuracy, 1)))
    if counts.majority is not None:
        known.append(("Accuracy of the most frequent class", percent(counts.majority, 1)))
    attention = multi["attention"]
    known += [
        ("Instances analysed", f"{counts.analysed:,}"),
        ("Of these, flip by attention", percent(attention.share_flipped.value)),
        (
            "Erased by attention, median of all, never beyond everything",
            percent(median_fraction(result, "attention")),
        ),
    ]
    if result.run.config.never_flips != "one":  # then these medians are not the paper's
        known += [
            (
                "The same of those that it flips, as in the paper",
                percent(attention.fraction.median.value),
            )
        ]
    if "minimal" in multi:
        known += [
            (
                "Smallest set, median of all, never beyond everything",
                percent(median_fraction(result, "minimal")),
            ),
            (
                f"Attention over smallest set, median of the {counts.smallest_set.some:,} that "
                "some, not all, items can flip",
                times(typical_gap(result, "attention")),
            ),
            (
                "Skill of attention: 0 a random order, 1 the smallest sets",
                number(attention.counted.skill.overall.value),
            ),
        ]
    return [
        *known,
        ("Attention’s divergence from uniform, mean KL", _small(result.uniform.kl.mean.value)),
        ("Largest weight, mean", percent(result.uniform.largest.mean.value, 1)),
    ]


# --- what must be known before reading any number ------------------------------------------------


def premises(result: Result) -> list[str]:
    """Say which premises of the experiment fail: one sentence each, the verdict is withheld."""
    if result.counts.analysed == 0:
        return [_NOTHING]
    return [text for text in (_not_the_model(result), _constant(result)) if text]


def notices(result: Result) -> list[str]:
    """Say what a reader of a run's numbers must know before reading any: one sentence each."""
    counts = result.counts
    bad = counts.excluded["non_finite"]
    holds = "holds" if bad == 1 else "hold"
    every = f"{counts.instances:,} {plural(counts.instances, 'instance')}"
    left_out = f"{bad:,} of {every} {holds} NaN or infinity: left out."
    texts = [
        *premises(result)[1:],  # the first is the verdict
        *of_dump(result.run.source),
        left_out if bad else "",
        _few(counts),
        _even(result),
        _at_chance(result),
        _one_decision(result),
        _no_smallest_sets(result),
        residual(result),
    ]
    return [text for text in texts if text]


def _no_smallest_sets(result: Result) -> str:
    model = result.run.source.get("model_config")
    if result.counts.smallest_set.known or not result.counts.analysed:
        return ""
    by_function = isinstance(model, dict) and model.get("decoder") == "tanh"
    return (
        "Smallest sets are not known: "
        + (
            "the model’s decoder, tanh, is not linear in what attention averages"
            if by_function
            else "the exact search is for linear heads and one attention head"
        )
        + ". So rankings are compared with one another and with random orders, and there is no "
        "skill."
    )


def _few(counts: Counts) -> str:
    if not 0 < counts.analysed < counts.instances / 2:  # of none that is said first
        return ""
    single = counts.excluded["empty"] + counts.excluded["length_1"]
    return (
        f"Only {counts.analysed:,} of {counts.instances:,} {plural(counts.instances, 'instance')} "
        f"{are(counts.analysed)} analysed, so the numbers say little of the "
        f"others: {single:,} {have(single)} a single item or none."
    )


def _not_the_model(result: Result) -> str:
    differ, compared = disagreement(result)
    if not disagrees(differ, compared):
        return ""
    return (
        f"No verdict: before anything is erased, {differ:,} of {compared:,} "
        f"{plural(compared, 'decision')} computed from these values, weights and head "
        f"{are(differ)} not the model's own, so the numbers are not about "
        "that model."
    )


def _constant(result: Result) -> str:
    if not is_constant(result):
        return ""
    return (
        "No verdict: attention is constant. All items of an instance have the same weight, so "
        "erasing by attention is erasing by position."
    )


def _even(result: Result) -> str:
    if not is_even(result):
        return ""
    return (
        f"Attention is nearly uniform: its mean divergence from equal weights is "
        f"{_small(result.uniform.kl.mean.value)} nats, below {EVEN}, and the largest weight of an "
        f"instance is {percent(result.uniform.largest.mean.value, 1)} on average. So its order "
        "rests on small differences of weights, and the item of most attention has hardly more "
        "than any other: the numbers say little of attention that prefers some items."
    )


def _at_chance(result: Result) -> str:
    if not at_chance(result) or only_decision(result) is not None:  # which says it better
        return ""
    counts = result.counts
    return (
        f"The model is hardly better than chance: {percent(counts.accuracy, 1)} of its decisions "
        f"are right, and deciding the most frequent class always is right in "
        f"{percent(counts.majority, 1)}, so there is little that attention could explain."
    )


def _one_decision(result: Result) -> str:
    label = only_decision(result)
    if label is None:
        return ""
    return (
        f"The model decides “{result.run.classes[label]}” for every instance, so it has learned "
        "little that these numbers could be about."
    )


# --- paragraphs ----------------------------------------------------------------------------------


def paragraphs(result: Result) -> list[str]:
    """Say what a run's numbers mean, one thought a paragraph.

    Args:
        result: a finished run.

    Returns:
        Plain text.
    """
    if result.counts.analysed == 0:
        return [_NOTHING]
    texts = [
        _sets(result),
        _why_not(result),
        _singles(result),
        _theory(result),
    ]
    return [text for text in texts if text]


def _sets(result: Result) -> str:
    records = result.multi
    known = ("attention", "gradient", "product")
    clauses = [
        f"by {PHRASES[ranking]} {_flips(records[ranking], left(result))}"
        for ranking in ("attention", "minimal", "gradient", "product", "random")
        if ranking in records
    ]
    text = "; ".join(clauses) + "."
    text = text[0].upper() + text[1:]
    sets = result.counts.smallest_set
    if sets.some:
        optimal = [
            f"by {PHRASES[ranking]} {percent(records[ranking].share_optimal.value)}"
            for ranking in known
        ]
        text += (
            f" Of the {sets.some:,} decisions that some, not all, items can flip, "
            f"{listed(optimal)} are flipped with no more items than the smallest set."
        )
    if judge(result).grade in ("worse", "chance", "few", "unknown"):
        return text  # the verdict says it
    return f"{text} {_against_random(result)}".rstrip()


def _flips(record: MultiWeight, rest: str) -> str:
    """Say how many decisions an order flips, and how soon half of all are flipped."""
    share = f"{percent(record.share_flipped.value)} of the decisions flip"
    median = record.counted.fraction.median.value
    if median is None or median == np.inf:
        return share
    if median < 1:
        return f"{share}, half of all with at most {percent(median)} of the items erased"
    return f"{share}, and half of all only when everything is erased and the {rest} decides"


def _against_random(result: Result) -> str:
    pair = result.pairs["attention", "random"]
    if pair.judged == 0:
        return ""
    better = pair.first_smaller > pair.second_smaller
    several = len(result.seeds) > 1
    test = "bootstrap of seeds and instances" if several else "sign test"
    if pair.p_sign > CHANCE:
        text = "Attention is not told apart from a random order"
    else:
        text = f"Attention is a {'better' if better else 'worse'} guide than a random order"
    return (
        f"{text}: it needs fewer items in {pair.first_smaller:,} of the {pair.judged:,} "
        f"{plural(pair.judged, 'decision')} that either flips, more in {pair.second_smaller:,} and "
        f"as many in {pair.ties:,} ({test}, p {pair.p_sign:.2g})."
    )


def _why_not(result: Result) -> str:
    below = [r for r in result.multi.values() if (r.share_flipped.value or 0.0) < 0.5]
    if not below:
        return ""
    counts = result.counts
    names = [PHRASES.get(record.ranking, record.ranking) for record in below]
    text = f"Fewer than half of the decisions flip under {listed(names)}. "
    same, analysed = counts.label_is_bias_label, counts.analysed
    classes = result.run.classes
    bias_labels = counts.bias_label_counts
    if len(bias_labels) == 1:
        name = classes[int(next(iter(bias_labels)))]
        text += f"Without any item the model's {left(result)} decides “{name}”. "
    text += (
        f"{same:,} of the {analysed:,} {plural(analysed, 'instance')} ({percent(same / analysed)}) "
        f"{are(same)} decided as the {left(result)} decides: erasing everything gives the "
        "same decision again, so only a partial erasure can flip them, and that needs items that "
        "speak for another class."
    )
    sets = counts.smallest_set
    if sets.none:
        text += f" No set of items at all changes {_decisions(sets.none)}."
    if sets.everything:
        text += f" Nothing less than everything changes {_decisions(sets.everything)}."
    return text


def _decisions(count: int) -> str:
    return f"{count:,} decision{'' if count == 1 else 's'}"


def _singles(result: Result) -> str:
    record = result.single["attention"]
    cells = record.contingency
    both, top, random, neither = (cells[cell].value for cell in CELLS)
    if both is None or top is None or random is None:
        return ""
    rule = result.run.config.random_item
    # By the other rules it can be the same item.
    item = "a random other item" if rule == "different" else "a random item"
    text = (
        f"Erasing only the item with the most attention changes {percent(top + both, 1)} of the "
        f"decisions, erasing only {item} {percent(random + both, 1)}; in {percent(neither, 1)} "
        "neither does. "
    )
    ahead = record.expected_contingency[rule]
    text += (
        f"In exact expectation over {item}, only the first does in "
        f"{percent(ahead['only_top'].value, 1)} and only the second in "
        f"{percent(ahead['only_random'].value, 1)}. "
    )
    negative = record.negative_delta_js.value
    exact = record.expected_negative.value
    text += (
        f"The top item shifts the output distribution less than the random one in "
        f"{percent(negative, 1)} of the instances"
        + ("" if exact is None else f" ({percent(exact, 1)} in exact expectation)")
        + f"; the median difference ΔJS is {_small(record.delta_js.median.value)}."
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
            "With two classes and equal biases, as here, the product of attention and gradient is "
            "the best possible ranking by proof; its gap of 1 is no finding."
        )
    if difference < NEAR_BIAS:
        return (
            "With two classes and equal biases the product of attention and gradient is the best "
            f"possible ranking by proof; here the biases differ by only {difference:.2g}, so its "
            "small gap is expected."
        )
    return ""
