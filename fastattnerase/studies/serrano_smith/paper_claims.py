"""What the paper says beside its main findings, and what it could not see, checked on one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastattnerase.studies.serrano_smith.config import RANKINGS
from fastattnerase.studies.serrano_smith.instance_tables import read_columns
from fastattnerase.studies.serrano_smith.judgement import CHANCE
from fastattnerase.studies.serrano_smith.paper import NUMBERS, printed
from fastattnerase.studies.serrano_smith.result import Result, SingleWeight
from fastattnerase.studies.serrano_smith.sentences import number, percent

Floats = NDArray[np.float64]
# Levels that are ours: the paper gives none.
MIRROR = 0.1  # how far the two shares may be apart of which one mirrors the other
UPSWING = 0.05  # median ΔJS, nats, from which its upward swing has begun
_BINS, _LEAST = 10, 5  # of Δα, and instances in a bin that is looked at


class Claim(NamedTuple):
    """One claim on one run.

    Attributes:
        claim: what is said.
        holds: whether it holds there.
        evidence: the numbers that say so.
        tied: whether the two that are compared are equal, so that it neither holds nor fails.
        p: level of the paired test that it goes by; None where it goes by the numbers alone.
    """

    claim: str
    holds: bool
    evidence: str
    tied: bool = False
    p: float | None = None


def claims(result: Result, encodes: bool | None) -> Iterator[Claim]:
    """Check claims on a run.

    Args:
        result: a finished run with analysed instances.
        encodes: whether the model has an encoder; None where that is unknown.

    Yields:
        The claims that are about it.

    Source:
        Serrano and Smith 2019, sections 4.2, 5.4, 5.6, figure 6 and A.3; the first is ours.
    """
    yield _reversal(result)
    yield _mirror(result)
    yield _product(result)
    if encodes is False:
        yield _on_par(result)
        yield _tails(result)
    yield from _rows(result)
    yield from _masses(result)


def _reversal(result: Result) -> Claim:
    """Say whether a random order flips more decisions than attention does."""
    pair = result.pairs["attention", "random"]
    attention, random = pair.flips_only_first, pair.flips_only_second
    return Claim(
        "A random order flips no more decisions than attention (ours; reversed where McNemar’s p "
        f"is at most {CHANCE})",
        random <= attention or pair.p_mcnemar > CHANCE,
        f"only attention flips {attention}, only a random order {random}; p {pair.p_mcnemar:.2g}",
        p=pair.p_mcnemar,
    )


def _mirror(result: Result) -> Claim:
    """Compare the share of orange among off-diagonal cells with that of negative ΔJS."""
    single = result.single["attention"]
    cells = single.expected_contingency["different"]
    top, random = cells["only_top"].value or 0.0, cells["only_random"].value or 0.0
    negative = negative_share(single)
    share = None if top + random == 0 else random / (top + random)
    return Claim(
        "Of the instances that one of i* and r flips alone, r's share mirrors that of negative ΔJS "
        f"(4.2; ours: within {MIRROR})",
        share is not None and abs(share - negative) <= MIRROR,
        f"r's share {percent(share, 1)}, negative ΔJS {percent(negative, 1)}",
        tied=share is None,  # nothing flips alone
    )


def negative_share(single: SingleWeight) -> float:
    """Give the share of negative ΔJS in exact expectation; as drawn where a run lacks that."""
    exact = single.expected_negative.value
    drawn = single.negative_delta_js.value
    assert drawn is not None  # some instance was analysed
    return drawn if exact is None else exact


def _product(result: Result) -> Claim:
    pair = result.pairs["product", "gradient"]
    wins, losses = pair.first_smaller, pair.second_smaller
    return Claim(
        "The product needs fewer items than the gradient more often than not (5.4: often, not "
        "always)",
        wins > losses,
        f"product {wins}, gradient {losses}, ties {pair.ties}; sign test p {pair.p_sign:.2g}",
        wins == losses,
        pair.p_sign,
    )


def _on_par(result: Result) -> Claim:
    pair = result.pairs["gradient", "attention"]
    gradient, attention = pair.first_smaller, pair.second_smaller
    return Claim(
        "Without an encoder, attention is on par with the gradient or better (5.6; ours: the "
        f"gradient is not ahead by a sign test at {CHANCE})",
        gradient <= attention or pair.p_sign > CHANCE,
        f"gradient {gradient}, attention {attention}, ties {pair.ties}; p {pair.p_sign:.2g}",
        p=pair.p_sign,
    )


def _tails(result: Result) -> Claim:
    shares = {ranking: over_half(result, ranking)[1] for ranking in RANKINGS}
    values = [share or 0.0 for share in shares.values()]
    paper = ", ".join(f"{printed(f'tail_{ranking}')} %" for ranking in RANKINGS)
    return Claim(
        f"Without an encoder, the share that needs over half of the items falls from {RANKINGS[0]} "
        f"over {RANKINGS[1]} and {RANKINGS[2]} to {RANKINGS[3]} (figure 6: {paper} of Amazon)",
        values == sorted(values, reverse=True) and values[0] > values[-1],
        ", ".join(f"{ranking} {percent(share, 1)}" for ranking, share in shares.items())
        + ", never counted",
        tied=len(set(values)) == 1,
    )


def over_half(result: Result, ranking: str) -> tuple[float | None, float | None]:
    """Find the share of instances of which more than half is erased at the first flip.

    Args:
        result: a finished run.
        ranking: its name.

    Returns:
        Of those that it flips, as in figure 6, and of all, with what never flips; None for none.
    """
    table = read_columns(result.folder, "multi", ["first_flip", "fraction"], ranking)
    flips = (table["first_flip"] > 0).to_numpy()
    late = (table["fraction"] > NUMBERS["tail"].value).to_numpy() & flips
    of_flipped = float(late[flips].mean()) if flips.any() else None
    return of_flipped, float((late | ~flips).mean()) if len(table) else None


def _rows(result: Result) -> Iterator[Claim]:
    """Compare how often the top item of each ranking flips alone: the sum of the "yes" row."""
    rows = {}
    for ranking, record in result.single.items():
        cells = record.contingency
        rows[ranking] = cells["both"].count + cells["only_top"].count
    total = result.single["attention"].instances
    for ranking, words, better in (
        ("product", f"more often than by attention (A.3: in all {printed('rows_of')} models)", 1),
        (
            "gradient",
            "less often than by attention (A.3: in "
            f"{printed('rows_in')} of {printed('rows_of')} models)",
            -1,
        ),
    ):
        ahead = rows[ranking] - rows["attention"]
        yield Claim(
            f"The top item by {ranking} alone flips {words}",
            ahead * better > 0,
            f"{ranking} {rows[ranking]}, attention {rows['attention']} of {total}",
            ahead == 0,
        )


def _masses(result: Result) -> Iterator[Claim]:
    """Compare attention masses erased at the first flip, of the instances that both flip."""
    mass = {}
    for ranking in ("attention", "gradient", "product"):
        table = read_columns(result.folder, "multi", ["first_flip", "mass"], ranking)
        mass[ranking] = table["mass"].where(table["first_flip"] > 0).to_numpy()
    for ranking in ("gradient", "product"):
        both = ~np.isnan(mass["attention"]) & ~np.isnan(mass[ranking])
        if not both.any():
            continue
        here, there = (float(np.median(mass[name][both])) for name in (ranking, "attention"))
        yield Claim(
            f"Erasing by {ranking} takes {printed('mass')} or more less attention mass (A.3: most "
            "models)",
            there - here >= NUMBERS["mass"].value,
            f"median mass by {ranking} {number(here)}, by attention {number(there)}, of the "
            f"{int(both.sum())} that both flip",
        )


def upswing(result: Result) -> float | None:
    """Find from which Δα on ΔJS has swung upwards, in tenths.

    Args:
        result: a finished run.

    Returns:
        The lower end of the first tenth of Δα with five instances or more whose median ΔJS is at
        least 0.05 nats (ours); None where there is none.

    Source:
        Serrano and Smith 2019, section A.2, which has it earlier with less contextualisation.
    """
    table = read_columns(result.folder, "single", ["delta_alpha", "delta_js"], "attention")
    bins = np.clip((table["delta_alpha"].to_numpy() * _BINS).astype(int), 0, _BINS - 1)
    delta_js: Floats = table["delta_js"].to_numpy()
    for place in range(_BINS):
        of_bin = delta_js[bins == place]
        if len(of_bin) >= _LEAST and float(np.median(of_bin)) >= UPSWING:
            return place / _BINS
    return None
