"""`attribute`: the scores of a data set's items by a method, in batches under a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.models.errors import ModelError
from fastattnerase.plurals import counted
from fastattnerase.saliency.attribution import Attribution
from fastattnerase.saliency.batches import MAX_BYTES, bytes_of_word
from fastattnerase.saliency.context import MethodContext, Output, SaliencyModel, Scored, Target
from fastattnerase.saliency.registry import Method, find_method
from fastattnerase.status import Status

_PLAIN = (str, int, float, type(None))  # what JSON holds: not a vocabulary, say


def attribute(
    model: AttentionClassifier | SaliencyModel,
    dataset: Dataset,
    method: str,
    target: Target = "decision",
    output: Output = "logit",
    *,
    max_bytes: int | None = None,
    **options: Any,
) -> Attribution:
    """Score the items of texts by a saliency method.

    `s_i` says what item `i` does to `f_c(x)`, the output for class `c`; each method's formula is
    in `saliency.methods()[name].doc`. Of a model with one logit `z` (head `sigmoid`) `f_1 = z` and
    `f_0 = −z`. Items are words; of the attention layer's methods (`attention`, `gradient`,
    `product`) in a hierarchical model they are sentences. Markers, queries and masks stay as they
    are: only words are changed.

    Dropout is off; modes, gradients and the random state are left as found.

    Args:
        model: a classifier of the package, or an object with `embed(batch) -> [T, E]` and
            `logits(embeddings, batch) -> [B, C]` on packed sequences (`batch.document_lengths` has
            their lengths); modules among its attributes run in evaluation mode.
        dataset: `B` documents; of two texts the first is scored.
        method: a method's name.
        target: the class: `decision`, the model's own; `label`, the document's; one number for
            all, or one for each document, `[B]`.
        output: which number of the class is `f_c`: `logit`, `probability`, or `margin`,
            `z_c − max_{c'≠c} z_{c'}`. Methods of the attention layer are of the engine's output,
            the probability; the result says which.
        max_bytes: memory of a pass through the model, in bytes, estimated; in float32. By default
            64 MiB, or what the longest document takes where that is more.
        options: of the method: `saliency.methods()[name].options`.

    Returns:
        The scores, packed, on the CPU; of a text with something that is not finite the status says
        `NON_FINITE`.

    Raises:
        ModelError: an unknown method, option, output or target, a class that the model does not
            have, a given `max_bytes` below what one document needs, a model that the method cannot
            use.

    Source:
        Bastings and Filippova 2020, "The elephant in the interpretability room".

    Example:
        >>> import torch
        >>> from fastattnerase import saliency
        >>> from fastattnerase.data import Example, Vocabulary, encode
        >>> class Wrapped:  # any module: look up the words, then run the rest on packed vectors
        ...     def __init__(self, embedding, rnn, linear):
        ...         self.embedding, self.rnn, self.linear = embedding, rnn, linear
        ...     def embed(self, batch):
        ...         return self.embedding(batch.token_ids)
        ...     def logits(self, embeddings, batch):
        ...         texts = embeddings.split(batch.document_lengths.tolist())
        ...         last = [self.rnn(text)[0][-1] for text in texts]
        ...         return self.linear(torch.stack(last))
        >>> words = Vocabulary(["good", "film"])
        >>> model = Wrapped(torch.nn.Embedding(4, 3), torch.nn.GRU(3, 5), torch.nn.Linear(5, 2))
        >>> found = saliency.attribute(
        ...     model, encode([Example(0, "a good film", 1)], words), "gradient_norm"
        ... )
        >>> found.family, found.scores.shape
        ('sensitivity', torch.Size([3]))
    """
    chosen = find_method(method)
    given = chosen.with_options(options)
    context = context_of(model, dataset, target, output, max_bytes, chosen.bytes_of_word)
    if max_bytes is not None:
        context.require_room(dataset)
    devices = [context.device] if context.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        found = list(_scored(context, chosen, dataset, given))
    return _collect(found, chosen, context, dataset, given)


def context_of(
    model: Any,
    dataset: Dataset,
    target: Target = "decision",
    output: Output = "logit",
    max_bytes: int | None = None,
    of_word: Callable[[nn.Module], int] = bytes_of_word,
) -> MethodContext:
    """Check what `attribute` is asked for and give it to methods.

    Raises:
        ModelError: no data set, an unknown output or target, another number of classes than of
            documents.
    """
    if not isinstance(dataset, Dataset):
        raise ModelError(
            f"dataset: given {type(dataset).__name__}, needed the Dataset that data.encode gives"
        )
    if output not in get_args(Output):
        raise ModelError(f"output: given {output!r}, needed one of {', '.join(get_args(Output))}")
    if isinstance(target, str):
        if target not in ("decision", "label"):
            raise ModelError(
                f"target: given {target!r}, needed decision, label, a class, or one a document"
            )
    elif isinstance(target, bool) or not isinstance(target, int):
        if isinstance(target, Tensor) and (target.ndim != 1 or target.is_floating_point()):
            raise ModelError(
                f"target: given {target.dtype} {list(target.shape)}, needed integers "
                f"[{len(dataset)}]"
            )
        if not isinstance(target, (Tensor, Sequence, np.ndarray)) or isinstance(target, bytes):
            raise ModelError(
                f"target: given {target!r}, needed decision, label, a class, or one a document"
            )
        wrong = [] if isinstance(target, Tensor) else [c for c in target if not _is_class(c)]
        if wrong:
            raise ModelError(f"target: given {wrong[0]!r} among the classes, needed whole numbers")
        if len(target) != len(dataset):
            raise ModelError(
                f"target: given {counted(len(target), 'class')}, needed {len(dataset)}, one a "
                "document"
            )
    known = isinstance(model, AttentionClassifier)
    if isinstance(target, int) and known and not 0 <= target < model.num_classes:
        raise ModelError(f"target: given class {target}, needed 0 to {model.num_classes - 1}")
    budget = MAX_BYTES if max_bytes is None else max_bytes
    return MethodContext(model, target, output, budget, of_word)


def _is_class(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def stream(
    context: MethodContext, dataset: Dataset, method: str, **options: Any
) -> Iterator[Scored]:
    """Score documents one after another, without holding more than a batch's scores."""
    return _scored(context, find_method(method), dataset, options)


def _scored(
    context: MethodContext, method: Method, dataset: Dataset, options: dict[str, Any]
) -> Iterator[Scored]:
    """Run a method on documents, or let a model whose words are of pieces run it."""
    if context.of_pieces is not None:
        return context.of_pieces.scored(method, context, dataset, options)
    return method(context, dataset, **options)


def _collect(
    found: list[Scored],
    method: Method,
    context: MethodContext,
    dataset: Dataset,
    options: dict[str, Any],
) -> Attribution:
    """Put documents' scores one after another."""
    nothing = torch.zeros(0, dtype=torch.float64)
    scores = [one.scores.detach().cpu().double() for one in found]
    lengths = torch.tensor([len(one) for one in scores], dtype=torch.int64)  # [B]
    status = [_status_of(one) for one in scores]
    names = list(found[0].details) if found else []
    is_hierarchical = getattr(getattr(context.given, "config", None), "kind", None) == "han"
    return Attribution(
        scores=torch.cat([nothing, *scores]),
        offsets=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)),
        ids=torch.tensor([document.id for document in dataset], dtype=torch.int64),
        method=method.name,
        family=method.family,
        target=torch.tensor([one.target for one in found], dtype=torch.int64),
        output=method.output or context.output,
        items="sentences" if method.items == "attention" and is_hierarchical else "words",
        delta=_column([one.delta for one in found]) if method.has_delta else None,
        status=torch.tensor(status, dtype=torch.int64),
        chunk=context.words,
        max_bytes=context.max_bytes,
        options={k: v for k, v in options.items() if isinstance(v, _PLAIN)},
        details={name: _column([one.details[name] for one in found]) for name in names},
    )


def _column(numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _status_of(scores: Tensor) -> int:
    status = Status(0)
    if len(scores) < 2:
        status |= Status.SINGLE if len(scores) else Status.EMPTY
    if not bool(scores.isfinite().all()):
        status |= Status.NON_FINITE
    return int(status)
