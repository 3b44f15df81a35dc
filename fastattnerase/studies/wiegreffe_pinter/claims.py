"""Statements of the paper, each judged by a rule on the numbers found here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.models.published import pair
from fastattnerase.plurals import counted
from fastattnerase.statistics.shares import hardly_better
from fastattnerase.studies.wiegreffe_pinter.paper import uniform_is_worse

with needs("report"):
    import pandas as pd

_ALIKE = 0.01  # of F1 or accuracy: what falls by less is as good
_SIGNIFICANT = 0.05
_APART = 0.4  # nats of JSD: the adversaries of the paper's Table 4 are above
_RISES = 0.8  # rank correlation of λ and JSD
_IMITATES = 0.05  # mean |p − p'| on the training documents


@dataclass(frozen=True)
class Claim:
    """A statement with its verdict in one case.

    Attributes:
        text: The statement.
        case: Data set and base model.
        rule: What decides.
        here: The numbers that decide.
        verdict: `agrees`, `disagrees` or `cannot tell`.
    """

    text: str
    case: str
    rule: str
    here: str
    verdict: str


def _verdict(holds: bool) -> str:
    return "agrees" if holds else "disagrees"


def claims(
    uniform: pd.DataFrame, diagnostic: pd.DataFrame, adversaries: pd.DataFrame, curve: pd.DataFrame
) -> list[Claim]:
    """Judge every statement in every case that has its numbers.

    Args:
        uniform: of `tables.uniform_table`.
        diagnostic: of `tables.diagnostic_table`.
        adversaries: of `tables.adversary_table`.
        curve: of `tables.curve_table`.

    Returns:
        The claims, statement by statement.
    """
    return [
        *_uniform(uniform),
        *_diagnostic(diagnostic),
        *_adversaries(adversaries),
        *_curves(curve),
    ]


def _case(row: dict[str, Any]) -> str:
    return f"{row['dataset']} {row['encoder']} {row['attention']}"


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _uniform(table: pd.DataFrame) -> Iterator[Claim]:
    for row in _rows(table):
        two = row["classes"] == 2
        worse = uniform_is_worse(row["dataset"])
        if worse is None:
            continue
        score, name = ("f1", "F1") if two else ("accuracy", "Accuracy")
        here = (
            f"{name} {row[f'base_{score}']:.3f} learned, {row[f'uniform_{score}']:.3f} uniform; "
            f"alone right {row['base_alone_right']} and {row['uniform_alone_right']}, McNemar's p "
            f"{row['p_mcnemar']:.3g}"
        )
        if hardly_better(row["base_accuracy"], row["majority"]):
            verdict = "cannot tell"
            here += "; the base model hardly beats the most frequent class"
        else:
            falls = row[f"drop_{score}"] >= _ALIKE and row["p_mcnemar"] < _SIGNIFICANT
            verdict = _verdict(falls == worse)
        yield Claim(
            f"Uniform attention does {'worse than' if worse else 'as well as'} learned attention"
            + (
                " where there is a second text (Vashishth et al. 2019)"
                if pair(row["dataset"])
                else ""
            ),
            _case(row),
            f"Worse where {name} falls by {_ALIKE} or more and McNemar's p is below "
            f"{_SIGNIFICANT}; as well otherwise",
            here,
            verdict,
        )


def _diagnostic(table: pd.DataFrame) -> Iterator[Claim]:
    columns = ("uniform_f1", "learned_f1", "base_f1", "adversary_f1")
    for row in _rows(table):
        if any(pd.isna(row[column]) for column in columns):
            continue
        uniform, learned, base, adversary = (row[column] for column in columns)
        yield Claim(
            "The base model's weights serve an MLP better than uniform ones",
            _case(row),
            "F1 with the base model's weights is above F1 with uniform ones",
            f"{base:.3f} base, {learned:.3f} learned by the MLP, {uniform:.3f} uniform",
            _verdict(base > uniform),
        )
        jsd = row["lender_jsd"]
        told = pd.notna(jsd) and jsd >= _APART
        yield Claim(
            "The adversary's weights serve an MLP worse than the base model's",
            _case(row),
            f"F1 is lower; cannot tell where the adversary's JSD is below {_APART}",
            f"{adversary:.3f} adversary (λ {row['lender_strength']:g}, JSD {jsd:.3f}), "
            f"{base:.3f} base",
            _verdict(adversary < base) if told else "cannot tell",
        )


def _adversaries(table: pd.DataFrame) -> Iterator[Claim]:
    for row in _rows(table):
        case = f"{_case(row)}, λ {row['strength']:g}, at most {counted(row['max_epochs'], 'epoch')}"
        if row["strength"] == 0:
            yield Claim(
                "Without the attention term (λ = 0) an adversary reproduces the base model",
                case,
                f"Mean |p − p'| on the training documents is at most {_IMITATES}",
                f"{row['train_tvd']:.4f}",
                _verdict(row["train_tvd"] <= _IMITATES),
            )
        elif pd.notna(row["paper_jsd"]):
            yield Claim(
                "A trained adversary has other attention and much the same outputs",
                case,
                f"Test JSD at least {_APART} and halved TVD at most {_IMITATES}, as in Table 4",
                f"JSD {row['jsd']:.3f}, TVD {row['tvd_halved']:.3f} halved, {row['tvd']:.3f} not",
                _verdict(row["jsd"] >= _APART and row["tvd_halved"] <= _IMITATES),
            )


def _curves(table: pd.DataFrame) -> Iterator[Claim]:
    for row in _rows(table):
        known = pd.notna(row["spearman"])
        yield Claim(
            "The larger λ, the further the adversary's attention is from the base model's",
            f"{_case(row)}, at most {counted(row['max_epochs'], 'epoch')}",
            f"Spearman's rank correlation of λ and JSD is at least {_RISES}",
            f"{row['spearman']:.2f} over {counted(row['values'], 'value')} of λ"
            if known
            else "JSD constant",
            _verdict(row["spearman"] >= _RISES) if known else "cannot tell",
        )
