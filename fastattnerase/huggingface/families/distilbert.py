"""DistilBERT (Sanh et al. 2019): no pooler, a head of two linear layers on `[CLS]`."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fastattnerase.huggingface.families.base import Family, family


@family("distilbert")
class DistilBert(Family):
    """`DistilBertForSequenceClassification`."""

    @property
    def layer(self) -> nn.Module:
        """The last `TransformerBlock`."""
        last: nn.Module = self.model.base_model.transformer.layer[-1]
        return last

    @property
    def projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The parts of its self-attention."""
        own: Any = self.layer.attention
        return own.q_lin, own.k_lin, own.v_lin

    @property
    def heads(self) -> int:
        """As in its configuration."""
        return int(self.model.config.n_heads)

    def after(self, context: Tensor, x_p: Tensor) -> Tensor:
        """Project, add the residual and normalise; then the same around the feed-forward part."""
        layer: Any = self.layer
        attended = layer.sa_layer_norm(layer.attention.out_lin(context) + x_p)  # [M, hidden]
        hidden: Tensor = layer.output_layer_norm(layer.ffn.ff_chunk(attended) + attended)
        return hidden

    def classify(self, hidden: Tensor) -> Tensor:
        """Run both linear layers with a rectifier between."""
        model: Any = self.model
        logits: Tensor = model.classifier(model.dropout(model.pre_classifier(hidden).relu()))
        return logits
