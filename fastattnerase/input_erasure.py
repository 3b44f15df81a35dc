"""Erasing words of the input: the text is shorter, and encoded and attended to anew.

`fae.erase_prefixes` erases at the attention layer instead, where nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fastattnerase.choices import Direction
from fastattnerase.data.dataset import Dataset, DocumentBatch, collate
from fastattnerase.data.documents import Document
from fastattnerase.measures.base import Bools, Ints, orders_of, read_scores
from fastattnerase.measures.thresholds import Preset, Thresholds, thresholds
from fastattnerase.models.base import AttentionClassifier, evaluating
from fastattnerase.models.errors import ModelError
from fastattnerase.saliency.batches import MAX_BYTES, words_in

_VECTORS = 14 * 4  # bytes of a number that a word's embedding has, of a model that is not ours


class EmbeddedModel(Protocol):
    """A classifier of packed documents in two steps."""

    def embed(self, batch: DocumentBatch) -> Tensor:
        """Look up the words' embeddings, `[T, E]`."""

    def logits(self, embeddings: Tensor, batch: DocumentBatch) -> Tensor:
        """Classify documents whose words have these embeddings, `[B, C]`."""


@dataclass(frozen=True, eq=False, repr=False)
class InputErasure:
    """What erasing words of the input and encoding the rest again does.

    Axes: `B` documents, `R` rankings, `T` words in all, `C` classes. The curves have `n_b + 1`
    points a document of `n_b` words, for `k = 0 … n_b` words erased (kept, with direction "keep"),
    at `curve_offsets[b]` to `curve_offsets[b + 1]`, as those of `PrefixErasure`; the measures of
    `fastattnerase.measures` take both.

    Attributes:
        rankings: names of the R rows.
        direction: "erase" or "keep".
        label: [B], int64: the class whose probability the curves are of.
        decision: [B], int64: the decision on the whole text.
        probabilities: [B, C], float64: of the whole text.
        curves: "label_prob" [R, T + B], float64, NaN where it was not computed; "decision"
            [R, T + B], int64, -1 there; "probabilities" [R, T + B, C], float64, NaN there.
        offsets: [B + 1], int64: where each document's words begin.
        every: whether every prefix was computed.
        positive: [R, B], int64: how many words of each document have a score above 0; -1 for a
            ranking that was given as an order.
        chunk: words of a batch, at most, that `max_bytes` allowed.
    """

    rankings: tuple[str, ...]
    direction: Direction
    label: Tensor
    decision: Tensor
    probabilities: Tensor
    curves: dict[str, Tensor]
    offsets: Tensor
    every: bool
    positive: Tensor
    chunk: int

    @property
    def curve_offsets(self) -> Tensor:
        """[B + 1], int64: where each document's `n_b + 1` curve points begin."""
        return self.offsets + torch.arange(len(self.offsets))

    @property
    def first_flip(self) -> Tensor:
        """[R, B], int64: the smallest prefix `k >= 1` that changes the decision, -1 for never.

        With direction "keep" the smallest whose words alone give the decision on the whole text.

        Raises:
            ValueError: not every prefix was computed.
        """
        if not self.every:
            raise ValueError("first_flip: given some prefixes alone, needed at='every'")
        found = torch.full((len(self.rankings), len(self.label)), -1)
        bounds = self.curve_offsets.tolist()
        for b in range(len(self.label)):
            after = self.curves["decision"][:, bounds[b] + 1 : bounds[b + 1]]  # [R, n]
            hits = (after == self.decision[b]) == (self.direction == "keep")
            if after.shape[1]:
                first = hits.int().argmax(1) + 1
                found[:, b] = torch.where(hits.any(1), first, -1)
        return found

    def __repr__(self) -> str:
        """Counts."""
        points = "every prefix" if self.every else "some prefixes"
        return (
            f"InputErasure({len(self.rankings)} rankings, {len(self.label)} documents, "
            f"{self.direction}, {points})"
        )


def erase_inputs(
    model: AttentionClassifier | EmbeddedModel,
    dataset: Dataset,
    rankings: Mapping[str, Any],
    *,
    at: Preset | Thresholds | Sequence[Preset | Thresholds] = "every",
    direction: Direction = "erase",
    target: str | int | Sequence[int] | Tensor = "decision",
    max_bytes: int = MAX_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> InputErasure:
    """Erase the first words of rankings from texts, or keep only them, and classify what is left.

    `p_y(x without the first k words)`, or `p_y(only the first k words)`: words that stay close up,
    in the order of the text, and are encoded and attended to anew. A query and the markers around a
    text stay. Of a text without words the model says what it says of any other: that is the last
    point of "erase" and the first of "keep". What several rankings leave of a text alike is
    classified once.

    Dropout is off; the model's modes and the random state are left as found.

    Args:
        model: a classifier of the package, of any kind, or an object with `embed(batch)` and
            `logits(embeddings, batch)`.
        dataset: `B` documents, `T` words in all.
        rankings: from names to scores [T] of a float type, the most important word the largest,
            ties by position; or to orders [T], int64, of places within each document.
        at: which prefixes: "every", the thresholds of "eraser" or "ferret", `Thresholds` of one's
            own, or several of these together; none and all of the words always.
        direction: "erase" the first words, or "keep" only them.
        target: whose probability: that of the "decision" on the whole text, of a class, or of each
            document's own class, [B].
        max_bytes: of a batch and what the model computes of it, estimated.
        progress: told after each document how many are done, and of how many.

    Returns:
        An `InputErasure`.

    Raises:
        ValueError: scores of another number than the words, or NaN, naming the document; an order
            that is none; a direction, a preset or a class that does not exist.
        ModelError: `max_bytes` is less than one of the documents takes.

    Source:
        Li et al. 2016, Understanding neural networks through representation erasure; DeYoung et al.
        2020, ERASER, section 4.2.

    Example:
        >>> from fastattnerase.data import Example, Vocabulary, encode
        >>> from fastattnerase.input_erasure import erase_inputs
        >>> from fastattnerase.models import ModelConfig, build_model
        >>> words = Vocabulary(["good", "film"])
        >>> model = build_model(ModelConfig(encoder="mlp"), words, 2)
        >>> texts = encode([Example(0, "good film", 1)], words)
        >>> found = erase_inputs(model, texts, {"first": torch.tensor([1.0, 0.0])})
        >>> found.curves["label_prob"].shape
        torch.Size([1, 3])
    """
    if direction not in ("erase", "keep"):
        raise ValueError(f"direction: given {direction!r}, needed erase or keep")
    lengths = dataset.sizes.words  # [B]
    bounds = np.concatenate([[0], np.cumsum(lengths)])  # [B + 1]
    places, positive = _places(rankings, bounds)  # [R, T], [R, B]
    wanted = [thresholds(one) for one in ([at] if isinstance(at, (str, Thresholds)) else at)]
    every = any(one.fractions is None and not one.only_positive for one in wanted)
    counts = _counts(wanted, lengths, positive)
    words = _words(model, dataset, max_bytes)
    if len(lengths) and lengths.max(initial=0) > words:
        longest = dataset[int(lengths.argmax())]
        needed = -(-max_bytes * len(longest) // words)
        raise ModelError(
            f"max_bytes: given {max_bytes}, needed about {needed} for document {longest.id} of "
            f"{len(longest)} words"
        )
    curve_bounds = bounds + np.arange(len(bounds))
    label_prob = np.full((len(places), int(curve_bounds[-1])), np.nan)
    decision = np.full(label_prob.shape, -1, dtype=np.int64)
    every_class = np.full((*label_prob.shape, 0), np.nan)
    probabilities, decided, labels = [], [], []
    plans = _plans(dataset, places, bounds, counts, keep=direction == "keep")
    for b, (slots, p) in enumerate(_classified(model, plans, words)):
        whole = p[0]  # [C]
        own = int(whole.argmax())
        if not b:
            every_class = np.full((*label_prob.shape, len(whole)), np.nan)
        label = _class_of(target, b, own, len(whole), len(lengths))
        probabilities.append(whole)
        decided.append(own)
        labels.append(label)
        for row, at_row in enumerate(slots):
            k = curve_bounds[b] + np.array([k for k, _ in at_row])
            found = p[[slot for _, slot in at_row]]  # [K, C]
            label_prob[row, k] = found[:, label]
            decision[row, k] = found.argmax(1)
            every_class[row, k] = found
        if progress is not None:
            progress(b + 1, len(lengths))
    return InputErasure(
        tuple(rankings),
        direction,
        torch.tensor(labels, dtype=torch.int64),
        torch.tensor(decided, dtype=torch.int64),
        torch.from_numpy(np.array(probabilities, dtype=np.float64)),
        {
            "label_prob": torch.from_numpy(label_prob),
            "decision": torch.from_numpy(decision),
            "probabilities": torch.from_numpy(every_class),
        },
        torch.from_numpy(bounds),
        every,
        torch.from_numpy(positive),
        words,
    )


# Of one document: for each ranking, which prefix is which of the variants that are classified.
Slots = list[list[tuple[int, int]]]


def _places(rankings: Mapping[str, Any], bounds: Ints) -> tuple[Ints, Ints]:
    """Read rankings: each word's place in its document's order, [R, T], and positive words [R, B].

    A word at place `p` is among the first `k` where `p < k`.
    """
    if not rankings:
        raise ValueError("rankings: given none, needed at least one")
    size, n = int(bounds[-1]), np.diff(bounds)
    starts = np.repeat(bounds[:-1], n)  # [T]
    within = np.arange(size) - starts  # [T]
    places = np.empty((len(rankings), size), dtype=np.int64)
    positive = np.full((len(rankings), len(n)), -1, dtype=np.int64)
    for row, (name, given) in enumerate(rankings.items()):
        array = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
        if array.dtype == np.int64:
            if array.shape != (size,):
                raise ValueError(f"{name}: given {list(array.shape)}, needed [{size}]")
            order = array
            inside = (order >= 0) & (order < np.repeat(n, n))
            seen = np.bincount((starts + order)[inside], minlength=size)
            if not inside.all() or (seen != 1).any():
                raise ValueError(f"{name}: given no order, needed each place of a document once")
        else:
            scores, _ = read_scores(name, array, bounds)
            if scores.ndim != 1:
                raise ValueError(f"{name}: given {list(scores.shape)}, needed [{size}]")
            order = orders_of(scores, bounds)
            above = np.concatenate([[0], np.cumsum(scores > 0)])
            positive[row] = np.diff(above[bounds])
        places[row, starts + order] = within
    return places, positive


def _counts(wanted: Sequence[Thresholds], lengths: Ints, positive: Ints) -> list[list[list[int]]]:
    """List the prefixes of each ranking and document, in order: 0 and n and those between."""
    found = []
    for row in positive:
        if any(one.only_positive for one in wanted) and (row < 0).any():
            raise ValueError("rankings: given an order, needed scores, of which some are positive")
        of: list[set[int]] = [{0, int(n)} for n in lengths]
        for one in wanted:
            for b, k in np.stack(one.counts(lengths, row), axis=1).tolist():
                of[b].add(k)
        found.append([sorted(own) for own in of])
    return found


def _plans(
    dataset: Dataset, places: Ints, bounds: Ints, counts: list[list[list[int]]], *, keep: bool
) -> Iterator[tuple[Document, Slots, list[bytes]]]:
    """Give for each document which variants there are, each as the bits of the words that stay.

    The first of them is the whole text.
    """
    for b, document in enumerate(dataset):
        variants = {np.packbits(np.ones(len(document), dtype=bool)).tobytes(): 0}
        slots: Slots = []
        for row, place in enumerate(places[:, bounds[b] : bounds[b + 1]]):  # [n]
            at_row = []
            for k in counts[row][b]:
                bits = np.packbits((place < k) == keep).tobytes()
                at_row.append((k, variants.setdefault(bits, len(variants))))
            slots.append(at_row)
        yield document, slots, list(variants)


def _classified(
    model: AttentionClassifier | EmbeddedModel,
    plans: Iterator[tuple[Document, Slots, list[bytes]]],
    words: int,
) -> Iterator[tuple[Slots, np.ndarray[Any, np.dtype[np.float64]]]]:
    """Classify the variants of documents, in batches of at most so many words.

    Yields:
        For each document its slots and `[M, C]`, float64, the variants' probabilities.
    """
    waiting: list[tuple[Slots, int]] = []
    found: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    batch: list[Document] = []
    size = 0

    def classify() -> None:
        nonlocal size
        found.extend(_probabilities(model, batch))
        batch.clear()
        size = 0

    for document, slots, variants in plans:
        waiting.append((slots, len(variants)))
        starts = list(accumulate(document.sentence_lengths.tolist(), initial=0))[:-1]
        query = 0 if document.query_ids is None else len(document.query_ids)
        for bits in variants:
            kept = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(document)).astype(bool)
            own = max(1, int(kept.sum()) + query)
            if batch and size + own > words:
                classify()
            batch.append(_left_of(document, kept, starts))
            size += own
        while waiting and len(found) >= waiting[0][1]:
            own_slots, number = waiting.pop(0)
            yield own_slots, np.stack(found[:number])
            del found[:number]
    if batch:
        classify()
    for own_slots, number in waiting:
        yield own_slots, np.stack(found[:number])
        del found[:number]


def _left_of(document: Document, kept: Bools, starts: list[int]) -> Document:
    """Give what a model reads of a document of which only some words are left, `[n]`."""
    sentences = (
        np.add.reduceat(kept, starts, dtype=np.int64) if starts else document.sentence_lengths
    )
    return Document(
        document.id,
        document.label,
        document.token_ids[kept],
        sentences[sentences > 0],  # no sentence is empty
        [],
        [],
        document.query_ids,
        document.query_tokens,
        document.answers,
    )


@torch.no_grad()
def _probabilities(
    model: AttentionClassifier | EmbeddedModel, documents: list[Document]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Classify documents without dropout: `[M, C]`, float64."""
    batch = collate(documents)
    module = isinstance(model, nn.Module)
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if parameter is not None:
        batch = batch.to(parameter.device)
    with evaluating(model) if module else nullcontext():  # type: ignore[arg-type]
        if isinstance(model, AttentionClassifier):
            logits = model(batch).logits
        else:
            logits = model.logits(model.embed(batch), batch)
    found: np.ndarray[Any, np.dtype[np.float64]] = logits.double().softmax(1).cpu().numpy()
    return found


def _words(model: AttentionClassifier | EmbeddedModel, dataset: Dataset, max_bytes: int) -> int:
    """Estimate how many words a batch may have, at least 1."""
    if isinstance(model, AttentionClassifier):
        return words_in(model, max_bytes)
    if max_bytes < 1:
        raise ModelError(f"max_bytes: given {max_bytes}, needed at least 1")
    width = 1
    if len(dataset):
        batch = collate([dataset[0]])
        parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        with torch.no_grad():
            on = batch if parameter is None else batch.to(parameter.device)
            width = max(1, model.embed(on).shape[-1])
    return max(1, max_bytes // (_VECTORS * width))


def _class_of(target: Any, b: int, decision: int, classes: int, documents: int) -> int:
    """Give the class whose probability is read of a document."""
    if isinstance(target, str):
        if target != "decision":
            raise ValueError(f"target: given {target!r}, needed decision, a class, or one each")
        return decision
    if not isinstance(target, int) and len(target) != documents:
        raise ValueError(f"target: given {len(target)} classes, needed {documents}, one each")
    found = target if isinstance(target, int) else int(target[b])
    if not 0 <= found < classes:
        raise ValueError(f"target: given {found} for document {b}, needed 0 to {classes - 1}")
    return found
