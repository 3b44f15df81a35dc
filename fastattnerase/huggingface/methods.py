"""Saliency methods on a transformer: a word's score from its pieces, or of all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fastattnerase.batch import AttentionBatch
from fastattnerase.data.dataset import Dataset, collate
from fastattnerase.data.documents import Document
from fastattnerase.huggingface.words import Pieces
from fastattnerase.kept_items import others
from fastattnerase.models.errors import ModelError
from fastattnerase.models.packed import segment_softmax
from fastattnerase.saliency.attention_layer import slope_of
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.registry import Method

if TYPE_CHECKING:
    from fastattnerase.huggingface.classifier import TransformerClassifier
else:  # imported where they are used; hints that are read at run time say Any
    TransformerClassifier = Any


def score(
    model: TransformerClassifier,
    method: Method,
    context: MethodContext,
    dataset: Dataset,
    options: Mapping[str, Any],
) -> Iterator[Scored]:
    """Score the items of documents by a method.

    Methods of the attention layer and of derivatives score pieces, of which a word gets the sum
    (`TransformerConfig.pool`). Occlusion and omission take all pieces of a word away at once.

    Args:
        model: the model, `context.given`.
        method: which.
        context: the class, the output and the budget.
        dataset: documents of the model.
        options: of the method.

    Yields:
        For each document, in order.

    Raises:
        ModelError: LRP, which has no rule for the model's layers.
    """
    if method.name == "lrp":
        name, layer = next(
            (name, part)
            for name, part in model.model.named_modules()
            if isinstance(part, nn.LayerNorm) or "Attention" in type(part).__name__
        )
        raise ModelError(
            f"lrp: given {type(layer).__name__} ({name}), which has no rule, needed a model of "
            "layers with one; layer normalisation and self-attention have none"
        )
    if method.name == "omission":
        yield from method(context, dataset, **options)
    elif method.name == "occlusion":
        yield from _occlusion(model, method, context, dataset, options)
    else:
        if method.items == "attention":
            of_pieces = _layer(model, method.name, context, dataset)
        else:
            pieces = Dataset([_pieces(document, model.words) for document in dataset])
            of_pieces = method(context, pieces, **options)
        for document, found in zip(dataset, of_pieces, strict=True):
            counts = [len(model.words.pieces(index)) for index in document.token_ids.tolist()]
            yield found._replace(scores=pooled(found.scores, counts, model.config.pool))


def pooled(scores: Tensor, counts: list[int], pool: str) -> Tensor:
    """Give words scores from those of their pieces.

    Args:
        scores: `[P]`, of the pieces of a text.
        counts: how many each of its `n` words has.
        pool: `sum`, `largest` or `first`.

    Returns:
        `[n]`; 0 of a word without pieces.

    Example:
        >>> pooled(torch.tensor([1.0, -3.0, 2.0]), [1, 2, 0], "largest").tolist()
        [1.0, 2.0, 0.0]
    """
    if all(count == 1 for count in counts):
        return scores
    parts = torch.split(scores, counts)
    nothing = scores.new_zeros(())
    if pool == "sum":
        found = [part.sum() for part in parts]
    elif pool == "largest":
        found = [part.max() if len(part) else nothing for part in parts]
    else:
        found = [part[0] if len(part) else nothing for part in parts]
    return torch.stack(found) if found else scores


def _pieces(document: Document, words: Pieces) -> Document:
    """Give a document whose words are its pieces; spans would be other ones."""
    own = [piece for index in document.token_ids.tolist() for piece in words.pieces(index)]
    lengths = [len(own)] if own else []
    return replace(
        document,
        token_ids=np.array(own, dtype=np.int64),
        sentence_lengths=np.array(lengths, dtype=np.int64),
        tokens=words.tokenizer.convert_ids_to_tokens(own),
        sentences=[" ".join(document.tokens)] if own else [],
        spans=None,
    )


# --- the attention layer -------------------------------------------------------------------------


def _layer(
    model: TransformerClassifier, method: str, context: MethodContext, dataset: Dataset
) -> Iterator[Scored]:
    """Score pieces by `mean_h a_h`, `Σ_h g_h` or `Σ_h a_h g_h`, as the engine does."""
    place = 0
    for batch, logits in model.attention_outputs(
        dataset,
        batch_tokens=context.words,
        max_bytes=context.max_bytes,
        unit="pieces",
        special="kept",
    ):
        documents = [(b, dataset[b]) for b in range(place, place + len(batch))]
        place += len(batch)
        target = context.targets(logits, documents)  # [b]
        weights, gradient = _weights_and_gradient(batch, target)  # [t, H]
        if method == "attention":
            scores = weights.mean(1)  # [t]
        else:
            scores = (gradient if method == "gradient" else weights * gradient).sum(1)  # [t]
        parts = torch.split(others(batch, scores).cpu(), (batch.lengths - 1).tolist())
        yield from map(Scored, parts, target.tolist())


def _weights_and_gradient(batch: AttentionBatch, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `a_{i,h}` and `∂p_c / ∂a_{i,h}`, weights free variables: `[t, H]` each, float64."""
    assert batch.scores is not None
    values, items = batch.values, batch.instance_of_item  # [t, H, d], [t]
    heads = batch.scores.double().T  # [H, t]
    weights = torch.stack([segment_softmax(own, batch.lengths) for own in heads], 1)  # [t, H]
    with torch.enable_grad():
        shares = weights.to(values.dtype)[..., None] * values  # [t, H, d]
        average = values.new_zeros(len(batch), *values.shape[1:]).index_add(0, items, shares)
        average = average.detach().requires_grad_()  # [b, H, d]
        rows = torch.arange(len(batch), device=batch.device)
        logits = batch.call_head(average, rows).double()  # [b, C]
        [slope] = torch.autograd.grad(logits, average, slope_of(logits.detach(), target))
    gradient = (values.double() * slope.double()[items]).sum(-1)  # [t, H]
    return weights, gradient


# --- occlusion -----------------------------------------------------------------------------------


def _occlusion(
    model: TransformerClassifier,
    method: Method,
    context: MethodContext,
    dataset: Dataset,
    options: Mapping[str, Any],
) -> Iterator[Scored]:
    """Compute `f_c(x) − f_c(x | all pieces of word i have the vector 0)`."""
    single = [all(i < len(model.words.tokenizer) for i in d.token_ids.tolist()) for d in dataset]
    if all(single):  # words are pieces
        yield from method(context, dataset, **options)
        return
    if options.get("captum"):
        row = single.index(False)
        raise ModelError(
            f"captum: given words of several pieces, such as in instance {row}, needed a model of "
            "unit pieces: Captum's occlusion takes one vector away"
        )
    for place, document in enumerate(dataset):
        with context.applying():
            batch = collate([document]).to(context.device)
            logits = context.logits(context.embed(batch), batch)  # [1, C]
            target = context.targets(logits, [(place, document)])  # [1]
            whole = context.value(logits, target)  # [1]
        found = [whole[:0]]
        for job in context.batches((word, document) for word in range(len(document))):
            copies = collate([document] * len(job)).to(context.device)
            with context.applying():
                vectors = context.embed(copies)  # [P, E]
                _, counts = model.words.expanded(copies.token_ids)  # [m n]
                n = len(document)
                zeroed = torch.tensor([i * n + word for i, (word, _) in enumerate(job)])  # [m]
                gone = torch.zeros(len(counts), dtype=torch.bool, device=context.device)
                gone[zeroed.to(context.device)] = True
                vectors = vectors.masked_fill(gone.repeat_interleave(counts)[:, None], 0.0)
                without = context.logits(vectors, copies)  # [m, C]
                found.append(context.value(without, target.expand(len(without))))
        scores = (whole - torch.cat(found)).cpu()  # [n]
        yield Scored(scores, int(target), details={"output": float(whole)})
