"""Gradient importance of Jain and Wallace: what a word's own entry does to the output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.saliency import gradient_x_input
from fastattnerase.saliency.batches import MAX_BYTES
from fastattnerase.saliency.context import MethodContext

Floats = NDArray[np.float64]


def gradient_importance(
    model: AttentionClassifier,
    dataset: Dataset,
    *,
    hold_attention: bool = True,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Floats]:
    """Compute the importance of every word by the derivative of the output.

    `g_t = |x_t · ∂p_y / ∂x_t|` with the embedding `x_t` of word `t` and the probability `p_y` of
    the predicted class. That is the derivative by the active entry of the word's one-hot vector:
    `x_t` grows in its own direction. Attention weights are constants, as in the paper, so that
    words count through their values alone. Where the probability is 1 to the last digit, every
    importance is 0.

    Dropout is off; the model's modes, gradients and the random state are left as found.

    Args:
        model: the model.
        dataset: `B` documents; of two texts the first is scored.
        hold_attention: whether attention weights are constants; with False derivatives also go
            through them.
        max_bytes: of a batch and what the model computes of it, estimated; a longer document makes
            a batch of its own.

    Yields:
        For each document, in order, `[n]` float64, 0 or more.

    Raises:
        ModelError: `max_bytes` is not positive.

    Source:
        Jain & Wallace 2019, section 4.1; their code differentiates the probability.

    Example:
        >>> from fastattnerase.data import Example, Vocabulary, encode
        >>> from fastattnerase.models import ModelConfig, build_model
        >>> from fastattnerase.saliency.gradient_importance import gradient_importance
        >>> words = Vocabulary(["good", "film"])
        >>> model = build_model(ModelConfig(encoder="mlp"), words, 2)
        >>> [scores] = gradient_importance(model, encode([Example(0, "good film", 1)], words))
        >>> scores.shape
        (2,)
    """
    context = MethodContext(model, output="probability", max_bytes=max_bytes)
    for found in gradient_x_input.score(
        context, dataset, absolute=True, hold_attention=hold_attention
    ):
        yield found.scores.cpu().numpy()
