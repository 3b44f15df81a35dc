"""The hierarchical attention network: words to sentences, sentences to the document."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.models.base import KINDS, Attended, AttentionClassifier, AttentionLayer
from fastattnerase.models.packed import offsets_of


@KINDS.register("han")
class HAN(AttentionClassifier):
    """A hierarchical attention network (Yang et al. 2016; Serrano & Smith 2019, section 3.1).

    Each sentence: embeddings, dropout, word encoder, attention. Each document: sentence vectors,
    dropout, sentence encoder, attention, classifier. The items of the last attention layer are the
    sentences.
    """

    def _build_layers(self) -> int:
        self.words = AttentionLayer(self.config.embedding_size, self.config)
        self.sentence_dropout = nn.Dropout(self.config.dropout_sentence)
        self.sentences = AttentionLayer(self.words.output_size, self.config)
        return self.sentences.output_size

    def _attend(self, words: Tensor, batch: DocumentBatch) -> Attended:
        keys = self.sentence_keys(batch)  # [S]
        sentences = self.words(words, batch.sentence_lengths, keys).vectors  # [S, D]
        sentences = self.sentence_dropout(sentences)
        attended: Attended = self.sentences(sentences, batch.sentence_counts, batch.ids)
        return attended

    def sentence_keys(self, batch: DocumentBatch) -> Tensor:
        """Give each sentence a number, `[S]` int64: of its document's id and its place there."""
        counts = batch.sentence_counts  # [B]
        first = offsets_of(counts)[:-1].repeat_interleave(counts)  # [S]
        number = torch.arange(len(first), device=counts.device) - first  # [S], in its document
        return (batch.ids.repeat_interleave(counts) << 24) + number + 1
