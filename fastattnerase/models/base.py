"""What every attention classifier shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fastattnerase.batch import AttentionBatch
from fastattnerase.data.dataset import Dataset, DocumentBatch, batches_in_order
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.models.attentions import ATTENTIONS, QUERY_ATTENTIONS
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.encoders import ENCODERS
from fastattnerase.models.errors import ModelError
from fastattnerase.models.mechanisms import MECHANISMS
from fastattnerase.models.packed import segment_pool
from fastattnerase.models.registry import Registry
from fastattnerase.plurals import counted


class ModelOutput(NamedTuple):
    """What a model computes for a batch.

    Attributes:
        logits: `[B, C]`, float32.
        values: `[T, D]`, float32, what the last attention layer averages, packed.
        scores: `[T]`, float32, its scores, before the softmax or what stands in its place.
        lengths: `[B]`, int64, items of each document: sentences (han) or words (others).
        weights: `[T]`, float32, its weights.
        query: `[B, D]`, float32, the query's vector; None of models without one.
    """

    logits: Tensor
    values: Tensor
    scores: Tensor
    lengths: Tensor
    weights: Tensor
    query: Tensor | None = None


class Attended(NamedTuple):
    """What an attention layer gives: averages `[B, D]`, values, scores, weights and lengths.

    And the query that it attended with, `[B, D]`.
    """

    vectors: Tensor
    values: Tensor
    scores: Tensor
    weights: Tensor
    lengths: Tensor
    query: Tensor | None = None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run without dropout and without gradients; leave every module's mode as it was found."""
    with without_dropout(model), torch.no_grad():
        yield


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Run in evaluation mode; leave every module's mode as it was found."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class AttentionLayer(nn.Module):
    """An encoder, attention over what it gives, and the weighted sum: `c = Σ a_i h_i`.

    Args:
        input_size: width of the items.
        config: the parts.
        with_query: whether attention reads a query.
    """

    def __init__(self, input_size: int, config: ModelConfig, *, with_query: bool = False) -> None:
        super().__init__()
        self.encoder = ENCODERS[config.encoder](input_size, config)
        self.output_size = self.encoder.output_size
        self.with_query = with_query
        self.attention = self.new_attention(config)
        self.mechanism = MECHANISMS[config.mechanism](config)

    def new_attention(self, config: ModelConfig) -> nn.Module:
        """Make the layer's attention, with random parameters."""
        parts = QUERY_ATTENTIONS if self.with_query else ATTENTIONS
        return parts[config.attention](self.output_size, config)

    def forward(self, inputs: Tensor, lengths: Tensor, keys: Tensor) -> Attended:
        """Encode and attend.

        Args:
            inputs: `[T, I]`, float32, packed.
            lengths: `[B]`, int64, sum `T`.
            keys: `[B]`, int64, a number for each sequence, whatever batch it is in.
        """
        return self.attend(self.encoder(inputs, lengths), lengths, keys)

    def attend(
        self, values: Tensor, lengths: Tensor, keys: Tensor, query: Tensor | None = None
    ) -> Attended:
        """Attend to encoded items `[T, D]`, with the query of each sequence `[B, D]` if any."""
        if query is None:
            scores = self.attention(values)  # [T]
        else:
            instance = torch.arange(len(lengths), device=lengths.device)  # [B]
            scores = self.attention(values, query, instance.repeat_interleave(lengths))  # [T]
        weights = self.mechanism(scores, lengths, keys)  # [T]
        vectors = segment_pool(values, weights, lengths)  # [B, D]
        return Attended(vectors, values, scores, weights, lengths, query)


class AttentionClassifier(nn.Module, ABC):
    """The base of all classifiers: word embeddings, attention layers, a linear classifier.

    Args:
        config: parts and sizes.
        vocabulary_size: indices of the vocabulary, padding and unknown included.
        num_classes: classes.
        embeddings: `[V, E]`, float32, where the word embeddings start; default: normal random
            numbers of standard deviation `1 / sqrt(E)`, so that a vector's expected squared length
            is 1. Embeddings are trained.

    Raises:
        ModelError: sizes that do not fit, unknown parts.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_size: int,
        num_classes: int,
        embeddings: Tensor | None = None,
    ) -> None:
        super().__init__()
        if num_classes < 2:
            raise ModelError(f"num_classes: given {num_classes}, needed at least 2")
        shape = (vocabulary_size, config.embedding_size)
        if embeddings is not None and embeddings.shape != shape:
            raise ModelError(
                f"embeddings: given shape {list(embeddings.shape)}, needed {list(shape)}"
            )
        self.config = config
        self.num_classes = num_classes
        self.embedding = nn.Embedding(
            *shape, padding_idx=Vocabulary.PADDING, max_norm=config.embedding_max_norm
        )
        with torch.no_grad():
            if embeddings is None:
                self.embedding.weight.normal_(0.0, config.embedding_size**-0.5)
                self.embedding.weight[Vocabulary.PADDING] = 0.0
            else:
                self.embedding.weight.copy_(embeddings)
        self.embedding_dropout = nn.Dropout(config.dropout_embedding)
        self.output_dropout = nn.Dropout(config.dropout_output)
        if config.head == "sigmoid" and num_classes != 2:
            raise ModelError(
                f"head: given sigmoid with {counted(num_classes, 'class')}, needed softmax, or 2 "
                "classes"
            )
        outputs = 1 if config.head == "sigmoid" else num_classes
        self.classifier = nn.Linear(self._build_layers(), outputs)
        nn.init.xavier_uniform_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    @abstractmethod
    def _build_layers(self) -> int:
        """Make the attention layers; give the width of the document vector."""

    @abstractmethod
    def _attend(self, words: Tensor, batch: DocumentBatch) -> Attended:
        """From word vectors `[T, E]` to what the last attention layer gives."""

    def forward(self, batch: DocumentBatch) -> ModelOutput:
        """Classify documents.

        Args:
            batch: documents, on the model's device.

        Returns:
            The logits, and what the last attention layer saw.
        """
        return self.from_embeddings(self.embed(batch), batch)

    def embed(self, batch: DocumentBatch) -> Tensor:
        """Look up the word embeddings of documents, before any dropout.

        Args:
            batch: documents, on the model's device.

        Returns:
            `[T, E]`, float32, packed.

        Example:
            >>> words = model.embed(batch).detach().requires_grad_()  # doctest: +SKIP
            >>> output = model.from_embeddings(words, batch)  # doctest: +SKIP
        """
        words: Tensor = self.embedding(batch.token_ids)  # [T, E]
        return words

    def from_embeddings(self, words: Tensor, batch: DocumentBatch) -> ModelOutput:
        """Classify documents whose word embeddings are given: what `forward` does after `embed`.

        Args:
            words: `[T, E]`, float32, packed: those of `embed`, or others in their place, such as
                a saliency method's.
            batch: the documents, which give lengths, ids and whatever else a kind of model reads.

        Returns:
            The logits, and what the last attention layer saw.
        """
        words = self.embedding_dropout(words)  # [T, E]
        found = self._attend(words, batch)
        if self.config.dropout_style == "code":
            logits = self.output_dropout(self._decode(found.vectors, found.query))  # [B, C]
        else:
            logits = self._decode(self.output_dropout(found.vectors), found.query)  # [B, C]
        if self.config.head == "sigmoid":
            # sigmoid(z) is the softmax of (0, z), and so are their losses.
            logits = torch.cat([torch.zeros_like(logits), logits], 1)  # [B, 2]
        return ModelOutput(
            logits, found.values, found.scores, found.lengths, found.weights, found.query
        )

    def _decode(self, vectors: Tensor, query: Tensor | None) -> Tensor:
        """From averages `[B, D]` to logits `[B, C]`."""
        logits: Tensor = self.classifier(vectors)
        return logits

    def head(self) -> tuple[Tensor, Tensor]:
        """Give the linear head as weight `[C, D]` and bias `[C]`, a copy without gradient."""
        weight, bias = self.classifier.weight.detach(), self.classifier.bias.detach()
        if self.config.head == "sigmoid":
            return torch.cat([torch.zeros_like(weight), weight]), F.pad(bias, (1, 0))
        return weight.clone(), bias.clone()

    @property
    def erases_scores(self) -> bool:
        """Whether batches carry scores, whose softmax attention is; else they carry weights."""
        *_, last = (part for part in self.modules() if isinstance(part, AttentionLayer))
        return bool(last.mechanism.is_softmax)

    def attention_outputs(
        self,
        dataset: Dataset,
        *,
        batch_tokens: int = 32768,
        device: torch.device | str | None = None,
    ) -> Iterator[tuple[AttentionBatch, Tensor]]:
        """Stream what the last attention layer sees, with the model's own logits.

        The items are the words of a flat model and the sentences of a hierarchical one. Dropout is
        off; the mode of the model and the random state are left as found.

        Args:
            dataset: the documents.
            batch_tokens: words of a batch, at most; a longer document makes a batch of its own.
            device: where to compute, the model moves there; default: where the model is.

        Yields:
            A batch with the documents' ids, float32 values, scores before the softmax (weights,
            where attention is no softmax) and the classifier as the head, and the logits `[B, C]`,
            float32, of the model's forward pass.

        Example:
            >>> for batch, logits in model.attention_outputs(dataset):  # doctest: +SKIP
            ...     print(batch.offsets, logits.argmax(1))
        """
        from fastattnerase.models.packed import offsets_of

        if device is not None:
            self.to(device)
        engine_head = self._engine_head()
        for documents in batches_in_order(dataset, batch_tokens):
            documents = documents.to(self.classifier.weight.device)
            with evaluating(self):
                output = self(documents)
                values, head = engine_head(output, documents)
            batch = AttentionBatch(
                values,
                offsets_of(output.lengths),
                scores=output.scores if self.erases_scores else None,
                weights=None if self.erases_scores else output.weights,
                ids=documents.ids,
                **head,
            )
            yield batch, output.logits

    def _engine_head(self) -> Callable[[ModelOutput, DocumentBatch], tuple[Tensor, dict[str, Any]]]:
        """Give what makes, of what was computed for a batch, the engine's values and head.

        The head is that of now, whatever the model is trained to later.
        """
        weight, bias = self.head()  # [C, D], [C]
        return lambda output, _: (output.values, {"head_weight": weight, "head_bias": bias})

    def attention_batches(
        self,
        dataset: Dataset,
        *,
        batch_tokens: int = 32768,
        device: torch.device | str | None = None,
    ) -> Iterator[AttentionBatch]:
        """Stream what the last attention layer sees: `attention_outputs` without the logits.

        Args:
            dataset: the documents.
            batch_tokens: words of a batch, at most.
            device: where to compute; default: where the model is.

        Yields:
            The batches, in the order of the data set.

        Example:
            >>> for batch in model.attention_batches(dataset):  # doctest: +SKIP
            ...     print(fae.minimal_flip_set(batch).size)
        """
        for batch, _ in self.attention_outputs(dataset, batch_tokens=batch_tokens, device=device):
            yield batch


KINDS: Registry[Callable[[ModelConfig, int, int, Tensor | None], AttentionClassifier]] = Registry(
    "kind"
)
