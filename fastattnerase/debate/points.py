"""What speaks against attention and what for it: each point by a stated rule, with its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastattnerase.debate.units import RUN, Debate
from fastattnerase.extras import needs
from fastattnerase.plurals import counted
from fastattnerase.statistics.paired import Paired, compare
from fastattnerase.statistics.shares import hardly_better
from fastattnerase.studies.serrano_smith.judgement import is_constant, is_even, judge
from fastattnerase.studies.serrano_smith.result import Result, load
from fastattnerase.studies.wiegreffe_pinter.tables import Family, families, seed_instances

with needs("report"):
    import pandas as pd

Side = Literal["against", "for", "neither", "cannot tell"]
Floats = NDArray[np.float64]

SIGNIFICANT = 0.05
ALIKE = 0.01  # of accuracy: what falls by less is as good
FEW = 20  # documents below which no rule decides
APART = 0.4  # nats of JSD, at most ln 2: quite other attention
SAME = 0.05  # TVD: much the same output
MOVED = 0.1  # median TVD from which permutation matters


@dataclass(frozen=True)
class Point:
    """One test's answer.

    Attributes:
        question: What it asks.
        source: The paper that asks it.
        side: `against` attention, `for` it, `neither`, or `cannot tell` where a premise fails.
        rule: What decides.
        here: The numbers that decide, or the premise that fails.
    """

    question: str
    source: str
    side: Side
    rule: str
    here: str


@dataclass(frozen=True)
class Evidence:
    """Everything that the rules look at.

    Attributes:
        family: The base model and all that it is compared with.
        erased: The erasure of the base model.
        instances: Of each model that is compared, by its kind, a row for each test document.
        seeds: Each test document's divergence over the seeds.
        correlation: Kendall's taus.
        permutation: What permuting weights does to each document.
        adversaries: The most different admissible attention of each document.
    """

    family: Family
    erased: Result
    instances: Mapping[str, pd.DataFrame]
    seeds: pd.DataFrame
    correlation: pd.DataFrame
    permutation: pd.DataFrame
    adversaries: pd.DataFrame


def collect(debate: Debate) -> Evidence:
    """Read what the finished units found."""
    [family] = [found for found in families(debate) if found.base == debate.base]
    wanted = {cell: result for cell, result in family.results.items() if cell in debate.cells()}
    family = Family(family.base, wanted)
    sought = debate.sought(debate.base)
    assert sought is not None  # its unit is done
    single = ("base", "uniform", "mlp_uniform", "mlp_learned", "mlp_base", "mlp_adversary")
    return Evidence(
        family,
        load(debate.folder("tests/erasure") / RUN),
        {cell.kind: debate.instances(cell) for cell in wanted if cell.kind in single},
        seed_instances(debate, family),
        debate.found("correlation"),
        debate.found("permutation"),
        sought,
    )


def points(e: Evidence) -> list[Point]:
    """Judge every point; a premise that fails comes before its rule."""
    model = _of_model(e)
    attention = model or _of_attention(e)
    found: list[tuple[str, Callable[[Evidence], Point]]] = [
        (model, _uniform),
        (attention, _gradients),
        (attention, _permutation),
        (model, _adversaries),
        (attention, _seeds),
        (attention, _diagnostic),
        (attention, _borrowed),
        (model, _trained),
        (attention, _erasure),
        (attention, _ranking),
    ]
    return [_judged(premise, rule(e)) for premise, rule in found]


def _judged(premise: str, point: Point) -> Point:
    """Withhold the verdict where a premise fails; the numbers stay."""
    if not premise:
        return point
    return Point(point.question, point.source, "cannot tell", point.rule, f"{premise} {point.here}")


def _of_model(e: Evidence) -> str:
    """Say why nothing can be told of the model; empty where it can."""
    base = e.family.results[e.family.base]
    if hardly_better(base.accuracy, base.majority):
        return (
            f"The model hardly beats the most frequent class (accuracy {base.accuracy:.3f} against "
            f"{base.majority:.3f}), so there is little that attention could explain."
        )
    if base.documents["test"] < FEW:
        return f"Only {counted(base.documents['test'], 'test document')}, needed {FEW}."
    return ""


def _of_attention(e: Evidence) -> str:
    """Say why nothing can be told of its attention; empty where it can."""
    if is_constant(e.erased) or is_even(e.erased):
        return "Attention is nearly uniform, so that it hardly ranks words."
    return ""


# --- the points ----------------------------------------------------------------------------------


def _uniform(e: Evidence) -> Point:
    base, uniform, test = _against(e, "base", "uniform")
    needed = base - uniform >= ALIKE and test.p_mcnemar < SIGNIFICANT
    return Point(
        "Does the model need its attention?",
        "Wiegreffe and Pinter 2019, uniform baseline",
        "for" if needed else "against",
        f"For where accuracy falls by {ALIKE} or more with uniform attention, trained anew, and "
        f"McNemar's p is below {SIGNIFICANT}; against otherwise",
        f"Accuracy {base:.3f}, {uniform:.3f} with uniform attention; {_told(test)}.",
    )


def _gradients(e: Evidence) -> Point:
    taus = e.correlation.pivot(index="row", columns="pair", values="tau").dropna()
    rule = (
        "Within each document: against where gradients agree with leave-one-out better than "
        "attention agrees with gradients, for where worse, by the 95 % interval of the mean "
        "difference of Kendall's taus; neither where it holds 0"
    )
    undefined = e.correlation[e.correlation["tau"].isna()]
    counts = undefined["reason"].value_counts()
    why = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    here = counted(len(taus), "document") + (f"; taus undefined: {why}" if why else "")
    side: Side = "cannot tell"
    if len(taus) >= FEW:
        difference = (taus["gradient_loo"] - taus["attention_gradient"]).to_numpy()
        low, high = interval(difference)
        side = "against" if low > 0 else "for" if high < 0 else "neither"
        here = (
            f"Mean tau of attention and gradient {taus['attention_gradient'].mean():.2f}, of "
            f"attention and leave-one-out {taus['attention_loo'].mean():.2f}, of gradient and "
            f"leave-one-out {taus['gradient_loo'].mean():.2f}; the difference is from {low:.2f} to "
            f"{high:.2f}; {here}"
        )
    return Point(
        "Does attention agree with other measures of importance?",
        "Jain and Wallace 2019, correlation",
        side,
        rule,
        f"{here}.",
    )


def _permutation(e: Evidence) -> Point:
    several = e.permutation[e.permutation["words"] > 1]
    moved = float(several["median_tvd"].median()) if len(several) else math.nan
    side: Side = "against" if moved < SAME else "for" if moved >= MOVED else "neither"
    return Point(
        "Does it matter which word has which weight?",
        "Jain and Wallace 2019, permutation",
        side if len(several) >= FEW else "cannot tell",
        f"Weights permuted within each document: against where the median document's output moves "
        f"by less than {SAME}, for from {MOVED} on, neither between",
        f"Median over {counted(len(several), 'document')} of the median difference of outputs "
        f"{moved:.3f}.",
    )


def _adversaries(e: Evidence) -> Point:
    several = e.adversaries[e.adversaries["words"] > 1]
    share = float((several["jsd"] >= APART).mean()) if len(several) else math.nan
    side: Side = "against" if share >= 0.5 else "for" if share <= 0.1 else "neither"
    return Point(
        "Is there quite other attention with the same output, document by document?",
        "Jain and Wallace 2019, adversarial attention",
        side if len(several) >= FEW else "cannot tell",
        f"Attention of a JSD of {APART} or more whose output moves by {SAME} at most: against "
        "where half of the documents or more have such, for where a tenth or fewer, neither "
        "between",
        f"{share:.0%} of {counted(len(several), 'document')}; median JSD "
        f"{several['jsd'].median():.2f}.",
    )


def _seeds(e: Evidence) -> Point:
    both = e.seeds.merge(e.adversaries[["document", "jsd", "words"]], on="document")
    both = both[both["words"] > 1]
    seeds, sought = float(both["jsd_x"].median()), float(both["jsd_y"].median())
    side: Side = "for" if seeds <= sought / 2 else "against" if seeds >= sought else "neither"
    return Point(
        "Is attention much the same when the model is trained anew?",
        "Wiegreffe and Pinter 2019, variance over seeds",
        side if len(both) >= FEW and sought > 0 else "cannot tell",
        "For where the median divergence over the seeds is at most half of that of the adversaries "
        "above, which are then no attention that training gives; against where it is as large",
        f"Median JSD {seeds:.3f} over {counted(len(e.family.of_kind('seed')), 'seed')}, "
        f"{sought:.3f} of the adversaries; {counted(len(both), 'document')}.",
    )


def _diagnostic(e: Evidence) -> Point:
    own, uniform, test = _against(e, "mlp_base", "mlp_uniform")
    better = own > uniform and test.p_mcnemar < SIGNIFICANT
    worse = own < uniform and test.p_mcnemar < SIGNIFICANT
    learned = float(_right(e.instances["mlp_learned"]).mean())
    return Point(
        "Do its weights serve a model that sees each word alone?",
        "Wiegreffe and Pinter 2019, frozen weights",
        "for" if better else "against" if worse or own - uniform < ALIKE else "neither",
        f"An MLP with the model's weights against one with uniform ones: for where it is better, "
        f"McNemar's p below {SIGNIFICANT}; against where it gains less than {ALIKE}; neither "
        "between",
        f"Accuracy {own:.3f} with the model's weights, {uniform:.3f} with uniform ones, "
        f"{learned:.3f} with its own; {_told(test)}.",
    )


def _borrowed(e: Evidence) -> Point:
    own, other, test = _against(e, "mlp_base", "mlp_adversary")
    lender = max(e.family.of_kind("adversary"), key=lambda result: result.cell.strength or 0.0)
    assert lender.divergence is not None
    jsd = lender.divergence.attention_jsd
    better = own > other and test.p_mcnemar < SIGNIFICANT
    moved = jsd >= APART
    return Point(
        "Are an adversary's weights of less use?",
        "Wiegreffe and Pinter 2019, frozen weights",
        ("for" if better else "against") if moved else "cannot tell",
        f"For where an MLP is better with the model's weights than with the adversary's, McNemar's "
        f"p below {SIGNIFICANT}; against otherwise; cannot tell where the adversary's JSD is below "
        f"{APART}",
        f"Accuracy {own:.3f} with the model's, {other:.3f} with those of the adversary of λ "
        f"{lender.cell.strength:g} (JSD {jsd:.3f}); {_told(test)}.",
    )


def _trained(e: Evidence) -> Point:
    base = e.family.results[e.family.base]
    seeds = [r.divergence for r in e.family.of_kind("seed") if r.divergence]
    furthest = max(d.attention_jsd for d in seeds)
    same = max(SAME, min(d.tvd for d in seeds))
    apart, told = [], []
    for result in e.family.of_kind("adversary"):
        d = result.divergence
        assert d is not None
        told.append(
            f"λ {result.cell.strength:g}: JSD {d.attention_jsd:.3f}, TVD {d.tvd:.3f} "
            f"({d.tvd / 2:.3f} halved), accuracy {result.accuracy:.3f}"
        )
        if d.attention_jsd >= max(APART, furthest):
            apart.append(d.tvd <= same and base.accuracy - result.accuracy < ALIKE)
    side: Side = "cannot tell" if not apart else "against" if any(apart) else "for"
    return Point(
        "Is there a whole model with other attention and the same outputs?",
        "Wiegreffe and Pinter 2019, trained adversaries",
        side,
        f"Of the adversaries whose JSD is {APART} or more and no seed's is larger: against where "
        f"one moves outputs (TVD, not halved) by {SAME} at most, or by no more than the nearest "
        f"seed, and loses less than {ALIKE} of accuracy, for where none does; cannot tell where "
        "there is none",
        f"{'; '.join(told)}. Seeds: JSD up to {furthest:.3f}, TVD from "
        f"{min(d.tvd for d in seeds):.3f}; base accuracy {base.accuracy:.3f}.",
    )


def _erasure(e: Evidence) -> Point:
    judgement = judge(e.erased)
    sides: dict[str, Side] = {
        "good": "for", "fair": "for", "poor": "against", "chance": "against",
        "worse": "against", "never": "against",
    }  # fmt: skip
    skill = "undefined" if judgement.skill is None else f"{judgement.skill:.2f}"
    return Point(
        "Does erasing what attention weighs most change decisions soonest?",
        "Serrano and Smith 2019, erasure, beside the exact smallest set",
        sides.get(judgement.grade, "cannot tell"),
        "Skill is 0 for a random order and 1 for the smallest set that changes the decision: for "
        "from 0.5 on; against below, or where a random order is not told apart by a sign test",
        f"{counted(judgement.judged, 'document')} that some of their words can flip; skill "
        f"{skill}; grade {judgement.grade.replace('_', ' ')}.",
    )


def _ranking(e: Evidence) -> Point:
    pair = e.erased.pairs["gradient", "attention"]
    sooner = pair.first_smaller > pair.second_smaller
    told = pair.p_sign < SIGNIFICANT
    return Point(
        "Does another ranking find what matters sooner?",
        "Serrano and Smith 2019, gradient against attention",
        ("against" if sooner else "for") if told else "neither",
        "Against where more decisions change with fewer words erased by gradient than by "
        f"attention, for where with more, by a sign test below {SIGNIFICANT}; neither otherwise",
        f"Gradient needs fewer in {pair.first_smaller} of {counted(pair.judged, 'document')}, "
        f"attention in {pair.second_smaller}; p {pair.p_sign:.3g}.",
    )


# --- what rules use ------------------------------------------------------------------------------


def interval(values: Floats) -> tuple[float, float]:
    """Give the 95 % interval of a mean, `mean ± 1.96 s / √n`.

    Example:
        >>> interval(np.array([1.0, 1.0, 1.0, 1.0]))
        (1.0, 1.0)
    """
    error = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - error, float(values.mean()) + error


def _right(rows: pd.DataFrame) -> NDArray[np.bool_]:
    return (rows["decision"] == rows["label"]).to_numpy()


def _against(e: Evidence, first: str, second: str) -> tuple[float, float, Paired]:
    """Compare two models on the same documents: accuracies and McNemar's test."""
    a, b = (_right(e.instances[kind]) for kind in (first, second))
    test = compare(int((a & ~b).sum()), int((~a & b).sum()))
    return float(a.mean()), float(b.mean()), test


def _told(test: Paired) -> str:
    return f"alone right {test.first} and {test.second}, McNemar's p {test.p_mcnemar:.3g}"
