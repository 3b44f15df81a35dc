"""Correlation of importances and permuted weights, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fastattnerase.attention_tests.correlation import FEW, agreements
from fastattnerase.attention_tests.permutation import permuted_outputs
from fastattnerase.data import Dataset, TokenisedText, Vocabulary, encode
from fastattnerase.models import AttentionClassifier, ModelConfig, build_model

VOCABULARY = Vocabulary(["a", "b", "c", "d"])


def model_of(attention: str, bias: float = 0.0) -> AttentionClassifier:
    """Words are numbers: a = 1, b = 3, c = -2, d = 2; one logit, twice their mean by attention."""
    config = ModelConfig(
        kind="flan", encoder="noenc", attention=attention, head="sigmoid", embedding_size=1
    )
    values = torch.tensor([[0.0], [1.0], [3.0], [-2.0], [2.0], [0.0]])  # padding, a to d, unknown
    model = build_model(config, VOCABULARY, 2, values)
    with torch.no_grad():
        model.classifier.weight.fill_(2.0)
        model.classifier.bias.fill_(bias)
        if attention == "dot":
            model.get_submodule("words.attention").vector.weight.fill_(math.log(2.0))  # type: ignore[union-attr,operator]
    return model


def texts(*words: str) -> Dataset:
    return encode(
        [TokenisedText(i, 0, [list(text)], [text]) for i, text in enumerate(words)], VOCABULARY
    )


def test_two_sentences_by_hand() -> None:
    """Weights are in proportion to 2^value: a 2, b 8, c 1/4, d 4.

    `abcd`: the gradient |2 a_i x_i| p (1 - p) orders words b (24), d (8), a (2), c (1/2), as
    attention does: tau 1. The logit is 2 (2 + 24 - 0.5 + 8)/14.25 = 4.70; without b 3.04, without a
    5.14, without d 4.98, without c 4.86. So outputs move by b > a > d > c: one of six pairs is in
    another order, tau 4/6.
    """
    found = list(agreements(model_of("dot"), texts("abcd", "b")))
    assert [(one.row, one.pair) for one in found] == [
        (row, pair)
        for row in (0, 1)
        for pair in ("attention_gradient", "attention_loo", "gradient_loo")
    ]
    assert [one.tau for one in found[:3]] == pytest.approx([1.0, 4 / 6, 4 / 6])
    assert found[0].predicted == 1
    assert found[0].p == pytest.approx(2 / 24)  # of 24 orders, the two at the ends
    assert [(one.tau, one.p, one.reason) for one in found[3:]] == [(None, None, FEW)] * 3


def test_reasons_of_undefined_taus() -> None:
    [one, *_] = agreements(model_of("uniform"), texts("abc"), rows=[])
    assert (one.tau, one.reason) == (None, "attention constant")
    found = {x.pair: x for x in agreements(model_of("dot", bias=1000.0), texts("abc"))}
    assert found["attention_gradient"].reason == "gradient constant"  # saturated: all 0
    assert found["attention_loo"].reason == "leave-one-out constant"
    assert found["gradient_loo"].reason == "gradient constant"


def test_leave_one_out_of_some_documents() -> None:
    told: list[float] = []
    found = list(
        agreements(model_of("dot"), texts("abc", "ca", "bc"), rows=[2], progress=told.append)
    )
    assert [(one.row, one.pair) for one in found] == [
        (0, "attention_gradient"),
        (1, "attention_gradient"),
        (2, "attention_gradient"),
        (2, "attention_loo"),
        (2, "gradient_loo"),
    ]
    assert told == [1.0]


def test_permuting_uniform_weights_changes_nothing_exactly() -> None:
    found = list(permuted_outputs(model_of("uniform"), texts("abc", "b", "cab"), permutations=20))
    assert [(one.row, one.words) for one in found] == [(0, 3), (1, 1), (2, 3)]
    assert all(one.median_tvd == 0.0 and one.flips == 0 for one in found)


def test_permutations_of_two_words_by_hand() -> None:
    """`ac`: weights 8/9 and 1/9; logits 2 (8 - 2)/9 = 4/3, and swapped 2 (1 - 16)/9 = -10/3."""
    [one] = permuted_outputs(model_of("dot"), texts("ac"), permutations=101)
    p, swapped = (1 / (1 + math.exp(-z)) for z in (4 / 3, -10 / 3))
    assert one.largest_weight == pytest.approx(8 / 9)
    assert 25 < one.flips < 75
    assert one.median_tvd == pytest.approx(p - swapped if one.flips > 50 else 0.0, abs=1e-6)
