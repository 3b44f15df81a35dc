"""Leave-one-out: how far the output moves when a word is deleted and the text encoded again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.saliency import omission
from fastattnerase.saliency.batches import MAX_BYTES
from fastattnerase.saliency.context import MethodContext

Floats = NDArray[np.float64]


def leave_one_out(
    model: AttentionClassifier, dataset: Dataset, *, max_bytes: int = MAX_BYTES
) -> Iterator[Floats]:
    """Compute the importance of every word by deleting it.

    `d_t = ½ Σ_c |p_c(x without word t) − p_c(x)|`: the word is gone, the text one shorter, and is
    encoded and attended to anew. A text of `n` words takes `n + 1` passes over it, in packed
    batches.

    Dropout is off; the model's modes, gradients and the random state are left as found.

    Args:
        model: the model.
        dataset: `B` documents; of two texts words of the first are deleted.
        max_bytes: of a batch and what the model computes of it, estimated; a longer document makes
            a batch of its own.

    Yields:
        For each document, in order, `[n]` float64, from 0 to 1.

    Raises:
        ModelError: `max_bytes` is not positive.

    Source:
        Jain & Wallace 2019, section 4.1 and their code.

    Example:
        >>> from fastattnerase.data import Example, Vocabulary, encode
        >>> from fastattnerase.models import ModelConfig, build_model
        >>> from fastattnerase.saliency.leave_one_out import leave_one_out
        >>> words = Vocabulary(["good", "film"])
        >>> model = build_model(ModelConfig(encoder="mlp"), words, 2)
        >>> [scores] = leave_one_out(model, encode([Example(0, "good film", 1)], words))
        >>> scores.shape
        (2,)
    """
    context = MethodContext(model, output="probability", max_bytes=max_bytes)
    for found in omission.score(context, dataset, change="total_variation"):
        yield found.scores.numpy()
