"""Scores of tokens from other libraries: special tokens dropped, tokens aligned, pieces summed."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from huggingface.tiny import texts_of, tiny

from fastattnerase.huggingface import TransformerConfig
from fastattnerase.input_erasure import erase_inputs
from fastattnerase.interop import scores_of_tokens


@dataclass
class Explanation:
    """The fields of ferret's."""

    text: str
    tokens: list[str]
    scores: Any
    explainer: str = "Partition SHAP"


TOKENS = ["[CLS]", "the", "un", "##believ", "##ably", "dull", "[SEP]"]


def test_words_get_the_sums_of_their_tokens() -> None:
    model = tiny("bert")
    dataset = texts_of(model, [["the", "unbelievably", "dull"], [], ["good"]])
    given = [
        Explanation("the unbelievably dull", TOKENS, torch.arange(7.0).numpy()),
        {"tokens": ["[CLS]", "[SEP]"], "scores": [9, 9]},
        {"tokens": ["good"], "scores": [0.5]},  # of one that leaves special tokens out itself
    ]
    found = scores_of_tokens(given, dataset, model.words)
    assert found.scores.tolist() == [1.0, 2.0 + 3.0 + 4.0, 5.0, 0.5]
    assert found.offsets.tolist() == [0, 3, 3, 4]
    assert scores_of_tokens(given, dataset, model.words, pool="largest").scores[1] == 4.0
    curves = erase_inputs(model, dataset, {"theirs": found.scores})
    assert curves.curves["label_prob"].shape == (1, 7)


def test_items_that_are_pieces_keep_their_scores() -> None:
    model = tiny("bert", TransformerConfig(unit="pieces"))
    dataset = texts_of(model, [["the", "unbelievably", "dull"]])
    given = [Explanation("", TOKENS, list(range(7)))]
    assert scores_of_tokens(given, dataset, model.words).scores.tolist() == [1, 2, 3, 4, 5]


def test_a_first_token_without_its_space_fits() -> None:
    model = tiny("roberta")
    dataset = texts_of(model, [["a", "film"]])
    assert dataset[0].tokens == ["a", "film"]
    given = [{"tokens": ["<s>", "a", "Ġ", "film", "</s>"], "scores": [0, 1, 2, 3, 0]}]
    assert scores_of_tokens(given, dataset, model.words).scores.tolist() == [1.0, 5.0]


def test_what_does_not_fit_is_named() -> None:
    model = tiny("bert")
    dataset = texts_of(model, [["good"], ["the", "films"]])
    good = {"tokens": ["[CLS]", "good", "[SEP]"], "scores": [0, 1, 0]}

    def refused(other: Any, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            scores_of_tokens([good, other], dataset, model.words)

    refused(
        {"tokens": ["the", "film", "##ed"], "scores": [1, 2, 3]},
        "given '##ed' at 2 of text 1, needed '##s', as the document has",
    )
    refused({"tokens": ["the", "film"], "scores": [1, 2]}, "given no token at 2 of text 1")
    refused(
        {"tokens": ["the", "film", "##s", "a"], "scores": [1, 2, 3, 4]},
        "given 'a' at 3 of text 1, needed no token",
    )
    refused({"tokens": ["the"], "scores": [1, 2]}, "given 2 scores for 1 token of text 1")
    refused({"tokens": ["the"]}, "given dict without scores for text 1")
    for odd in (["high"], [[1.0, 2.0]], 5, [10**400]):
        refused({"tokens": ["the"], "scores": odd}, "of text 1, needed texts and numbers, one a t")
    refused(
        {"tokens": ["the"], "scores": np.ones((2, 2))},  # whose repr has two lines
        r"and scores array\(\[\[1., 1.\], \[1., 1.\]\]\) of text 1, needed texts and numbers",
    )
    refused({"tokens": ["the", "film", "##s"], "scores": [1, float("nan"), 2]}, "NaN in text 1")
    with pytest.raises(ValueError, match="pool: given 'mean', needed sum, largest or first"):
        scores_of_tokens([good, good], dataset, model.words, pool="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="given 1, needed 2, one a document"):
        scores_of_tokens([good], dataset, model.words)
    other = texts_of(tiny("roberta"), [["a", "film"], ["film"]])
    with pytest.raises(ValueError, match="dataset: given a word in text 0 that words lacks, need"):
        scores_of_tokens([good, good], other, tiny("bert").words)
    with pytest.raises(TypeError, match="words: given TransformerClassifier, needed those of a t"):
        scores_of_tokens([good, good], dataset, model)


def test_mappings_of_any_kind_and_scores_with_gradients_are_read() -> None:
    model = tiny("bert")
    scores = torch.arange(3.0, requires_grad=True)
    given = MappingProxyType({"tokens": ["[CLS]", "good", "[SEP]"], "scores": scores})
    found = scores_of_tokens([given], texts_of(model, [["good"]]), model.words)
    assert found.scores.tolist() == [1.0]
