"""What the paper says of its taus, permutations and adversaries, judged by a rule on each model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastattnerase.attention_tests.correlation import PAIRS
from fastattnerase.extras import needs
from fastattnerase.statistics.shares import hardly_better
from fastattnerase.studies.jain_wallace.paper import TAUS

with needs("report"):
    import pandas as pd

_LEAD = 0.1  # by which the MLP's tau exceeds the BiLSTM's
_HALF = 0.3465735902799726  # nats, half of the largest divergence, ln 2 / 2
_MODEL = ["dataset", "encoder", "attention", "seed"]


@dataclass(frozen=True)
class Claim:
    """A statement and how many models keep it.

    Attributes:
        text: The statement.
        rule: When a model, or a pair of models, keeps it.
        held: How many keep it.
        cases: Of how many.
        verdict: `agrees`: all do; `partly`; `disagrees`: none; `no case`.
        paper: What the paper has.
        here: What was found.
    """

    text: str
    rule: str
    held: int
    cases: int
    verdict: str
    paper: str
    here: str


def unskilled(models: pd.DataFrame) -> pd.DataFrame:
    """Give the rows of models that hardly beat the most frequent class.

    Their attention has little to explain, so that no statement is judged on them.

    Args:
        models: the table of `tables.collect`.
    """
    pairs = zip(models["accuracy"], models["majority"], strict=True)
    return models[[hardly_better(accuracy, majority) for accuracy, majority in pairs]]


def claims(
    models: pd.DataFrame,
    correlations: pd.DataFrame,
    permutations: pd.DataFrame,
    adversaries: pd.DataFrame,
) -> list[Claim]:
    """Judge the statements on the models that beat the most frequent class.

    Args:
        models, correlations, permutations, adversaries: the tables of `tables.collect`.

    Returns:
        The statements that the study's cells can say something about, and those without a case.
    """
    poor = pd.MultiIndex.from_frame(unskilled(models)[_MODEL])
    correlations, permutations, adversaries = (
        table[~pd.MultiIndex.from_frame(table[_MODEL]).isin(poor)]
        for table in (correlations, permutations, adversaries)
    )
    overall = correlations[correlations["predicted"] == "all"]
    taus = overall.pivot(index=_MODEL, columns="pair", values="mean").reindex(columns=PAIRS)
    bilstm = taus[taus.index.get_level_values("encoder") == "bilstm"].dropna()
    own = bilstm["gradient_loo"]
    leads = {other: own - bilstm[other] for other in ("attention_loo", "attention_gradient")}
    both = pd.concat(leads, axis=1).min(axis=1)
    gradient = taus["attention_gradient"].unstack("encoder")
    if {"mlp", "bilstm"} <= set(gradient):
        lead = (gradient["mlp"] - gradient["bilstm"]).dropna()
    else:
        lead = pd.Series(dtype=float)
    everywhere = permutations[
        (permutations["predicted"] == "all") & (permutations["largest_weight"] == "all")
    ]
    jsd = adversaries[
        (adversaries["predicted"] == "all") & (adversaries["largest_weight"] == "all")
    ]
    peaked = permutations[
        (permutations["predicted"] == "all") & (permutations["largest_weight"] == ".75 to 1")
    ]
    return [
        _judge(
            "Gradients and leave-one-out agree more with each other than with attention (BiLSTM)",
            "mean tau of gradient and leave-one-out above both means of tau with attention",
            both,
            lambda value: value > 0,
            f"tau of the two {_range('gradient_loo', 'bilstm')}, of attention and gradient "
            f"{_range('attention_gradient', 'bilstm')}",
            "least lead {}",
        ),
        _judge(
            "Attention of the MLP agrees more with gradients than that of the BiLSTM",
            f"mean tau of attention and gradient at least {_LEAD} above",
            lead,
            lambda value: value >= _LEAD,
            f"{_range('attention_gradient', 'mlp')} against "
            f"{_range('attention_gradient', 'bilstm')}",
            "lead {}",
        ),
        _judge(
            "Attention of the BiLSTM agrees weakly with gradients",
            "mean tau below .5",
            bilstm["attention_gradient"],
            lambda value: value < 0.5,
            _range("attention_gradient", "bilstm"),
            "tau {}",
        ),
        _judge(
            "Permuted attention hardly changes the output",
            "median of the median differences below .1",
            everywhere["median"],
            lambda value: value < 0.1,
            "Figure 6, which is read by eye",
            "median difference {}",
        ),
        _judge(
            "That holds where one word has most of the weight",
            "the same, for documents with a largest weight of .75 or more",
            peaked["median"],
            lambda value: value < 0.1,
            "Figure 6, which is read by eye",
            "median difference {}",
        ),
        _judge(
            "There is quite other attention with nearly the same output",
            "mean divergence of the code’s selection above ln 2 / 2",
            jsd["jsd_code"],
            lambda value: value > _HALF,
            "Figure 7, which is read by eye; at most .69",
            "mean JSD {}",
        ),
    ]


def _range(pair: str, encoder: str) -> str:
    """Write the smallest and largest published mean of a tau with additive attention."""
    values = [
        published.value
        for (_, own, attention, which, _, number), published in TAUS.items()
        if (own, attention, which, number) == (encoder, "additive", pair, "mean")
    ]
    return _between(values)


def _between(values: list[float]) -> str:
    """Write the smallest and the largest of some values; of one, itself."""
    ends = dict.fromkeys((min(values), max(values)))
    return " to ".join(f"{value:.2f}".replace("-", "−") for value in ends)


def _judge(
    text: str,
    rule: str,
    values: pd.Series,
    kept: Callable[[float], bool],
    paper: str,
    here: str,
) -> Claim:
    """Count who keeps a statement."""
    known = [float(value) for value in values.dropna()]
    held = sum(kept(value) for value in known)
    if not known:
        return Claim(text, rule, 0, 0, "no case", paper, "")
    verdict = "agrees" if held == len(known) else "partly" if held else "disagrees"
    told = f"{held} of {len(known)}; {here.format(_between(known))}"
    return Claim(text, rule, held, len(known), verdict, paper, told)
