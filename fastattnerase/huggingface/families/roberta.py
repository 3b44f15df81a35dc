"""RoBERTa (Liu et al. 2019): BERT's layers, a head of two linear layers on `<s>`."""

from __future__ import annotations

from torch import Tensor

from fastattnerase.huggingface.families.base import family
from fastattnerase.huggingface.families.bert import Bert


@family("roberta")
class Roberta(Bert):
    """`RobertaForSequenceClassification`."""

    def classify(self, hidden: Tensor) -> Tensor:
        """Run the head, which takes the first position."""
        logits: Tensor = self.model.classifier(hidden[:, None])
        return logits

    @property
    def max_positions(self) -> int:
        """Positions are numbered from after the padding token's index."""
        return super().max_positions - int(self.model.config.pad_token_id) - 1
