"""What exact erasure alone can say, in words: of each run, and of all runs together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastattnerase.plurals import counted
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.studies.serrano_smith.exact import OTHERWISE, PARTS, SAME, Exact, Number
from fastattnerase.studies.serrano_smith.records import architecture
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.sentences import PHRASES, listed, number, percent

MOST = 0.5  # of what attention erases, above which late flips are called the model's doing
_KEPT = {
    "lasting": "decisions after the first flip",
    "items": "how many items move the output more than the top one",
    "curves": "curves over prefixes",
}
PARTS_SAY = {  # title, and what is to be known before reading
    "minimum": (
        "Whose doing late flips are",
        "The smallest set that changes the decision is exact, so it says how much must go whatever "
        "the order. Where it is most of the text, a late flip is the model’s doing and no fault of "
        "the ranking. The last columns: of all that an order erases until the first flip, what no "
        "other could spare (the sum of the smallest sets over the sum of what is erased, never "
        "counted as everything).",
    ),
    "lasting": (
        "First flips that erasing more undoes",
        "The paper stops at the first flip. Here the decision after every prefix is known: a flip "
        "is undone where erasing more of the same order, though not everything, gives the first "
        "decision back. Erasing everything is left out, since the order plays no part there.",
    ),
    "items": (
        "The top item among all items",
        "Every item is erased alone, so the random item of the single-item test needs no draw: "
        "P(ΔJS < 0) is the share of the other items that move the output more than the top one, "
        "and its rank by JS among all items is exact.",
    ),
    "skill": (
        "Skill by kind of instance",
        "By length, class, confidence and whether the model decides as its bias alone: what is "
        "decided so at first can only be flipped midway, since erasing everything gives the same "
        "decision again. Quarters are of the instances of all seeds.",
    ),
    "curves": (
        "Over every prefix",
        "Means over the instances at the same fraction of their items erased, and the exact area "
        "under each. Bands are bootstrap intervals of the means; quartiles over the instances are "
        "in the file of points. Random is the mean over its orders.",
    ),
}
_SHOWN = ("attention", "gradient", "product", "random")


def lacking(results: Sequence[Result], said: Sequence[Exact]) -> list[str]:
    """Say which runs are of a version that kept less, and how to have the rest."""
    found: dict[str, list[str]] = {}
    for result, exact in zip(results, said, strict=True):
        if exact.lacking:
            what = listed([_KEPT[part] for part in exact.lacking])
            found.setdefault(what, []).append(result.run.name)
    lines = [
        f"{listed(names)}: erased by a version that did not keep {what}; erase again into a new "
        "folder to have these parts."
        for what, names in found.items()
    ]
    unknown = [
        result.run.name
        for result, exact in zip(results, said, strict=True)
        if exact.numbers and exact.find("smallest_fraction", "minimal") is None
    ]
    if unknown:
        lines.append(
            f"{listed(unknown)}: smallest sets are not known, as with several attention heads, and "
            "what goes by them is left out."
        )
    return lines


def of_run(result: Result, exact: Exact) -> dict[str, str]:
    """Say what each part found on a run; a part that could not be made has no sentence."""
    makers = {
        "minimum": _minimum,
        "lasting": _lasting,
        "items": _items,
        "skill": _skill,
        "curves": _curves,
    }
    made = {n.part for n in exact.numbers}
    return {part: makers[part](result, exact) for part in PARTS if part in made}


def _minimum(result: Result, exact: Exact) -> str:
    spared = exact.value("unavoidable", "attention")
    groups = _of(exact, "smallest_fraction", "length")
    by_length = ""
    if len(groups) > 1:
        ends = [f"{percent(n.estimate.value)} ({_range(n)})" for n in (groups[0], groups[-1])]
        by_length = f", from {ends[0]} in the shortest quarter to {ends[1]} in the longest"
    # A share of nothing is undefined only without instances.
    whose = (
        "flips are late because of the model, more than of the order"
        if (spared.value or 0.0) > MOST
        else "most of what attention erases another order would spare"
    )
    return (
        f"The smallest set that changes the decision is {_share(_smallest(exact))} of the items in "
        f"the median{by_length}. Of all that erasing by attention takes, no order could spare "
        f"{_share(spared)}: {whose}."
    )


def _smallest(exact: Exact) -> Estimate:
    return exact.value("smallest_fraction", "minimal")


def _range(found: Number) -> str:
    """Give the range of a group whose name begins with the number of its quarter."""
    return found.group.partition(": ")[2]


def _of(exact: Exact, quantity: str, by: str, ranking: str = "minimal") -> list[Number]:
    return [n for n in exact.numbers if (n.quantity, n.by, n.ranking) == (quantity, by, ranking)]


def _lasting(result: Result, exact: Exact) -> str:
    shares = [
        f"by {PHRASES[ranking]} {_share(exact.value('undone', ranking))}" for ranking in _SHOWN
    ]
    first, last = (
        exact.value(f"{which}_fraction", "attention").value for which in ("first", "lasting")
    )
    return (
        "Of the decisions that an order changes, erasing more, though not everything, changes back "
        f"{listed(shares)}. Median fraction of the items that attention erases until the first "
        f"change: {percent(first)}; until the decision stays changed: {percent(last)}."
    )


def _items(result: Result, exact: Exact) -> str:
    rank = exact.value("rank", "attention")
    others = [
        f"{percent(exact.value('first', ranking).value)} by {PHRASES[ranking]}"
        for ranking in ("gradient", "product")
    ]
    return (
        "Of all items erased alone, the one with most attention moves the output most in "
        f"{_share(exact.value('first', 'attention'))} of the instances (the top one "
        f"{listed(others)}); its median rank is {number(rank.value, 0)}. Against another item at "
        f"random P(ΔJS < 0) is {_share(exact.value('negative', 'attention'))}, exactly."
    )


def _skill(result: Result, exact: Exact) -> str:
    text = (
        f"The skill of attention is {_number(exact.value('skill', 'attention'))} over all instances"
    )
    same, other = (exact.find("skill", "attention", "bias", group) for group in (SAME, OTHERWISE))
    if same is not None and other is not None:
        flips = [
            percent(exact.value("some_set_flips", "", "bias", group).value)
            for group in (SAME, OTHERWISE)
        ]
        text += (
            f": {_number(same.estimate)} where the model decides as its bias alone, which a part "
            f"of the items can flip in {flips[0]}, and {_number(other.estimate)} where it decides "
            f"otherwise ({flips[1]})"
        )
    for by, words in (("length", "from the shortest quarter to the longest"),
                      ("confidence", "from the least sure to the most")):  # fmt: skip
        found = _of(exact, "skill", by, "attention")
        if len(found) > 1:
            text += f"; {words} {', '.join(number(n.estimate.value) for n in found)}"
    return f"{text}."


def _curves(result: Result, exact: Exact) -> str:
    texts = []
    for quantity, words in (
        ("js", "The area under the JS divergence over the fraction erased (larger: sooner) is"),
        ("label_prob", "that under the probability of the decision (smaller: sooner)"),
    ):
        areas = [
            f"{_area(exact.value(f'{quantity}_area', ranking))} by {PHRASES[ranking]}"
            for ranking in _SHOWN
        ]
        texts.append(f"{words} {listed(areas)}")
    return f"{'; '.join(texts)}."


def _share(estimate: Estimate) -> str:
    """Write a share with its interval."""
    if estimate.value is None:
        return "–"
    low, high = percent(estimate.low, 1), percent(estimate.high, 1)
    return f"{percent(estimate.value, 1)} ({low} to {high})"


def _number(estimate: Estimate) -> str:
    """Write a number with its interval."""
    if estimate.value is None:
        return "–"
    return f"{number(estimate.value)} ({number(estimate.low)} to {number(estimate.high)})"


def _area(estimate: Estimate) -> str:
    """Write an area, which may be small, with its interval."""
    if estimate.value is None:
        return "–"
    return f"{estimate.value:.3g} ({estimate.low:.3g} to {estimate.high:.3g})"


# --- over all runs -------------------------------------------------------------------------------


def over_runs(results: Sequence[Result], said: Sequence[Exact]) -> dict[str, str]:
    """Say what each part found on all runs; nothing of a single run."""
    if len(results) < 2:
        return {}
    texts = {
        "minimum": " ".join(_of_encoders(results, said)),
        "lasting": _undone(said),
        "items": _ranks(said),
        "skill": _of_bias(said),
        "curves": _areas(said),
    }
    return {part: text for part, text in texts.items() if text}


def _ends(values: Sequence[float]) -> str:
    """Write the range of shares, one where they are written alike."""
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def _of_encoders(results: Sequence[Result], said: Sequence[Exact]) -> Iterator[str]:
    """Say for models of the same parts how large smallest sets are, and what attention takes."""
    found: dict[str, list[tuple[float, float]]] = {}
    for result, exact in zip(results, said, strict=True):
        parts = architecture(result)
        median, spared = _smallest(exact).value, exact.value("unavoidable", "attention").value
        if parts is not None and median is not None and spared is not None:
            found.setdefault(parts.title, []).append((median, spared))
    if found:
        rows = [
            f"{title} {_ends([median for median, _ in values])}"
            + (f" ({len(values)} models)" if len(values) > 1 else "")
            for title, values in found.items()
        ]
        yield f"Medians of the smallest set over the items: {'; '.join(rows)}."
        all_spared = [spared for values in found.values() for _, spared in values]
        late = sum(spared > MOST for spared in all_spared)
        yield (
            f"In {late} of {counted(len(all_spared), 'model')} more than half of what erasing by "
            "attention takes could be spared by no order: there late flips are the model’s doing."
        )


def _undone(said: Sequence[Exact]) -> str:
    shares = {
        ranking: [v for e in said if (v := e.value("undone", ranking).value) is not None]
        for ranking in _SHOWN
    }
    if not all(shares.values()):
        return ""
    rows = [f"by {PHRASES[ranking]} {_ends(values)}" for ranking, values in shares.items()]
    return (
        "Share of the first flips that erasing more undoes, from the least to the most of the "
        f"models: {'; '.join(rows)}."
    )


def _ranks(said: Sequence[Exact]) -> str:
    shares = {
        ranking: [v for e in said if (v := e.value("first", ranking).value) is not None]
        for ranking in ("attention", "gradient", "product")
    }
    if not all(shares.values()):
        return ""
    rows = [f"by {PHRASES[ranking]} {_ends(values)}" for ranking, values in shares.items()]
    return (
        "Share of the instances in which the top item moves the output more than any other does, "
        f"from the least to the most of the models: {'; '.join(rows)}."
    )


def _of_bias(said: Sequence[Exact]) -> str:
    pairs = []
    for exact in said:
        found = [exact.find("skill", "attention", "bias", group) for group in (SAME, OTHERWISE)]
        values = [None if n is None else n.estimate.value for n in found]
        if None not in values:
            pairs.append([value for value in values if value is not None])
    if not pairs:
        return ""
    more = sum(same > other for same, other in pairs)
    return (
        f"In {more} of {counted(len(pairs), 'model')} attention has more skill where the model "
        "decides as its bias alone than where it decides otherwise."
    )


def _areas(said: Sequence[Exact]) -> str:
    pairs = [
        (gradient, attention)
        for exact in said
        if (gradient := exact.value("js_area", "gradient").value) is not None
        and (attention := exact.value("js_area", "attention").value) is not None
    ]
    if not pairs:
        return ""
    more = sum(gradient > attention for gradient, attention in pairs)
    return (
        f"In {more} of {counted(len(pairs), 'model')} the output moves further by the gradient "
        "than by attention over all prefixes together (area under JS)."
    )
