"""What agrees and what disagrees with the paper, run by run, from saved results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fastattnerase.statistics.multiple import holm
from fastattnerase.studies.serrano_smith.grid import Grid
from fastattnerase.studies.serrano_smith.levels import Levels
from fastattnerase.studies.serrano_smith.paper import NUMBERS, printed
from fastattnerase.studies.serrano_smith.paper_claims import claims, negative_share, upswing
from fastattnerase.studies.serrano_smith.records import Architecture, architecture
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.sentences import (
    median_fraction,
    number,
    percent,
    premises,
    skew,
)

TIMES = NUMBERS["times"].value
FEW = 0.1  # of negative ΔJS, for 4.1; the paper has no number
SURE = 0.05  # a corrected level at most this tells


class Finding(NamedTuple):
    """One claim of the paper on some runs.

    Attributes:
        claim: what the paper says.
        corpus: where it was looked at.
        model: the model, or the models that are compared.
        holds: whether it holds there.
        evidence: the numbers that say so.
        tied: whether the two that are compared are equal, so that it neither holds nor fails.
        p: two-sided level of the comparison, by the bootstrap of instances, and of seeds first
            where the runs join several; None where it could not be made.
        corrected: `p` after Holm's correction over all findings together.
        attention: how far attention is from even in these models.
    """

    claim: str
    corpus: str
    model: str
    holds: bool
    evidence: str
    tied: bool = False
    p: float | None = None
    corrected: float | None = None
    attention: str = ""

    @property
    def sure(self) -> bool:
        """Whether the corrected level tells that it holds, or that it does not."""
        return self.corrected is not None and self.corrected <= SURE


def findings(grid: Grid) -> list[Finding]:
    """Check the paper's claims on runs, by their point estimates, and how sure that is.

    Args:
        grid: the runs.

    Returns:
        A finding for each claim and each run, or group of runs, that it is about, but for runs
        of which a premise fails. Levels are corrected by Holm's method over these findings.

    Source:
        Serrano and Smith 2019, sections 4 and 5.
    """
    found: list[Finding] = []
    # What is not the model, or has no attention to speak of, is no case of a claim about it.
    sound = {key: result for key, result in grid.cells.items() if not premises(result)}
    grid = replace(grid, cells=sound)
    levels = {result.folder: Levels(result) for result in sound.values()}
    for (corpus, model), result in sound.items():
        of_run = _of_run(corpus, model, result, levels[result.folder])
        found += (finding._replace(attention=skew(result)) for finding in of_run)
        levels[result.folder].forget()
    for corpus in grid.corpora:
        found += _of_encoders(grid, corpus, levels)
    found = _corrected(found)
    order = {claim: place for place, claim in enumerate(dict.fromkeys(f.claim for f in found))}
    return sorted(found, key=lambda f: order[f.claim])


def _corrected(found: Sequence[Finding]) -> list[Finding]:
    """Correct the levels of findings for their number."""
    corrected = iter(holm([f.p for f in found if f.p is not None]))
    return [f if f.p is None else f._replace(corrected=next(corrected)) for f in found]


def tally(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Count for each claim in how many of its cases it holds, and in how many it is tied; and in
    how many corrected levels tell that it holds, and that it does not: None without any level."""
    rows = []
    for claim in dict.fromkeys(finding.claim for finding in found):
        cases = [finding for finding in found if finding.claim == claim]
        tested = any(case.p is not None for case in cases)
        rows.append(
            {
                "claim": claim,
                "holds": sum(case.holds for case in cases),
                "of": len(cases),
                "tied": sum(case.tied for case in cases),
                "surely": sum(case.holds and case.sure for case in cases) if tested else None,
                "surely_not": sum(not case.holds and case.sure for case in cases)
                if tested
                else None,
            }
        )
    return rows


def _median(result: Result, ranking: str) -> float | None:
    return median_fraction(result, ranking)


def _known(share: float | None) -> float:
    assert share is not None  # some instance was analysed
    return share


def _of_run(corpus: str, model: str, result: Result, levels: Levels) -> Iterator[Finding]:
    medians = {r: _median(result, r) for r in ("random", "attention", "gradient", "product")}
    known = {r: value for r, value in medians.items() if value is not None}
    shown = ", ".join(f"{r} {percent(value, 1)}" for r, value in medians.items())
    parts = architecture(result)
    encoder = parts is not None and parts.encodes  # tensors do not tell
    if encoder and len(known) == 4:
        for ranking in ("gradient", "product"):
            yield Finding(
                f"With an encoder, {ranking} erases a smaller median fraction than attention (5.4)",
                corpus,
                model,
                known[ranking] < known["attention"],
                shown,
                known[ranking] == known["attention"],
                levels.median(ranking, "attention"),
            )
    if len(known) == 4:
        most = max(value for r, value in known.items() if r != "random")
        yield Finding(
            "A random order erases the largest median fraction (5.4)",
            corpus,
            model,
            known["random"] > most,
            shown,
            known["random"] == most,
            levels.largest_median("random", ("attention", "gradient", "product")),
        )
    pair = result.pairs["gradient", "attention"]
    wins, losses = pair.first_smaller, pair.second_smaller
    if encoder and wins + losses:
        test = "over seeds" if len(result.seeds) > 1 else "sign test"
        text = f"gradient {wins}, attention {losses}, ties {pair.ties}; {test} p {pair.p_sign:.2g}"
        yield Finding(
            f"With an encoder, gradient flips first at least {TIMES} times as often as attention "
            "(5.4)",
            corpus,
            model,
            wins >= TIMES * losses,
            text,
            p=levels.times("gradient", "attention", TIMES),
        )
        share = _known(pair.share_first_smaller.value)
        yield Finding(
            "With an encoder, gradient finds the smaller set in over half of the instances (5.4, "
            f"{printed('half_in')} of {printed('half_of')} models)",
            corpus,
            model,
            share > 0.5,
            f"{percent(share, 1)} of {pair.judged}",
            share == 0.5,
            levels.over_half("gradient", "attention"),
        )
    single = result.single["attention"]
    # Exact expectations over r, uniform over the other items; beside them what was drawn.
    exact, drawn = single.expected_contingency["different"], single.contingency
    top, random = _known(exact["only_top"].value), _known(exact["only_random"].value)
    equal = abs(top - random) < 1e-12
    yield Finding(
        "Erasing i* alone flips more often than erasing r alone (4.2)",
        corpus,
        model,
        top > random and not equal,
        f"only i* {percent(top, 1)}, only r {percent(random, 1)} in exact expectation; drawn "
        f"{percent(drawn['only_top'].value, 1)}, {percent(drawn['only_random'].value, 1)}",
        equal,
        levels.top_item(),
    )
    yield Finding(
        "In most instances neither i* nor r flips the decision alone (4.2)",
        corpus,
        model,
        _known(exact["neither"].value) > 0.5,
        f"{percent(exact['neither'].value, 1)} in exact expectation; drawn "
        f"{percent(drawn['neither'].value, 1)}",
        p=levels.neither(),
    )
    negative = negative_share(single)
    how = "as drawn" if single.expected_negative.value is None else "in exact expectation"
    yield Finding(
        "ΔJS is negative in few instances (4.1; ours: below a tenth)",
        corpus,
        model,
        negative < FEW,
        f"{percent(negative, 1)} {how}",
        p=levels.negative(FEW),
    )
    for said in claims(result, None if parts is None else parts.encodes):
        yield Finding(said.claim, corpus, model, said.holds, said.evidence, said.tied, said.p)


def _of_encoders(grid: Grid, corpus: str, levels: Mapping[Path, Levels]) -> Iterator[Finding]:
    """Compare models of a corpus that differ in the encoder alone, the first of each."""
    alike: dict[Architecture, dict[str, tuple[str, Result]]] = {}
    for model in grid.models:
        result = grid.cells.get((corpus, model))
        parts = None if result is None else architecture(result)
        if result is not None and parts is not None:
            others = alike.setdefault(replace(parts, encoder=""), {})
            others.setdefault(parts.encoder, (model, result))
    for others in alike.values():
        for more, less in (("rnn", "conv"), ("conv", "noenc"), ("rnn", "noenc")):
            if more in others and less in others:
                yield from _of_two(corpus, more, others[more], less, others[less], levels)


def _of_two(
    corpus: str,
    more: str,
    first: tuple[str, Result],
    less: str,
    second: tuple[str, Result],
    levels: Mapping[Path, Levels],
) -> Iterator[Finding]:
    models, attention = f"{first[0]}, {second[0]}", "; ".join(skew(r) for _, r in (first, second))
    for ranking in ("attention", "random"):
        high, low = _median(first[1], ranking), _median(second[1], ranking)
        if high is not None and low is not None:
            yield Finding(
                f"Less contextualisation flips earlier: {less} before {more}, by {ranking} (5.6)",
                corpus,
                models,
                low < high,
                f"median {percent(high, 1)} with {more}, {percent(low, 1)} with {less}",
                low == high,
                levels[second[1].folder].median(ranking, ranking, levels[first[1].folder]),
                attention=attention,
            )
    late, early = upswing(first[1]), upswing(second[1])
    if early is not None or late is not None:
        words = [
            f"from Δα {number(place, 1)}" if place is not None else "nowhere"
            for place in (late, early)
        ]
        yield Finding(
            f"With less contextualisation ΔJS swings upwards at smaller Δα: {less} before {more} "
            "(A.2)",
            corpus,
            models,
            early is not None and (late is None or early < late),
            f"{words[0]} with {more}, {words[1]} with {less}",
            early == late,
            attention=attention,
        )
