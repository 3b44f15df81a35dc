"""A trained model with attention that learned nothing."""

from __future__ import annotations

from copy import deepcopy

import torch

from fastattnerase.models.base import AttentionClassifier, AttentionLayer

_OTHER_SEED = 1_000_003  # added to a model's, whose own gives what its training began with


def with_untrained_attention(
    model: AttentionClassifier, seed: int | None = None
) -> AttentionClassifier:
    """Copy a model, with the scores of its last attention layer by new random parameters.

    Words, encoders and classifier stay as they were trained; of a hierarchical model the attention
    over words does, too.

    Args:
        model: a trained model.
        seed: of the parameters; by default another than the model's own, which would give those
            that its training began with.

    Returns:
        The copy, in the model's mode and on its device.

    Example:
        >>> from fastattnerase.models.untrained import with_untrained_attention
        >>> other = with_untrained_attention(model)  # doctest: +SKIP
    """
    other = deepcopy(model)
    *_, last = (part for part in other.modules() if isinstance(part, AttentionLayer))
    device = other.classifier.weight.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(other.config.seed + _OTHER_SEED if seed is None else seed)
        last.attention = last.new_attention(other.config)
    last.attention.to(device).train(other.training)
    return other


def has_parameters(model: AttentionClassifier) -> bool:
    """Whether untrained attention would be other attention.

    Dot attention with a query has no parameters: `with_untrained_attention` gives the model.

    Args:
        model: a model.
    """
    if model.config.kind != "pair":
        return True
    *_, last = (part for part in model.modules() if isinstance(part, AttentionLayer))
    return any(True for _ in last.attention.parameters())
