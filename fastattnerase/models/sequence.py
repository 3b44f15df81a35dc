"""The classifier of Jain and Wallace: attention over words between two hidden markers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.models.base import KINDS, Attended, AttentionClassifier, AttentionLayer
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.packed import gather, offsets_of


@KINDS.register("sequence")
class SequenceClassifier(AttentionClassifier):
    """Encoder, attention and classifier, where the encoder also reads a start and an end marker.

    Attention, and with it every statistic, sees the words only. The markers' vectors are trained;
    they start at zero beside pre-trained vectors (which have none for them), else as any word's.

    Source: Jain & Wallace 2019 and their code; Wen, Subbalakshmi and Yang 2022, section 2.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_size: int,
        num_classes: int,
        embeddings: Tensor | None = None,
    ) -> None:
        super().__init__(config, vocabulary_size, num_classes, embeddings)
        markers = torch.randn(2, config.embedding_size) * config.embedding_size**-0.5  # [2, E]
        self.markers = nn.Parameter(markers if embeddings is None else torch.zeros_like(markers))

    def _build_layers(self) -> int:
        self.words = AttentionLayer(self.config.embedding_size, self.config)
        return self.words.output_size

    def _attend(self, words: Tensor, batch: DocumentBatch) -> Attended:
        lengths = batch.document_lengths
        rows, place = between_markers(words, self.markers, lengths)  # [T + 2B, E], [T]
        values = self.words.encoder(rows, lengths + 2)  # [T + 2B, D]
        return self.words.attend(gather(values, place), lengths, batch.ids)


def between_markers(words: Tensor, markers: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Put a start marker before and an end marker after each packed sequence.

    Args:
        words: `[T, E]`, float32, packed.
        markers: `[2, E]`, float32.
        lengths: `[B]`, int64, sum `T`; 0 is allowed.

    Returns:
        `[T + 2B, E]`, and where the words are in it, `[T]` int64.

    Example:
        >>> rows, place = between_markers(torch.ones(1, 1), torch.tensor([[3.], [4.]]),
        ...                               torch.tensor([1, 0]))
        >>> rows[:, 0].tolist(), place.tolist()
        ([3.0, 1.0, 4.0, 3.0, 4.0], [1])
    """
    starts, ends = offsets_of(lengths)[:-1], lengths.cumsum(0)  # [B]
    document = torch.arange(len(lengths), device=lengths.device)  # [B]
    place = torch.arange(len(words), device=lengths.device)  # [T]
    place = place + 2 * document.repeat_interleave(lengths) + 1  # [T], among all vectors
    order = place.new_empty(len(words) + 2 * len(lengths))  # [T + 2B]
    order[place] = torch.arange(len(words), device=lengths.device)
    order[starts + 2 * document] = len(words)
    order[ends + 2 * document + 1] = len(words) + 1
    return gather(torch.cat([words, markers]), order), place
