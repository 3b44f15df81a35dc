"""Findings of a comparison, from tables made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fastattnerase.studies.compare.findings import findings, firsts
from fastattnerase.studies.compare.options import LAYER, RANDOM, WORDS
from fastattnerase.studies.compare.summary import Cell


def tables(
    values: dict[str, float], half: float, better: str, level: str = WORDS
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means, and differences with intervals of one width."""
    measure = "aopc_comprehensiveness" if better == "higher" else "aopc_sufficiency"
    key = {"level": level, "measure": measure, "grid": "eraser"}
    means = pd.DataFrame(
        {**key, "better": better, "method": name, "mean": mean, "low": mean, "high": mean,
         "documents": 9, "reasons": ""}
        for name, mean in values.items()
    )  # fmt: skip
    names = list(values)
    pairs = pd.DataFrame(
        {**key, "method": a, "other": b, "difference": values[a] - values[b],
         "low": values[a] - values[b] - half, "high": values[a] - values[b] + half}
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    )  # fmt: skip
    return means, pairs


def test_first_alone_only_where_the_intervals_say_so() -> None:
    values = {"lrp": 0.1, "attention": 0.5, "omission": 0.45, RANDOM: 0.0}
    [sure] = firsts(*tables(values, 0.01, "higher"))
    assert (sure.best, sure.alone, sure.beside) == ("attention", True, ("attention",))
    assert sure.attention_alone
    assert sure.attention_random == "better"
    [unsure] = firsts(*tables(values, 0.1, "higher"))
    assert not unsure.alone
    assert unsure.beside == ("attention", "omission")
    assert not unsure.attention_alone
    [lower] = firsts(*tables(values, 0.01, "lower"))
    assert (lower.best, lower.attention, lower.attention_random) == ("lrp", 3, "worse")
    [alike] = firsts(*tables(values, 1.0, "lower"))
    assert alike.attention_random == "alike"


def test_sentences_follow_the_table() -> None:
    values = {"lrp": 0.1, "attention": 0.5, "omission": 0.45, RANDOM: 0.0}
    made = [
        *firsts(*tables(values, 0.01, "higher")),
        *firsts(*tables(values, 0.01, "lower")),
        *firsts(*tables(values, 0.1, "higher", LAYER)),
    ]
    agreement = pd.DataFrame(
        {"level": WORDS, "method": ["lrp", "attention"], "other": ["attention", "omission"],
         "tau": [0.25, 0.5], "low": 0.0, "high": 1.0, "documents": 9, "undefined": 0}
    )  # fmt: skip
    found = {one.question: one.answer for one in findings(made, agreement)}
    first, layer, *rest = found.values()
    assert first == (
        "Attention alone comes first for 1 of 2 measures: comprehensiveness, ERASER’s shares. "
        "Another method is surely better for 1, where attention has place 3 of 3."
    )
    assert layer == (
        "Attention alone comes first for none of 1 measures. It shares the first place for 1: "
        "comprehensiveness, ERASER’s shares."
    )
    assert (
        rest[0]
        == "First, alone or shared, of 2 measures: attention for 1 (1 alone); lrp for 1 (1 alone)."
    )
    assert rest[-1] == "It agrees with omission the most, tau 0.50, with lrp the least, 0.25."


def test_random_rankings_become_one() -> None:
    cell = Cell(WORDS, "flip_fraction", "")
    cell.values = {
        "a": np.array([0.5, 1.0]),
        "random-0": np.array([0.25, np.nan]),
        "random-1": np.array([0.75, np.nan]),
    }
    cell.undefined = {"a": {}, "random-0": {"no words": 1}, "random-1": {"no words": 1}}
    joined = cell.joined(["random-0", "random-1"])
    assert list(joined.values) == ["a", RANDOM]
    assert joined.values[RANDOM][0] == 0.5
    assert np.isnan(joined.values[RANDOM][1])
    assert joined.undefined[RANDOM] == {"no words": 1}
    assert joined.better == "lower"
