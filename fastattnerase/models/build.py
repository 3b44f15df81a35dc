"""Models from configurations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.models.base import KINDS, AttentionClassifier
from fastattnerase.models.config import ModelConfig


def build_model(
    config: ModelConfig,
    vocabulary: Vocabulary,
    num_classes: int,
    embeddings: Tensor | None = None,
) -> AttentionClassifier:
    """Make an untrained model.

    The initial parameters depend on `config.seed` alone; the random state is left as found.

    Args:
        config: parts and sizes.
        vocabulary: the known words.
        num_classes: classes, at least 2.
        embeddings: `[V, E]`, float32, initial word vectors, whose width replaces
            `config.embedding_size`; default: random.

    Returns:
        The model, on the CPU, in training mode.

    Raises:
        ModelError: unknown parts, sizes that do not fit.

    Example:
        >>> model = build_model(ModelConfig(encoder="conv"), Vocabulary(["good", "bad"]), 2)
        >>> model.classifier
        Linear(in_features=100, out_features=2, bias=True)
    """
    if embeddings is not None:
        config = replace(config, embedding_size=embeddings.shape[1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return KINDS[config.kind](config, len(vocabulary), num_classes, embeddings)
