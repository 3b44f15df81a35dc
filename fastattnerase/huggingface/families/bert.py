"""BERT (Devlin et al. 2019): a pooler and a linear classifier on `[CLS]`."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fastattnerase.huggingface.families.base import Family, family


@family("bert")
class Bert(Family):
    """`BertForSequenceClassification`."""

    @property
    def layer(self) -> nn.Module:
        """The last `BertLayer`."""
        last: nn.Module = self.model.base_model.encoder.layer[-1]
        return last

    @property
    def projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The parts of its self-attention."""
        own: Any = self.layer.attention.self  # type: ignore[union-attr]
        return own.query, own.key, own.value

    @property
    def heads(self) -> int:
        """As in its configuration."""
        return int(self.model.config.num_attention_heads)

    def after(self, context: Tensor, x_p: Tensor) -> Tensor:
        """Project, add the residual and normalise; then the same around the feed-forward part."""
        layer: Any = self.layer
        attended = layer.attention.output(context, x_p)  # [M, hidden]
        hidden: Tensor = layer.feed_forward_chunk(attended)
        return hidden

    def classify(self, hidden: Tensor) -> Tensor:
        """Run the pooler and the classifier."""
        pooled = self.model.bert.pooler(hidden[:, None])  # [M, hidden], of the first position
        logits: Tensor = self.model.classifier(self.model.dropout(pooled))
        return logits
