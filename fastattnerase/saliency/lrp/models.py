"""Relevance through whole models: encoder, attention and head of every kind, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.models.base import AttentionClassifier, AttentionLayer
from fastattnerase.models.errors import ModelError
from fastattnerase.models.flan import FLAN
from fastattnerase.models.han import HAN
from fastattnerase.models.packed import gather, offsets_of, segment_pool
from fastattnerase.models.pair import PairClassifier
from fastattnerase.models.sequence import SequenceClassifier, between_markers
from fastattnerase.saliency.lrp.encoders import Back, Sinks, encode
from fastattnerase.saliency.lrp.heads import through_head
from fastattnerase.saliency.lrp.rules import Rule, average


class Encoded(NamedTuple):
    """A batch as far as the head, and the way back.

    Attributes:
        vectors: `[B, D]`, float64, averages of the last attention layer.
        query: `[B, D]`, float64, the queries' vectors; None of models without.
        back: from the relevance of `vectors` to that of the words `[T, E]`, and the sinks.
    """

    vectors: Tensor
    query: Tensor | None
    back: Back


class Explained(NamedTuple):
    """What becomes of an output's relevance.

    Attributes:
        output: `[B]`, float64, `f_c`.
        words: `[T]`, float64, relevance of the words, summed over their dimensions.
        sinks: `[B]` by name, float64, of the markers, initial states and the query.
    """

    output: Tensor
    words: Tensor
    sinks: Sinks


def explain(
    model: AttentionClassifier,
    words: Tensor,
    batch: DocumentBatch,
    target: Tensor,
    rule: Rule,
    *,
    margin: bool = False,
) -> Explained:
    """Run a model in float64 and pass the relevance of its output down to the words.

    Args:
        model: in evaluation mode.
        words: `[T, E]`, the vectors of the words.
        batch: the documents.
        target: `[B]`, int64, the class `c` of each.
        rule: `ε` and `δ`.
        margin: whether the output is `z_c − max_{c'≠c} z_{c'}`, one linear unit with the
            difference of two weights, instead of `z_c`. Of a sigmoid head both are `±z`.

    Returns:
        The output and what it is made of.

    Raises:
        ModelError: a layer has no rule.
    """
    kind = _KINDS.get(type(model))
    if kind is None:
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise ModelError(
            f"model: given a {type(model).__name__}, whose layers LRP does not know, needed one of "
            f"{known}"
        )
    encoded = kind(model, words.double(), batch, rule)
    output, relevance, sinks = through_head(
        model, encoded.vectors, encoded.query, batch, target, rule, margin=margin
    )
    found, others = encoded.back(relevance)  # [T, E]
    return Explained(output, found.sum(1), sinks | others)


def _flat(model: FLAN, words: Tensor, batch: DocumentBatch, rule: Rule) -> Encoded:
    return _attention("words", model.words, words, batch.document_lengths, batch.ids, rule)


def _marked(model: SequenceClassifier, words: Tensor, batch: DocumentBatch, rule: Rule) -> Encoded:
    lengths = batch.document_lengths
    return _attention("words", model.words, words, lengths, batch.ids, rule, model.markers)


def _two_texts(model: PairClassifier, words: Tensor, batch: DocumentBatch, rule: Rule) -> Encoded:
    lengths, query_lengths = batch.document_lengths, batch.query_lengths
    if batch.query_ids is None or query_lengths is None:
        raise ModelError(
            f"documents: given document {int(batch.ids[0])} without a query, needed one with it"
        )
    asked = model.query_embedding(batch.query_ids).double()  # [Q, E]
    rows, _ = between_markers(asked, model.query_markers.double(), query_lengths)  # [Q + 2B, E]
    states, _ = encode("query_encoder", model.query_encoder, rows, query_lengths + 2, rule)
    query = model.query_encoder.summarise(states, query_lengths)  # [B, D]
    return _attention("words", model.words, words, lengths, batch.ids, rule, model.markers, query)


def _hierarchical(model: HAN, words: Tensor, batch: DocumentBatch, rule: Rule) -> Encoded:
    counts = batch.sentence_counts  # [B]
    keys = model.sentence_keys(batch)  # [S]
    below = _attention("words", model.words, words, batch.sentence_lengths, keys, rule)
    above = _attention("sentences", model.sentences, below.vectors, counts, batch.ids, rule)
    document = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)  # [S]

    def back(relevance: Tensor) -> tuple[Tensor, Sinks]:
        to_sentences, sinks = above.back(relevance)  # [S, D]
        to_words, others = below.back(to_sentences)  # [T, E]
        for name, total in others.items():  # [S]
            sinks[name] = total.new_zeros(len(counts)).index_add(0, document, total)
        return to_words, sinks

    return Encoded(above.vectors, None, back)


# Of kinds of these very classes: a subclass may compute something else.
_KINDS: dict[type[AttentionClassifier], Callable[[Any, Tensor, DocumentBatch, Rule], Encoded]] = {
    FLAN: _flat,
    HAN: _hierarchical,
    SequenceClassifier: _marked,
    PairClassifier: _two_texts,
}


def _attention(
    name: str,
    layer: nn.Module,
    items: Tensor,
    lengths: Tensor,
    keys: Tensor,
    rule: Rule,
    markers: Tensor | None = None,
    query: Tensor | None = None,
) -> Encoded:
    """Run an attention layer over items `[T, I]`, between markers if given.

    All relevance of the average goes to the items' states, none to the weights and by them to
    scores and the query.
    """
    if type(layer) is not AttentionLayer:
        raise ModelError(
            f"layer: given {name}, a {type(layer).__name__}, for which LRP has no rule, needed an "
            "AttentionLayer"
        )
    if markers is None:
        values, through = encode(f"{name}.encoder", layer.encoder, items, lengths, rule)  # [T, D]
    else:
        rows, place = between_markers(items, markers.double(), lengths)  # [T + 2B, I], [T]
        states, of_rows = encode(f"{name}.encoder", layer.encoder, rows, lengths + 2, rule)
        values = gather(states, place)  # [T, D]
        through = _between(of_rows, place, lengths)
    given = [values]
    if query is not None:
        sequence = torch.arange(len(lengths), device=lengths.device)  # [B]
        given += [query, sequence.repeat_interleave(lengths)]
    scores = _in_double(layer.attention, *given)  # [T]
    weights = _in_double(layer.mechanism, scores, lengths, keys)  # [T]

    def back(relevance: Tensor) -> tuple[Tensor, Sinks]:
        to_values = average(relevance, values, weights, lengths, rule)  # [T, D]
        to_items, sinks = through(to_values)
        return to_items, {f"{name}_{sink}": total for sink, total in sinks.items()}

    return Encoded(segment_pool(values, weights, lengths), query, back)


def _between(back: Back, place: Tensor, lengths: Tensor) -> Back:
    """Give the way back from words' states to words that stood between markers, its sinks."""
    first = offsets_of(lengths + 2)  # [B + 1], where each text's start marker is

    def through(relevance: Tensor) -> tuple[Tensor, Sinks]:
        rows = relevance.new_zeros(int(first[-1]), relevance.shape[1])  # [T + 2B, D]
        rows[place] = relevance
        found, sinks = back(rows)  # [T + 2B, I]
        sinks["start_marker"] = found[first[:-1]].sum(1)  # [B]
        sinks["end_marker"] = found[first[1:] - 1].sum(1)
        return found[place], sinks

    return through


def _in_double(module: nn.Module, *given: Tensor) -> Tensor:
    """Run a module with its parameters in float64, whatever they are in."""
    wide = {name: parameter.double() for name, parameter in module.named_parameters()}
    found: Tensor = functional_call(module, wide, given)
    return found
