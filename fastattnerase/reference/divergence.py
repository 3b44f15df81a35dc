"""Distances between the class distributions of two logit vectors."""

from __future__ import annotations

import math

from torch import Tensor


def js_divergence(logits: Tensor, original: Tensor) -> Tensor:
    """Compute ½ KL(p‖m) + ½ KL(q‖m), m = (p + q) / 2, natural logarithm: [K, C] and [C] to [K]."""
    log_q = logits.log_softmax(-1)  # [K, C]
    log_p = original.log_softmax(-1).expand_as(log_q)  # [K, C]
    log_m = log_p.logaddexp(log_q) - math.log(2)  # [K, C]
    terms = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)  # [K, C]
    return (terms.sum(-1) / 2).clamp(0, math.log(2))


def kl_divergence(logits: Tensor, original: Tensor) -> Tensor:
    """Compute KL(new ‖ original) = Σ_c q_c (log q_c − log p_c): [K, C] and [C] to [K]."""
    log_q = logits.log_softmax(-1)  # [K, C]
    log_p = original.log_softmax(-1)  # [C]
    return (log_q.exp() * (log_q - log_p)).sum(-1).clamp(min=0)
