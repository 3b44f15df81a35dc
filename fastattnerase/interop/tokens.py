"""Scores of a tokenizer's tokens, as other libraries give them, for the words of a transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.huggingface.methods import pooled
from fastattnerase.huggingface.words import Pieces
from fastattnerase.interop.scores import PackedScores, pack_scores
from fastattnerase.plurals import counted

_SPACE = "Ġ"  # of byte-level tokenizers; a text that begins without one has none there


def scores_of_tokens(
    explanations: Sequence[Any],
    dataset: Dataset,
    words: Pieces,
    *,
    pool: Literal["sum", "largest", "first"] = "sum",
) -> PackedScores:
    """Give words the scores of their tokens; special tokens around a text are left out.

    Args:
        explanations: for each document its tokens and their scores: ferret's `Explanation`, or any
            object with `tokens` and `scores`, or a mapping with these, such as of JSON.
        dataset: `B` documents of the transformer, as `TransformerClassifier.fit` gives them.
        words: the transformer's, `TransformerClassifier.words`.
        pool: a word's score from its tokens': their `sum`, the `largest`, or that of the `first`.

    Returns:
        The scores of all words, float64, and where each text begins.

    Raises:
        ValueError: another `pool`, another number of explanations than documents or of scores than
            tokens, what is no number, NaN, or a token that is not the document's: the message names
            the first that does not fit. Documents of another model.
        TypeError: no words of a transformer.

    Source:
        Attanasio et al. 2023, ferret: a framework for benchmarking explainers on transformers.

    Example:
        >>> from fastattnerase.interop import scores_of_tokens
        >>> explained = [bench.explain(text, target=1)[0] for text in texts]  # doctest: +SKIP
        >>> theirs = scores_of_tokens(explained, dataset, model.words)  # doctest: +SKIP
        >>> erase_inputs(model, dataset, {"shap": theirs.scores})  # doctest: +SKIP
    """
    TransformerConfig(pool=pool)  # refuses another
    if not isinstance(words, Pieces):
        raise TypeError(
            f"words: given {type(words).__name__}, needed those of a transformer, .words"
        )
    if len(explanations) != len(dataset):
        raise ValueError(
            f"explanations: given {len(explanations)}, needed {len(dataset)}, one a document"
        )
    ahead, behind = (words.tokenizer.convert_ids_to_tokens(o) for o in (words.before, words.after))
    found: list[Tensor] = []
    for row, (explanation, document) in enumerate(zip(explanations, dataset, strict=True)):
        tokens, scores = _read(explanation, row)
        begin = len(ahead) if tokens[: len(ahead)] == ahead else 0
        end = len(tokens) - (len(behind) if behind and tokens[-len(behind) :] == behind else 0)
        try:
            pieces = [words.texts(index) for index in document.token_ids.tolist()]
        except IndexError:
            raise ValueError(
                f"dataset: given a word in text {row} that words lacks, needed documents that "
                "TransformerClassifier.fit gave"
            ) from None
        own = [piece for word in pieces for piece in word]
        _require_same(tokens[begin:end], own, row)
        found.append(pooled(scores[begin:end], [len(word) for word in pieces], pool))
    offsets = torch.tensor([0, *(len(one) for one in found)]).cumsum(0)  # [B + 1]
    nothing = torch.zeros(0, dtype=torch.float64)
    return pack_scores(torch.cat([nothing, *found]), offsets=offsets)


def _read(explanation: Any, row: int) -> tuple[list[str], Tensor]:
    """Read the tokens of an explanation, and their scores `[n]`."""
    parts = []
    for name in ("tokens", "scores"):
        is_mapping = isinstance(explanation, Mapping)
        part = explanation.get(name) if is_mapping else getattr(explanation, name, None)
        if part is None:
            raise ValueError(
                f"explanations: given {type(explanation).__name__} without {name} for text {row}, "
                "needed tokens and scores"
            )
        parts.append(part)
    given = parts[1].tolist() if isinstance(parts[1], Tensor) else parts[1]
    try:
        tokens, numbers = [str(token) for token in parts[0]], [float(score) for score in given]
    except (TypeError, ValueError, OverflowError) as error:
        texts, values = (" ".join(repr(part).split()) for part in (parts[0], given))
        raise ValueError(
            f"explanations: given tokens {texts:.40} and scores {values:.40} of text {row}, needed "
            "texts and numbers, one a token"
        ) from error
    if len(tokens) != len(numbers):
        raise ValueError(
            f"explanations: given {counted(len(numbers), 'score')} for "
            f"{counted(len(tokens), 'token')} of text {row}, needed one a token"
        )
    return tokens, torch.tensor(numbers, dtype=torch.float64)


def _require_same(tokens: list[str], pieces: list[str], row: int) -> None:
    """Refuse tokens that are not a document's pieces, naming the first that does not fit."""
    for place in range(max(len(tokens), len(pieces))):
        token = tokens[place] if place < len(tokens) else None
        piece = pieces[place] if place < len(pieces) else None
        if token != piece and not (place == 0 and piece == f"{_SPACE}{token}"):
            given, needed = ("no token" if one is None else repr(one) for one in (token, piece))
            raise ValueError(
                f"explanations: given {given} at {place} of text {row}, needed {needed}, as the "
                "document has"
            )
