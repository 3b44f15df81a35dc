"""The classifier of Jain and Wallace for two texts: attention over one, with the other as query."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.models.attentions import QUERY_ATTENTIONS, QueryAttention
from fastattnerase.models.base import (
    KINDS,
    Attended,
    AttentionClassifier,
    AttentionLayer,
    ModelOutput,
)
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.encoders import ENCODERS
from fastattnerase.models.errors import ModelError
from fastattnerase.models.packed import gather
from fastattnerase.models.sequence import between_markers

# What the logit of an answer that is not allowed loses. Infinity would make an instance one that is
# not finite, and the engine's tolerance for near-ties grows with the bias.
DISALLOWED = 100.0


@QUERY_ATTENTIONS.register("additive")
class AdditiveQueryAttention(QueryAttention):
    """Additive attention, `e_i = c · tanh(A h_i + a + B q + b)`.

    Source: Jain & Wallace 2019, section 2.
    """

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        size = config.attention_size or input_size
        self.project = nn.Linear(input_size, size)
        self.project_query = nn.Linear(input_size, size)
        self.context = nn.Linear(size, 1, bias=False)

    def forward(self, values: Tensor, query: Tensor, instance: Tensor) -> Tensor:
        """Score items: `[T, D]`, `[B, D]`, `[T]` → `[T]`."""
        asked = gather(self.project_query(query), instance)  # [T, A]
        hidden = torch.tanh(self.project(values) + asked)  # [T, A]
        return torch.squeeze(self.context(hidden), -1)  # [T]


@QUERY_ATTENTIONS.register("deep")
class DeepQueryAttention(QueryAttention):
    """Deep attention: `e_i = W_s relu(W_{s−1} … relu(W_1 relu(W_h h_i + W_q q)))`.

    Layers and biases as without a query; `s` is the configuration's `attention_depth`.

    Source: Wen, Subbalakshmi and Yang 2022, equations 3 and 4.
    """

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        size = config.attention_size or input_size
        self.project = nn.Linear(input_size, size)
        self.project_query = nn.Linear(input_size, size, bias=False)
        layers: list[nn.Module] = [nn.ReLU()]
        for _ in range(config.attention_depth - 1):
            layers += [nn.Linear(size, size), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(size, 1, bias=False))

    def forward(self, values: Tensor, query: Tensor, instance: Tensor) -> Tensor:
        """Score items: `[T, D]`, `[B, D]`, `[T]` → `[T]`."""
        asked = gather(self.project_query(query), instance)  # [T, A]
        scores: Tensor = self.layers(self.project(values) + asked)  # [T, 1]
        return torch.squeeze(scores, -1)  # [T]


@QUERY_ATTENTIONS.register("dot")
class DotQueryAttention(QueryAttention):
    """Dot attention, `e_i = h_i · q / √D`, without parameters.

    Source: Jain & Wallace 2019, section 2; Wen, Subbalakshmi and Yang 2022, equation 5.
    """

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(input_size)

    def forward(self, values: Tensor, query: Tensor, instance: Tensor) -> Tensor:
        """Score items: `[T, D]`, `[B, D]`, `[T]` → `[T]`."""
        return (values * gather(query, instance)).sum(-1) * self.scale  # [T]


@QUERY_ATTENTIONS.register("uniform")
class UniformQueryAttention(QueryAttention):
    """Attention without parameters: every item has the score 0."""

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, values: Tensor, query: Tensor, instance: Tensor) -> Tensor:
        """Score items: `[T, D]`, `[B, D]`, `[T]` → `[T]`."""
        return values.new_zeros(len(values))  # [T]


@KINDS.register("pair")
class PairClassifier(AttentionClassifier):
    """A classifier of two texts: attention over the words of the first, with the second as query.

    Both texts are read between a start and an end marker, by an encoder and with word embeddings of
    their own; the vocabulary is shared. The query's vector `q` is what its encoder's `summarise`
    gives: the last states of a recurrent encoder, the maximum of a convolution, the mean of others.
    With the average `c = Σ a_i h_i` over the first text the decoder gives

    - `tanh`: `z = W_3 tanh(W_p c + b_p + W_q q + b_q) + b_3`, the hidden layer half as wide as `c`;
    - `linear`: `z = W c + b`;
    - `query`: `z = W c + U q + b`.

    An answer that a document does not allow loses 100 from its logit.

    Batches for the engine: `linear` and `query` have a linear head, whose bias is that of the
    instance where the query or the allowed answers are in it. `tanh` has a callable head on values
    `W_p h_i`, since `W_p Σ a_i h_i = Σ a_i (W_p h_i)`: every item is projected once.

    Source: Jain & Wallace 2019, section 2 and code; Wen, Subbalakshmi and Yang 2022, section 2.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_size: int,
        num_classes: int,
        embeddings: Tensor | None = None,
    ) -> None:
        super().__init__(config, vocabulary_size, num_classes, embeddings)
        self.query_embedding = nn.Embedding(
            vocabulary_size,
            config.embedding_size,
            padding_idx=Vocabulary.PADDING,
            max_norm=config.embedding_max_norm,
        )
        scale = config.embedding_size**-0.5
        with torch.no_grad():
            if embeddings is None:
                self.query_embedding.weight.normal_(0.0, scale)
                self.query_embedding.weight[Vocabulary.PADDING] = 0.0
            else:
                self.query_embedding.weight.copy_(embeddings)
        markers = torch.randn(4, config.embedding_size) * scale  # [4, E]
        if embeddings is not None:
            markers = torch.zeros_like(markers)
        self.markers = nn.Parameter(markers[:2].clone())
        self.query_markers = nn.Parameter(markers[2:].clone())

    def _build_layers(self) -> int:
        config = self.config
        self.words = AttentionLayer(config.embedding_size, config, with_query=True)
        self.query_encoder = ENCODERS[config.encoder](config.embedding_size, config)
        width = self.words.output_size
        if config.decoder == "tanh":
            hidden = max(1, width // 2)
            self.project = nn.Linear(width, hidden)
            self.project_query = nn.Linear(width, hidden)
            return hidden
        if config.decoder == "query":
            self.query_classifier = nn.Linear(width, self.num_classes, bias=False)
        return width

    def _attend(self, words: Tensor, batch: DocumentBatch) -> Attended:
        lengths = batch.document_lengths
        rows, place = between_markers(words, self.markers, lengths)  # [T + 2B, E], [T]
        values = self.words.encoder(rows, lengths + 2)  # [T + 2B, D]
        query = self._read_query(batch)  # [B, D]
        return self.words.attend(gather(values, place), lengths, batch.ids, query)

    def _read_query(self, batch: DocumentBatch) -> Tensor:
        """Encode the queries of a batch: `[B, D]`."""
        if batch.query_ids is None or batch.query_lengths is None:
            raise ModelError(
                f"documents: given document {int(batch.ids[0])} without a query, needed one with "
                "it: the model is of kind pair (query_column, --query-column)"
            )
        words = self.embedding_dropout(self.query_embedding(batch.query_ids))  # [Q, E]
        rows, _ = between_markers(words, self.query_markers, batch.query_lengths)  # [Q + 2B, E]
        states = self.query_encoder(rows, batch.query_lengths + 2)  # [Q + 2B, D]
        return self.query_encoder.summarise(states, batch.query_lengths)

    def from_embeddings(self, words: Tensor, batch: DocumentBatch) -> ModelOutput:
        """Classify documents whose first texts' word embeddings are given.

        Args:
            words: `[T, E]`, float32, packed.
            batch: the documents, which give the queries and the answers that are allowed.

        Returns:
            The logits, and what attention over the first text saw.
        """
        output = super().from_embeddings(words, batch)
        lowered = self.lowered(batch)
        return output if lowered is None else output._replace(logits=output.logits - lowered)

    def _decode(self, vectors: Tensor, query: Tensor | None) -> Tensor:
        assert query is not None
        if self.config.decoder == "tanh":
            hidden = torch.tanh(self.project(vectors) + self.project_query(query))  # [B, A]
            logits: Tensor = self.classifier(hidden)  # [B, C]
            return logits
        logits = self.classifier(vectors)  # [B, C]
        return logits + self.query_classifier(query) if self.config.decoder == "query" else logits

    def lowered(self, batch: DocumentBatch) -> Tensor | None:
        """Give what logits lose, `[B, C]`: nothing where all documents allow all answers."""
        if batch.answers is None or batch.answer_counts is None:
            return None
        instance = torch.arange(len(batch.ids), device=batch.ids.device)  # [B]
        flags = torch.zeros(len(batch.ids), self.num_classes, device=batch.ids.device)  # [B, C]
        flags[instance.repeat_interleave(batch.answer_counts), batch.answers] = 1.0
        flags[batch.answer_counts == 0] = 1.0
        return DISALLOWED * (1.0 - flags)

    def head(self) -> tuple[Tensor, Tensor]:
        """Give the linear head of the average as weight `[C, D]` and bias `[C]`.

        Without what queries and allowed answers add to the bias of an instance.

        Raises:
            ModelError: the decoder is `tanh`, which is no linear head.
        """
        if self.config.decoder == "tanh":
            raise ModelError("decoder: given tanh, needed linear or query, whose head is linear")
        return super().head()

    def _engine_head(self) -> Callable[[ModelOutput, DocumentBatch], tuple[Tensor, dict[str, Any]]]:
        if self.config.decoder == "tanh":
            return self._callable_head
        weight, bias = self.head()  # [C, D], [C]

        def linear(output: ModelOutput, batch: DocumentBatch) -> tuple[Tensor, dict[str, Any]]:
            assert output.query is not None
            own, lowered = bias, self.lowered(batch)  # [C], [B, C]
            if self.config.decoder == "query":
                own = own + self.query_classifier(output.query)  # [B, C]
            if lowered is not None:
                own = own - lowered  # [B, C]
            return output.values, {"head_weight": weight, "head_bias": own}

        return linear

    def _callable_head(
        self, output: ModelOutput, batch: DocumentBatch
    ) -> tuple[Tensor, dict[str, Any]]:
        """Project the items of a batch, and give the rest of the decoder as a function."""
        assert output.query is not None
        values = output.values @ self.project.weight.T  # [T, A]
        asked = self.project.bias + self.project_query(output.query)  # [B, A]
        lowered = self.lowered(batch)
        return values, {"head": TanhHead(self.classifier, asked, lowered)}


class TanhHead:
    """The decoder `tanh` from the average of projected items on, for the instances of a batch.

    Args:
        layer: `W_3` and `b_3`; copied.
        asked: `[B, A]`, `b_p + W_q q + b_q` of each instance.
        lowered: `[B, C]`, what is taken off its logits; None for nothing.
    """

    def __init__(self, layer: nn.Linear, asked: Tensor, lowered: Tensor | None) -> None:
        self.weight, self.bias = layer.weight.detach().clone(), layer.bias.detach().clone()
        self.asked, self.lowered = asked, lowered

    def __call__(self, pooled: Tensor, instance: Tensor) -> Tensor:
        """Give the logits `[M, C]` of averages `[M, A]` of instances `[M]`."""
        hidden = torch.tanh(pooled + self.asked[instance].to(pooled))  # [M, A]
        logits = hidden @ self.weight.to(pooled).T + self.bias.to(pooled)  # [M, C]
        if self.lowered is not None:
            logits = logits - self.lowered[instance].to(pooled)
        return logits
