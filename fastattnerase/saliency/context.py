"""What a saliency method is given: a model as a function of embeddings, an output, a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastattnerase.data.dataset import Dataset, DocumentBatch
from fastattnerase.data.documents import Document
from fastattnerase.models.base import AttentionClassifier, evaluating
from fastattnerase.models.errors import ModelError
from fastattnerase.plurals import plural
from fastattnerase.saliency.batches import (
    bytes_of_word,
    differentiable,
    in_batches,
    words_in,
    words_of,
)

if TYPE_CHECKING:
    from fastattnerase.saliency.registry import Method
else:  # imported where they are used; hints that are read at run time say Any
    Method = Any

Ints = NDArray[np.int64]
Output = Literal["logit", "probability", "margin"]
Target = Literal["decision", "label"] | int | Tensor | Sequence[int]

T = TypeVar("T")


class SaliencyModel(Protocol):
    """A model of one's own: two methods on packed sequences, see `attribute`."""

    def embed(self, batch: DocumentBatch) -> Tensor:
        """Give the vectors of a batch's words: `[T, E]`, floating point, packed."""

    def logits(self, embeddings: Tensor, batch: DocumentBatch) -> Tensor:
        """Give the logits `[B, C]` of texts whose words have these vectors `[T, E]`.

        `[B, 1]` or `[B]`: one logit `z` for two classes, `p_1 = 1 / (1 + exp(-z))`.
        """


@runtime_checkable
class OfPieces(Protocol):
    """A model whose words are of several pieces, each with a vector: a transformer.

    It says itself what methods do to words, and what erasing one of the input does.
    """

    def pieces_of(self, batch: DocumentBatch) -> Tensor:
        """Count the pieces of each text of a batch: `[B]`, int64."""

    def size_of(self, document: Document) -> int:
        """Count what a pass over a document has, in pieces."""

    def masks(self, document: Document) -> Ints | None:
        """Give `token_ids` in which every word is masked; None where erased words are left out."""

    def baseline(self, name: str) -> int:
        """Give the piece of the baseline `padding` or `unknown`."""

    def scored(
        self,
        method: Method,
        context: MethodContext,
        dataset: Dataset,
        options: Mapping[str, Any],
    ) -> Iterator[Scored]:
        """Score the words of documents by a method."""


class Scored(NamedTuple):
    """What a method says about one document.

    Attributes:
        scores: `[n]`, the most important item has the largest.
        target: the class that they are about.
        delta: what the method's sum rule is off by; NaN of methods without one.
        details: other numbers by name, the same names for all documents.
    """

    scores: Tensor
    target: int
    delta: float = torch.nan
    details: Mapping[str, float] = {}


@dataclass(eq=False)
class MethodContext:
    """A model, what is asked of it, and how much memory there is, as a method sees them.

    Attributes:
        given: the model as the caller gave it.
        output: which number of the target class is `f_c`.
        target: which class: see `attribute`.
        max_bytes: the budget of memory for one pass.
        bytes_of_word: estimates what a word of a pass takes, from the module.
        module: everything of the model that has parameters or a mode, as one module.
        device: where batches go.
        words: how many words a pass may have, by `max_bytes`.
        one_logit: whether the model has one logit for two classes: known of another model than the
            package's once `logits` has run.
        of_pieces: the model, where its words are of several pieces.
    """

    given: Any
    target: Target = "decision"
    output: Output = "logit"
    max_bytes: int = 1 << 26
    bytes_of_word: Callable[[nn.Module], int] = bytes_of_word
    module: nn.Module = field(init=False)
    device: torch.device = field(init=False)
    words: int = field(init=False)
    one_logit: bool = field(init=False, default=False)
    of_pieces: OfPieces | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.module = _module_of(self.given)
        first = next(self.module.parameters(), None)
        self.device = torch.device("cpu") if first is None else first.device
        self.words = words_in(self.module, self.max_bytes, self.bytes_of_word)
        if isinstance(self.given, OfPieces):
            self.of_pieces = self.given
        if isinstance(self.given, AttentionClassifier):
            self.one_logit = self.given.config.head == "sigmoid"

    def attention_classifier(self, method: str) -> AttentionClassifier:
        """Give the model where it is one of the package.

        Raises:
            ModelError: it is another, naming the method that needs one.
        """
        if isinstance(self.given, AttentionClassifier):
            return self.given
        raise ModelError(
            f"model: given {type(self.given).__name__}, needed a classifier of this package, whose "
            f"layers {method} looks into"
        )

    def embed(self, batch: DocumentBatch) -> Tensor:
        """Look up the vectors of a batch's words: `[T, E]`, packed.

        Raises:
            ModelError: a model of one's own gives something else.
        """
        words: Tensor = self.given.embed(batch)
        items = len(batch.token_ids)
        if self.of_pieces is not None:
            items = int(self.of_pieces.pieces_of(batch).sum())
        if not _is_floating(words) or words.ndim != 2 or len(words) != items:
            raise ModelError(
                f"model: given {_told(words)} by embed, needed floating numbers [{items}, E], a "
                "vector a word"
            )
        return words

    def logits(self, embeddings: Tensor, batch: DocumentBatch) -> Tensor:
        """Compute the logits `[B, C]` from vectors `[T, E]`; of one logit `z` they are `(0, z)`.

        Raises:
            ModelError: a model of one's own gives something else.
        """
        if isinstance(self.given, AttentionClassifier):
            return self.given.from_embeddings(embeddings, batch).logits
        logits: Tensor = self.given.logits(embeddings, batch)
        texts = len(batch.document_lengths)
        if not _is_floating(logits) or logits.ndim not in (1, 2) or len(logits) != texts:
            raise ModelError(
                f"model: given {_told(logits)} by logits, needed floating numbers [{texts}, C], a "
                "row a text"
            )
        self.one_logit = logits.ndim == 1 or logits.shape[1] == 1
        if self.one_logit:
            z = logits.reshape(-1, 1)  # [B, 1]
            logits = torch.cat([torch.zeros_like(z), z], 1)  # [B, 2]
        return logits

    def value(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give `f_c`, by `output`: `z_c`, `softmax(z)_c` or `z_c − max_{c'≠c} z_{c'}`.

        Where a model has one logit `z`, the logit of class 1 is `z` and that of class 0 is `−z`,
        which is the margin of the logits `(0, z)`: a constant would have no derivative.

        Args:
            logits: `[M, C]`.
            target: `[M]`, int64, the classes.

        Returns:
            `[M]`, float64; derivatives go through it.
        """
        wide = logits.double()  # [M, C]
        column = target[:, None]  # [M, 1]
        if self.output == "probability":
            return wide.softmax(1).gather(1, column)[:, 0]
        own = wide.gather(1, column)[:, 0]  # [M]
        if self.output == "margin" or self.one_logit:
            return own - wide.scatter(1, column, -torch.inf).amax(1)
        return own

    def targets(self, logits: Tensor, documents: Sequence[tuple[int, Document]]) -> Tensor:
        """Find the class that each document's scores are about.

        Args:
            logits: `[b, C]`, of the documents as they are.
            documents: `b` pairs of a place in the data set and the document there.

        Returns:
            `[b]`, int64, on the device of the logits.

        Raises:
            ModelError: a class that the model does not have, naming the document.
        """
        if isinstance(self.target, str) and self.target == "decision":
            return logits.detach().argmax(1)
        if isinstance(self.target, str):
            classes = [document.label for _, document in documents]
        elif isinstance(self.target, int):
            classes = [self.target] * len(documents)
        else:
            classes = [int(self.target[place]) for place, _ in documents]
        for (place, document), target in zip(documents, classes, strict=True):
            if not 0 <= target < logits.shape[1]:
                raise ModelError(
                    f"target: given class {target} for instance {place} (id {document.id}), needed "
                    f"0 to {logits.shape[1] - 1}"
                )
        return torch.tensor(classes, device=logits.device)

    def chunks(self, dataset: Dataset) -> Iterator[list[tuple[int, Document]]]:
        """Cut a data set into batches of at most `words` words: pairs of place and document."""
        return self.batches(enumerate(dataset))

    def batches(
        self, documents: Iterable[tuple[T, Document]]
    ) -> Iterator[list[tuple[T, Document]]]:
        """Cut documents, each with what belongs to it, into batches of at most `words` words."""
        return in_batches(documents, self.words, self.size_of)

    def size_of(self, document: Document) -> int:
        """Count the words of a document, those of a query included; of a transformer its pieces."""
        return words_of(document) if self.of_pieces is None else self.of_pieces.size_of(document)

    def masks(self, document: Document) -> Ints | None:
        """Give what stands in the places of erased words; None where they are left out."""
        return None if self.of_pieces is None else self.of_pieces.masks(document)

    def applying(self) -> AbstractContextManager[None]:
        """Run without dropout and gradients; leave the model's modes as they were found."""
        return evaluating(self.module)

    def differentiating(self, *, hold_attention: bool = False) -> AbstractContextManager[None]:
        """Run without dropout, with derivatives by inputs alone, also of recurrent layers on GPUs.

        Args:
            hold_attention: whether attention weights of the package's models are constants.
        """
        return differentiable(self.module, hold_attention=hold_attention)

    def require_room(self, dataset: Dataset) -> None:
        """Refuse a budget that the longest text does not fit in.

        Raises:
            ModelError: naming the document and what it needs.
        """
        unit = "word" if self.of_pieces is None else "position"
        for place, document in enumerate(dataset):
            words = self.size_of(document)
            if words > self.words:
                raise ModelError(
                    f"max_bytes: given {self.max_bytes:,}, needed at least "
                    f"{words * self.bytes_of_word(self.module):,} for instance {place} "
                    f"(id {document.id}, {words:,} {plural(words, unit)})"
                )


def _is_floating(given: Any) -> bool:
    return isinstance(given, Tensor) and given.is_floating_point()


def _told(given: Any) -> str:
    """Name what was given: type and shape of a tensor, the type of anything else."""
    if isinstance(given, Tensor):
        return f"{given.dtype} {list(given.shape)}"
    return type(given).__name__


def _module_of(model: Any) -> nn.Module:
    """Give a model as a module, or the modules among the attributes of another object."""
    if isinstance(model, nn.Module):
        if not isinstance(model, AttentionClassifier):
            _require_methods(model)
        return model
    _require_methods(model)
    return nn.ModuleList(part for part in vars(model).values() if isinstance(part, nn.Module))


def _require_methods(model: Any) -> None:
    missing = [name for name in ("embed", "logits") if not callable(getattr(model, name, None))]
    if missing:
        raise ModelError(
            f"model: given {type(model).__name__} without {' and '.join(missing)}, needed a "
            "classifier of this package or an object with embed(batch) and "
            "logits(embeddings, batch)"
        )
