"""The flat attention network: one attention layer over all words."""

from __future__ import annotations

from torch import Tensor

from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.models.base import KINDS, Attended, AttentionClassifier, AttentionLayer


@KINDS.register("flan")
class FLAN(AttentionClassifier):
    """A flat attention network (Serrano & Smith 2019, section 3.1).

    Embeddings, dropout, encoder over the whole document, attention over its words, classifier.
    """

    def _build_layers(self) -> int:
        self.words = AttentionLayer(self.config.embedding_size, self.config)
        return self.words.output_size

    def _attend(self, words: Tensor, batch: DocumentBatch) -> Attended:
        attended: Attended = self.words(words, batch.document_lengths, batch.ids)
        return attended
