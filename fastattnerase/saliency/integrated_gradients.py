"""By derivatives along the way from a baseline to the text: contributions that add up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fastattnerase.data.dataset import Dataset, DocumentBatch
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.models.errors import ModelError
from fastattnerase.saliency import captum_forms
from fastattnerase.saliency.batches import derivative_bytes_of_word
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.derivatives import gradient_of
from fastattnerase.saliency.embedded import Embedded, embedded
from fastattnerase.saliency.registry import Method

Baseline = Literal["zero", "padding", "unknown"]
Rule = Literal["gauss_legendre", "riemann_right"]


def score(
    context: MethodContext,
    dataset: Dataset,
    *,
    steps: int = 50,
    rule: Rule = "gauss_legendre",
    baseline: Baseline = "zero",
    word: str | None = None,
    vocabulary: Vocabulary | None = None,
    captum: bool = False,
) -> Iterator[Scored]:
    """Compute `(x_i − b_i) · Σ_k w_k ∂f_c / ∂x_i (b + t_k (x − b))` of every word.

    Memory does not grow with the number of steps: passes over points of the way are batched
    within the budget, and their derivatives are added up.

    Args:
        context: the model, the class, the output and the budget.
        dataset: the documents.
        steps: `m`, the number of points.
        rule: `gauss_legendre`, nodes and weights of Gauss and Legendre on [0, 1]; or
            `riemann_right`, `t_k = k / m` and `w_k = 1 / m`, the paper's.
        baseline: `zero` vectors, or the vector of `padding` or of `unknown` words in every place.
        word: another word whose vector is the baseline; `vocabulary` has it.
        vocabulary: of the model; of the package's models it is needed for `word` alone.
        captum: whether Captum computes it, a document at a time.

    Yields:
        The scores, with `delta = Σ_i s_i − (f_c(x) − f_c(b))` and the detail `baseline_output`,
        `f_c(b)`.

    Raises:
        ModelError: no steps, an unknown rule or baseline, a word that the vocabulary lacks.
    """
    points, weights = nodes(steps, rule)
    index = _index_of(context, baseline, word, vocabulary)
    for some in embedded(context, dataset):
        start = _baseline(context, some.batch, some.words, index)  # [t, E]
        with context.applying():
            logits = context.logits(start, some.batch)  # [b, C]
            before = context.value(logits, some.target)  # [b]
        if captum:
            parts = captum_forms.integrated_gradients(context, some, start, steps, rule)
        else:
            total = _along(context, some, start, points, weights)  # [t, E]
            scores = ((some.words - start).double() * total.double()).sum(1)  # [t]
            parts = some.split(scores)
        for place, part in enumerate(parts):
            first, last = float(before[place]), float(some.output[place])
            yield Scored(
                part,
                int(some.target[place]),
                float(part.sum()) - (last - first),
                {"output": last, "baseline_output": first},
            )


def nodes(steps: int, rule: str) -> tuple[list[float], list[float]]:
    """Give the points of a rule on [0, 1] and their weights.

    Args:
        steps: how many.
        rule: `gauss_legendre` or `riemann_right`.

    Returns:
        `steps` points and `steps` weights; the weights add to 1.

    Raises:
        ModelError: fewer than one, or another rule.

    Example:
        >>> from fastattnerase.saliency.integrated_gradients import nodes
        >>> nodes(2, "riemann_right")
        ([0.5, 1.0], [0.5, 0.5])
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ModelError(f"steps: given {steps!r}, needed a whole number from 1")
    if rule == "riemann_right":
        return [k / steps for k in range(1, steps + 1)], [1 / steps] * steps
    if rule != "gauss_legendre":
        raise ModelError(f"rule: given {rule!r}, needed gauss_legendre or riemann_right")
    points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()


def _along(
    context: MethodContext,
    some: Embedded,
    start: Tensor,
    points: list[float],
    weights: list[float],
) -> Tensor:
    """Add up the weighted derivatives at all points of the way: `[t, E]`."""
    total = torch.zeros_like(some.words)  # [t, E]
    jobs = (
        ((place, k), document)
        for place, document in enumerate(some.documents)
        for k in range(len(points))
    )
    for job in context.batches(jobs):
        copies = some.copies([place for (place, _), _ in job])
        where = total.new_tensor([points[k] for (_, k), _ in job])  # [M]
        weight = total.new_tensor([weights[k] for (_, k), _ in job])  # [M]
        with context.differentiating():
            begin = start[copies.rows]  # [t', E]
            share = where.repeat_interleave(copies.lengths)[:, None]  # [t', 1]
            words = begin + share * (some.words[copies.rows] - begin)  # [t', E]
            words.requires_grad_()
            logits = context.logits(words, copies.batch)  # [M, C]
            value = context.value(logits, some.target[copies.owner])  # [M]
            gradient = gradient_of(value.sum(), words)  # [t', E]
        gradient *= weight.repeat_interleave(copies.lengths)[:, None]
        total.index_add_(0, copies.rows, gradient)
    return total


def _index_of(
    context: MethodContext, baseline: str, word: str | None, vocabulary: Vocabulary | None
) -> int | None:
    """Find the index of the word that the baseline repeats; None for zero vectors."""
    if word is not None:
        if vocabulary is None:
            raise ModelError(f"vocabulary: given none, needed the model's, which has {word!r}")
        if word not in vocabulary:
            raise ModelError(f"word: given {word!r}, needed one that the vocabulary has")
        return vocabulary.indices([word])[0]
    if baseline == "zero":
        return None
    if baseline in ("padding", "unknown") and context.of_pieces is not None:
        return context.of_pieces.baseline(baseline)
    if baseline == "padding":
        return Vocabulary.PADDING
    if baseline != "unknown":
        raise ModelError(
            f"baseline: given {baseline!r}, needed zero, padding or unknown (a word: word=)"
        )
    if vocabulary is not None:
        return vocabulary.unknown
    if isinstance(context.given, AttentionClassifier):
        return context.given.embedding.num_embeddings - 1
    raise ModelError("vocabulary: given none, needed the model's, for the index of unknown words")


def _baseline(
    context: MethodContext, batch: DocumentBatch, words: Tensor, index: int | None
) -> Tensor:
    """Give the vectors that the way begins with: `[t, E]`."""
    if index is None:
        return torch.zeros_like(words)
    with context.applying():
        return context.embed(batch._replace(token_ids=torch.full_like(batch.token_ids, index)))


METHOD = Method(
    name="integrated_gradients",
    family="saliency",
    doc="(x_i − b_i) · ∫₀¹ ∂f_c / ∂x_i (b + t (x − b)) dt",
    source="Sundararajan et al. 2017",
    score=score,
    bytes_of_word=derivative_bytes_of_word,
    has_delta=True,
)
