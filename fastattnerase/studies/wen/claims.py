"""The statements of Wen, Subbalakshmi and Yang (2022), judged by the numbers here."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fastattnerase.plurals import counted
from fastattnerase.studies.wen import paper
from fastattnerase.studies.wen.options import ATTENTIONS, BEST
from fastattnerase.studies.wen.rows import (
    NOISES,
    SAME,
    TAUS,
    AccuracyRow,
    AdversaryRow,
    FixRow,
    GumbelRow,
    HighestRow,
    MeanRow,
    OrderRow,
    Pair,
    TauName,
)
from fastattnerase.studies.wen.tables import Tables, grouped, mean
from fastattnerase.studies.wen.words import (
    at_least,
    by_chance,
    ends,
    mean_and_error,
    number,
    sentence,
    told_apart,
)

# The rules of `claims`; which of the paper's own numbers do not obey them, `exceptions` says. The
# paper repeats a fixed seed with differences of up to 0.05, which the rules about falls allow for.
MIN_FALL = 0.1  # of tau with fixed attention
MAX_FALL = 0.05  # of tau with fixed representations
MIN_JSD = 0.19  # of an adversary's attention
MAX_TVD = 0.074  # of its outputs; the published code reports half of it
MAX_CHANGE = 0.09  # of its tau, up or down
MIN_SHARE = 0.8  # of models whose tau Gumbel-softmax does not lower
_LIKELY = 0.05  # a count that blind chance gives more seldom is told apart from it

AnyPair = TypeVar("AnyPair", bound=Pair)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and in how many cases the numbers here agree.

    Attributes:
        text: The statement.
        rule: When a case agrees.
        paper: What the paper reports.
        here: What is found here.
        held: Number of cases that agree.
        cases: Number of models, seeds or cells that decide; 0 where none does.
        undecided: Number of other cases: their premise does not hold, or tau is undefined, is
            chance before anything was changed, has too few ranks or no shuffled outputs.
        needed: Share of the cases that must agree.
        means: Whether the means agree, of statements about means, each lead more than two of its
            standard errors; their cases are the cells of which the means are.
        p_chance: Probability of so many cases or more where one outcome is as likely as another, of
            statements about means; NaN of others.
    """

    text: str
    rule: str
    paper: str
    here: str
    held: int
    cases: int
    undecided: int = 0
    needed: float = 1.0
    means: bool | None = None
    p_chance: float = math.nan

    @property
    def agrees(self) -> str:
        """The verdict, as `verdicts` says; empty without any case that decides."""
        if self.cases == 0:
            return ""
        if self.means is not None:
            most = self.held > self.cases / 2
            if self.means and most:
                return "yes"
            return "partly" if self.means or most or self.p_chance < _LIKELY else "no"
        if self.held >= self.needed * self.cases:
            return "yes"
        return "partly" if self.held else "no"

    @property
    def verdicts(self) -> str:
        """When the verdict is yes, partly or no; empty of what is no statement of the paper."""
        if not self.cases + self.undecided:
            return ""
        if self.means is not None:
            return (
                "yes: each mean lead is more than two standard errors, and more than half of the "
                "cells agree; partly: one of both, or more cells than by chance (p below 0.05); "
                "no: none of these"
            )
        if self.needed < 1:
            return f"yes: at least {self.needed:.0%} of the cases; partly: fewer; no: none"
        return "yes: all cases; partly: some; no: none"


def claims(tables: Tables) -> list[Claim]:
    """Judge the paper's statements by the numbers.

    The paper has weighted tau alone; each statement about it is judged for plain tau, too. A case
    is undecided where a tau is undefined, has fewer than five ranks or no shuffled outputs, where
    the normal model's tau is chance, or where the premise does not hold (an adversary with the same
    attention); it is counted, but not among the cases. A tau that was not chance and becomes chance
    has fallen.

    Args:
        tables: of `collect`.

    Returns:
        The statements about what was run, in the paper's order.
    """
    return [
        *_order_claims(tables.order, tables.means),
        *_highest_claims(tables.highest, tables.means),
        *_accuracy_claims(tables.accuracy),
        *_fix_claims(tables.table_2),
        *_adversary_claims(tables.adversaries),
        *_gumbel_claims(tables.gumbel),
    ]


def exceptions() -> str:
    """Say which of the paper's own numbers do not obey the rules, and where the paper has none.

    Example:
        >>> exceptions().startswith("Of the paper’s own numbers Table 2’s Fix Attn on SNLI (0.07)")
        True
    """
    told = [
        f"Table 2’s {setting} on {row} ({value:.2f})"
        for setting, least, most in (
            ("Fix Attn", MIN_FALL, math.inf),
            ("Fix Rep", -math.inf, MAX_FALL),
        )
        for row, value in paper.column("Table 2", setting).items()
        if not least <= value <= most
    ]
    for name, least, most in (("jsd", MIN_JSD, math.inf), ("tvd", 0.0, MAX_TVD / 2)):
        told += [
            f"Table 3’s {name.upper()} on {row} ({value:.3f})"
            for row, value in paper.column("Table 3", name).items()
            if not least <= value <= most
        ]
    told += [
        f"Table 4’s fall on {row} ({value:.2f})"
        for row, value in paper.column("Table 4", "delta").items()
        if abs(value) > MAX_CHANGE
    ]
    models = paper.column("Table 5", "models of all")
    told += [
        f"Table 5’s {row} ({value:.0f} of {models[row]:.0f})"
        for row, value in paper.column("Table 5", "all").items()
        if value < MIN_SHARE * models[row]
    ]
    return (
        f"Of the paper’s own numbers {', '.join(told[:-1])} and {told[-1]} do not obey these "
        "rules; of single cells and seeds it prints none, so its statements about means cannot be "
        "judged by the rules for cells."
    )


# --- statements about the grid -------------------------------------------------------------------


def _order_claims(order: Sequence[OrderRow], means: Sequence[MeanRow]) -> list[Claim]:
    """Judge for each tau whether it falls from additive over deep to dot attention."""
    if not order:
        return []
    overall = {row.attention: row for row in means if row.encoder == "all"}
    of_attention = [overall[attention] for attention in ATTENTIONS]
    found = []
    for tau in TAUS:
        decided = [row for row in order if not row.undecided_reason(tau)]
        falls = sum(row.falls(tau) is True for row in decided)
        taus = np.array([row.taus(tau) for row in decided]).reshape(-1, len(ATTENTIONS))
        steps = ", ".join(
            f"{a} less {b} {mean_and_error(taus[:, i] - taus[:, i + 1])}"
            for i, (a, b) in enumerate(itertools.pairwise(ATTENTIONS))
        )
        p_chance = at_least(falls, len(decided), 1 / 6)
        average = [row.tau(tau).mean for row in of_attention]
        corrected = [row.tau(tau).corrected for row in of_attention]
        chance = sum(row.tau(tau).chance for row in of_attention)
        models = sum(row.models for row in of_attention)
        found.append(
            Claim(
                f"Additive above deep above dot attention, {tau} tau",
                f"{tau} tau falls in this order; a cell is a data set, an encoder and a seed, all "
                "three taus of five ranks or more; by chance one of six orders",
                f"means {', '.join(number(paper.MEANS['', own]) for own in ATTENTIONS)} "
                "(weighted, of eleven data sets)",
                sentence(
                    f"means {', '.join(map(number, average))}",
                    f"in this order in {falls} of {counted(len(decided), 'cell')}",
                    by_chance(len(decided), 1 / 6, p_chance),
                    f"mean ± standard error over the cells: {steps}",
                    f"means with bias correction {', '.join(map(number, corrected))}",
                    f"{chance} of {counted(models, 'model')} not different from outputs shuffled",
                    _undecided(row.undecided_reason(tau) for row in order),
                ),
                falls,
                len(decided),
                len(order) - len(decided),
                means=all(told_apart(taus[:, i] - taus[:, i + 1]) for i in (0, 1)),
                p_chance=p_chance,
            )
        )
    return found


def _highest_claims(highest: Sequence[HighestRow], means: Sequence[MeanRow]) -> list[Claim]:
    """Judge for each tau whether BiLSTM with additive attention has the highest."""
    if not highest:
        return []
    by_model = {(row.encoder, row.attention): row for row in means if row.encoder != "all"}
    best = by_model.pop(BEST)
    found = []
    for tau in TAUS:
        decided = [row.tau(tau) for row in highest if not row.tau(tau).undecided_reason]
        won = [row for row in decided if row.highest]
        tied = sum(row.value <= row.best_other + SAME for row in won)
        own = best.tau(tau).mean
        others = [row for row in by_model.values() if not math.isnan(row.tau(tau).mean)]
        second, agree = "", False
        if others:
            top = max(others, key=lambda row: row.tau(tau).mean)
            lead = _lead(highest, (top.encoder, top.attention), tau)
            agree = told_apart(lead)
            second = (
                f"best other mean {number(top.tau(tau).mean)}, {top.encoder} with {top.attention}, "
                f"a lead of {mean_and_error(lead)} over {counted(len(lead), 'cell')}"
            )
        p_chance = at_least(len(won), len(decided), 1 / 9)
        found.append(
            Claim(
                f"BiLSTM with additive attention has the highest {tau} tau",
                f"no other of the nine combinations has a higher {tau} tau; a cell is a data set "
                "and a seed, of the combinations with five ranks or more; by chance one of nine",
                f"mean {paper.MEANS[BEST]:.2f} (weighted); highest most of the time",
                sentence(
                    f"mean {number(own)}",
                    second,
                    f"highest in {len(won)} of {counted(len(decided), 'cell')}, in {tied} of "
                    "these with another",
                    by_chance(len(decided), 1 / 9, p_chance),
                    f"{best.tau(tau).chance} of {counted(best.models, 'model')} not different "
                    "from outputs shuffled",
                    _undecided(row.tau(tau).undecided_reason for row in highest),
                ),
                len(won),
                len(decided),
                len(highest) - len(decided),
                means=agree,
                p_chance=p_chance,
            )
        )
    return found


def _accuracy_claims(rows: Sequence[AccuracyRow]) -> list[Claim]:
    """Judge the accuracy on each data set for which one is asked for."""
    return [
        Claim(
            f"BiLSTM with additive attention classifies {row.dataset}",
            f"accuracy of a seed at least {row.paper.needed:.2f}: less than the paper's, for "
            "narrower vectors and another split",
            f"{row.paper.accuracy:.2f}",
            f"mean {row.accuracy:.3f}, lowest {row.lowest:.3f}",
            row.reached,
            row.seeds,
        )
        for row in rows
        if not math.isnan(row.paper.needed)
    ]


# --- statements about special models -------------------------------------------------------------


def _fix_claims(rows: Sequence[FixRow]) -> list[Claim]:
    """Judge each way to fix attention or representations."""
    found = []
    for setting, text, rule, reported in (
        (
            "Fix Attn",
            "fixed attention lowers {tau} tau",
            f"{{tau}} tau of a model falls by more than {MIN_FALL}, or to chance",
            f"by {paper.ends(paper.column('Table 2', 'Fix Attn').values())} (weighted; all eleven)",
        ),
        (
            "Fix Rep",
            "fixed representations do not lower {tau} tau",
            f"{{tau}} tau of a model falls by at most {MAX_FALL} and not to chance; it may rise",
            f"it rises by {paper.ends(0 - x for x in paper.column('Table 2', 'Fix Rep').values())} "
            "(weighted)",
        ),
    ):
        own = [row for row in rows if row.setting == setting]
        for reading, group in grouped(own, lambda row: row.reading).items():
            positions = "; ranks are positions, so this tau is another quantity"
            remark = positions if reading == "uniform" else ""
            for tau in TAUS:
                reasons, decided = _decided(group, tau)
                if setting == "Fix Attn":
                    held = sum(not row.keeps(tau, MIN_FALL) for row in decided)
                else:
                    held = sum(row.keeps(tau, MAX_FALL) for row in decided)
                found.append(
                    Claim(
                        f"{setting}, {reading.replace('_', ' ')}: {text.format(tau=tau)}",
                        rule.format(tau=tau) + remark,
                        reported,
                        sentence(_change(decided, tau), _undecided(reasons)),
                        held,
                        len(decided),
                        len(group) - len(decided),
                    )
                )
    return found


def _adversary_claims(rows: Sequence[AdversaryRow]) -> list[Claim]:
    """Judge whether adversaries with another attention keep tau."""
    if not rows:
        return []
    distances = ", ".join(
        f"{name} {' to '.join(ends(values))}"
        for name, values in (
            ("JSD", [row.attention_jsd for row in rows]),
            ("TVD", [row.tvd for row in rows]),
        )
    )
    found = []
    for tau in TAUS:
        reasons = [row.undecided_reason(tau) or _premise(row) for row in rows]
        decided = [row for row, reason in zip(rows, reasons, strict=True) if not reason]
        held = sum(
            abs(row.delta(tau)) <= MAX_CHANGE and row.special.tau(tau).chance is False
            for row in decided
        )
        found.append(
            Claim(
                f"Adversaries with another attention and the same outputs keep {tau} tau",
                f"{tau} tau of a model moves by at most {MAX_CHANGE} up or down, and not to "
                f"chance; the premise is a JSD of attention of at least {MIN_JSD} and a TVD of "
                f"outputs of at most {MAX_TVD}, twice the paper's most, which may be half of it",
                f"JSD {paper.ends(paper.column('Table 3', 'jsd').values())}, "
                f"TVD {paper.ends(paper.column('Table 3', 'tvd').values(), 3)}, "
                f"tau falls by {paper.ends(paper.column('Table 4', 'delta').values())} (weighted)",
                sentence(distances, _change(decided, tau), _undecided(reasons)),
                held,
                len(decided),
                len(rows) - len(decided),
            )
        )
    return found


def _premise(row: AdversaryRow) -> str:
    """Say what of the premise does not hold: another attention, and the same outputs."""
    if row.attention_jsd < MIN_JSD:
        return f"JSD of attention below {MIN_JSD}"
    return f"TVD of outputs above {MAX_TVD}" if row.tvd > MAX_TVD else ""


def _gumbel_claims(rows: Sequence[GumbelRow]) -> list[Claim]:
    """Judge whether Gumbel-softmax keeps tau, and report tau of its noise alone."""
    if not rows:
        return []
    found = []
    for tau in TAUS:
        for noise in NOISES:
            pairs = [row.pair(noise) for row in rows]
            reasons, decided = _decided(pairs, tau)
            kept = sum(pair.delta(tau) <= SAME for pair in pairs)
            found.append(
                Claim(
                    f"Gumbel-softmax does not lower {tau} tau, {noise.replace('_', ' ')} at "
                    "evaluation",
                    f"{tau} tau of a model is not lower than softmax's, and not chance",
                    _gumbel_of_the_paper(),
                    sentence(
                        _change(decided, tau),
                        _undecided(reasons),
                        f"not lower in {kept} of all {len(pairs)}, chance or not",
                    ),
                    sum(pair.keeps(tau, SAME) for pair in decided),
                    len(decided),
                    len(pairs) - len(decided),
                    MIN_SHARE,
                )
            )
    means = [number(mean(row.equal_scores.tau(tau).value for row in rows)) for tau in TAUS]
    found.append(
        Claim(
            "The noise alone makes tau positive: with equal scores, no attention learned",
            "none: no statement of the paper",
            "not looked at",
            f"mean weighted tau {means[0]}, plain {means[1]}",
            0,
            0,
        )
    )
    return found


def _gumbel_of_the_paper() -> str:
    """Say in how many of the paper's models Gumbel-softmax does not lower tau."""
    kept, models = (paper.column("Table 5", name) for name in ("all", "models of all"))
    first, *others = (f"{kept[row]:.0f} of {models[row]:.0f} {row}" for row in kept)
    share = paper.GUMBEL["all"]
    return f"{first} models, {share:.0%}; {' and '.join(others)} (weighted)"


def _lead(
    highest: Sequence[HighestRow], other: tuple[str, str], tau: TauName
) -> NDArray[np.float64]:
    """Give by how much the best combination leads another in each cell that decides."""
    leads = [
        row.models[BEST].tau(tau).value - row.models[other].tau(tau).value
        for row in highest
        if not row.tau(tau).undecided_reason and other in row.models
    ]
    return np.array([lead for lead in leads if not math.isnan(lead)])


def _decided(pairs: Sequence[AnyPair], tau: TauName) -> tuple[list[str], list[AnyPair]]:
    """Say of each pair why it is undecided, and choose those that are not."""
    reasons = [pair.undecided_reason(tau) for pair in pairs]
    return reasons, [pair for pair, reason in zip(pairs, reasons, strict=True) if not reason]


# --- words ---------------------------------------------------------------------------------------


def _undecided(reasons: Iterable[str]) -> str:
    """Count the cases that are undecided, by the reason."""
    counts = Counter(reason for reason in reasons if reason)
    if not counts:
        return ""
    return "undecided: " + ", ".join(f"{n} ({reason})" for reason, n in counts.items())


def _change(pairs: Sequence[Pair], tau: TauName) -> str:
    """Say by how much tau falls, and how often to chance."""
    if not pairs:
        return ""
    text = f"{tau} tau falls by {' to '.join(ends([pair.delta(tau) for pair in pairs]))}"
    chance = sum(pair.special.tau(tau).chance is True for pair in pairs)
    return text + (f", {chance} of {len(pairs)} to chance" if chance else "")
