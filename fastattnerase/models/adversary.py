"""The adversary of Wiegreffe & Pinter: the same outputs from other attention."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.models.base import AttentionClassifier, ModelOutput
from fastattnerase.models.objectives import Objective
from fastattnerase.models.packed import segment_log_softmax
from fastattnerase.models.predictions import Predictions


def adversary_objective(base: Predictions, strength: float, tvd: float = 0.5) -> Objective:
    """Make the loss of a model that imitates the base model's outputs and leaves its attention.

    `L_i = tvd · |p_i − p'_i| − strength · KL(a_i ‖ a'_i)`, primes for the base model, over the
    words.

    Args:
        base: the base model's outputs for every training document.
        strength: λ.
        tvd: of the outputs' difference: 0.5 as in the published code; 1 is the total variation
            distance of the two-class distributions.

    Returns:
        The objective, for `train`; softmax attention only.

    Source:
        Wiegreffe and Pinter 2019, section 4, and their code; Wen, Subbalakshmi and Yang 2022,
        equation 6.
    """

    def losses(_: AttentionClassifier, output: ModelOutput, batch: DocumentBatch) -> Tensor:
        keys = batch.ids.tolist()
        wanted = torch.tensor([base.probability[key] for key in keys]).to(output.logits)  # [B]
        other = torch.cat([base.log_weights[key] for key in keys]).to(output.scores)  # [T]
        difference = (output.logits.softmax(1)[:, 1] - wanted).abs()  # [B]
        own = segment_log_softmax(output.scores, output.lengths)  # [T]
        divergence = _sum_within(own.exp() * (own - other), output.lengths)  # [B]
        return tvd * difference - strength * divergence

    return losses


def _sum_within(values: Tensor, lengths: Tensor) -> Tensor:
    """Sum within each sequence: `[T]`, `[B]` → `[B]`."""
    instance = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)  # [T]
    return values.new_zeros(len(lengths)).index_add(0, instance, values)  # [B]
