"""Erasing words of the input: the text is shorter, and encoded and attended to anew.

`fae.erase_prefixes` erases at the attention layer instead, where nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastattnerase.choices import Direction
from fastattnerase.data.dataset import Dataset, collate
from fastattnerase.data.documents import Document
from fastattnerase.measures.base import Bools, Floats, Ints, orders_of, read_scores
from fastattnerase.measures.thresholds import Preset, Thresholds, thresholds
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.plurals import counted
from fastattnerase.saliency.context import MethodContext, SaliencyModel, Target
from fastattnerase.saliency.scoring import context_of


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
            f"InputErasure({counted(len(self.rankings), 'ranking')}, "
            f"{counted(len(self.label), 'document')}, {self.direction}, {points})"
        )


def erase_inputs(
    model: AttentionClassifier | SaliencyModel,
    dataset: Dataset,
    rankings: Mapping[str, Any],
    *,
    at: Preset | Thresholds | Sequence[Preset | Thresholds] = "every",
    direction: Direction = "erase",
    target: Target = "decision",
    max_bytes: int | None = None,
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
            ties by position, such as those of an `Attribution`; or to orders [T], int64, of places
            within each document.
        at: which prefixes: "every", the thresholds of "eraser" or "ferret", `Thresholds` of one's
            own, or several of these together; none and all of the words always.
        direction: "erase" the first words, or "keep" only them.
        target: whose probability: that of the "decision" on the whole text, of the document's
            "label", of a class, or of a class for each document, [B].
        max_bytes: of a batch and what the model computes of it, estimated; by default 64 MiB, or
            what the longest document takes where that is more.
        progress: told after each document how many are done, and of how many.

    Returns:
        An `InputErasure`.

    Raises:
        ValueError: scores of another number than the words, or NaN, naming the document; an order
            that is none; a direction or a preset that does not exist.
        ModelError: a given `max_bytes` is less than one of the documents takes; a class that the
            model does not have, naming the document.

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
    if any(one.only_positive for one in wanted) and (positive < 0).any():
        raise ValueError("rankings: given an order, needed scores, of which some are positive")
    context = context_of(model, dataset, target, max_bytes=max_bytes)
    if max_bytes is not None:
        context.require_room(dataset)
    curve_bounds = bounds + np.arange(len(bounds))
    label_prob = np.full((len(places), int(curve_bounds[-1])), np.nan)
    decision = np.full(label_prob.shape, -1, dtype=np.int64)
    every_class = np.full((*label_prob.shape, 0), np.nan)
    probabilities, decided, labels = [], [], []
    plans = _plans(dataset, places, bounds, wanted, positive, keep=direction == "keep")
    for b, (document, slots, p) in enumerate(_classified(context, plans)):
        whole = p[0]  # [C]
        own = int(whole.argmax())
        if not b:
            every_class = np.full((*label_prob.shape, len(whole)), np.nan)
        label = int(context.targets(torch.from_numpy(whole)[None], [(b, document)]))
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
        context.words,
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


def _counts(wanted: Sequence[Thresholds], n: int, positive: int) -> Sequence[int]:
    """List the prefixes of a ranking of a document, in order: 0 and n and those between."""
    if any(one.fractions is None and not one.only_positive for one in wanted):
        return range(n + 1)
    found = {0, n}
    for one in wanted:
        found.update(one.counts([n], [positive])[1].tolist())
    return sorted(found)


def _plans(
    dataset: Dataset,
    places: Ints,
    bounds: Ints,
    wanted: Sequence[Thresholds],
    positive: Ints,
    *,
    keep: bool,
) -> Iterator[tuple[Document, Slots, list[bytes]]]:
    """Give for each document which variants there are, each as the bits of the words that stay.

    The first of them is the whole text.
    """
    for b, document in enumerate(dataset):
        variants = {np.packbits(np.ones(len(document), dtype=bool)).tobytes(): 0}
        slots: Slots = []
        for row, place in enumerate(places[:, bounds[b] : bounds[b + 1]]):  # [n]
            at_row = []
            for k in _counts(wanted, len(place), int(positive[row, b])):
                bits = np.packbits((place < k) == keep).tobytes()
                at_row.append((k, variants.setdefault(bits, len(variants))))
            slots.append(at_row)
        yield document, slots, list(variants)


def _classified(
    context: MethodContext, plans: Iterator[tuple[Document, Slots, list[bytes]]]
) -> Iterator[tuple[Document, Slots, Floats]]:
    """Classify the variants of documents, in batches under the budget.

    Yields:
        For each document its slots and `[M, C]`, float64, the variants' probabilities.
    """
    waiting: list[tuple[Document, Slots, int]] = []
    found: list[Floats] = []
    batch: list[Document] = []
    size = 0

    def classify() -> None:
        nonlocal size
        found.extend(_probabilities(context, batch))
        batch.clear()
        size = 0

    for document, slots, variants in plans:
        waiting.append((document, slots, len(variants)))
        starts = list(accumulate(document.sentence_lengths.tolist(), initial=0))[:-1]
        masks = context.masks(document)
        for bits in variants:
            kept = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(document)).astype(bool)
            left = _left_of(document, kept, starts, masks)
            own = max(1, context.size_of(left))
            if batch and size + own > context.words:
                classify()
            batch.append(left)
            size += own
        while waiting and len(found) >= waiting[0][2]:
            whose, which, number = waiting.pop(0)
            yield whose, which, np.stack(found[:number])
            del found[:number]
    if batch:
        classify()
    for whose, which, number in waiting:
        yield whose, which, np.stack(found[:number])
        del found[:number]


def _left_of(document: Document, kept: Bools, starts: list[int], masks: Ints | None) -> Document:
    """Give what a model reads of a document of which only some words are left, `[n]`.

    With `masks`, `[n]`, these stand in the places of the others.
    """
    if masks is not None:
        ids = np.where(kept, document.token_ids, masks)
        return replace(document, token_ids=ids, tokens=[], sentences=[], spans=None)
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


def _probabilities(context: MethodContext, documents: list[Document]) -> Floats:
    """Classify documents without dropout: `[M, C]`, float64."""
    batch = collate(documents).to(context.device)
    with context.applying():
        logits = context.logits(context.embed(batch), batch)
    return np.asarray(logits.double().softmax(1).cpu().numpy())
