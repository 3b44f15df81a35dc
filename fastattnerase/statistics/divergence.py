"""How different the outputs and the attention of two models are, and how concentrated one's is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastattnerase.statistics.attention import entropy, js_divergence, kl_divergence

Floats = NDArray[np.float64]


class Predicted(Protocol):
    """What a model gives documents, by their ids, as `models.predictions.Predictions` has it."""

    @property
    def log_weights(self) -> Mapping[int, Tensor]:
        """`[n]` for each, logarithms of the attention weights."""

    @property
    def probability(self) -> Mapping[int, float]:
        """Of class 1."""


@dataclass(frozen=True)
class Divergence:
    """How different two models are, means over documents.

    Attributes:
        tvd: Total variation distance of the outputs, `|p − p'|`; the published code reports half.
        output_jsd: Jensen-Shannon divergence of the outputs, nats.
        attention_jsd: Jensen-Shannon divergence of the attention distributions, nats, at most ln 2.
        attention_kl: `KL(a ‖ a')` of the attention distributions, nats.
    """

    tvd: float
    output_jsd: float
    attention_jsd: float
    attention_kl: float


@dataclass(frozen=True)
class AttentionShape:
    """How concentrated a model's attention is, means over documents.

    Attributes:
        largest_weight: Largest weight of a document.
        entropy_share: Entropy over the largest possible, `ln n`, of documents with two words or
            more: 1 is uniform attention; None where there is no such document.
    """

    largest_weight: float
    entropy_share: float | None


class InstanceDivergences(NamedTuple):
    """How different two models are on each document, `[N]` float64 each; see `Divergence`."""

    tvd: Floats
    output_jsd: Floats
    attention_jsd: Floats
    attention_kl: Floats


def divergences(
    first: Predicted, second: Predicted, documents: Iterable[int]
) -> InstanceDivergences:
    """Compare two models on each of some documents.

    Args:
        first: the one whose attention stands first in `KL(a ‖ a')`.
        second: the other.
        documents: their ids.

    Returns:
        The divergences, in the order of the ids.

    Example:
        >>> import torch
        >>> from fastattnerase.statistics.divergence import divergences
        >>> class Fake:
        ...     log_weights = {0: torch.tensor([0.5, 0.5]).log()}
        ...     probability = {0: 0.75}
        >>> class Other(Fake):
        ...     probability = {0: 0.25}
        >>> divergences(Fake, Other, [0]).tvd.tolist()
        [0.5]
    """
    rows: list[list[float]] = []
    for key in documents:
        p, q = first.probability[key], second.probability[key]
        outputs = [torch.from_numpy(np.log(np.clip([1 - x, x], 1e-300, 1.0))) for x in (p, q)]
        a, b = first.log_weights[key], second.log_weights[key]  # [n]
        rows.append([abs(p - q), js_divergence(*outputs), js_divergence(a, b), kl_divergence(a, b)])
    return InstanceDivergences(*np.reshape(rows, (-1, 4)).T)


def divergence(adversary: Predicted, base: Predicted, documents: Iterable[int]) -> Divergence:
    """Compare the outputs of two models: the means of `divergences` over some documents.

    Example:
        >>> import torch
        >>> from fastattnerase.statistics.divergence import divergence
        >>> class Fake:
        ...     log_weights = {0: torch.tensor([0.5, 0.5]).log()}
        ...     probability = {0: 0.75}
        >>> class Other(Fake):
        ...     probability = {0: 0.25}
        >>> found = divergence(Fake, Other, [0])
        >>> found.tvd, found.attention_jsd
        (0.5, 0.0)
    """
    found = np.stack(divergences(adversary, base, documents), axis=1)  # [N, 4]
    means = np.mean(found, axis=0)
    return Divergence(*(float(x) for x in means))


def attention_shape(outputs: Predicted, documents: Iterable[int]) -> AttentionShape:
    """Measure how concentrated a model's attention is on some documents, by their ids."""
    largest, share = [], []
    for key in documents:
        log = outputs.log_weights[key].double()  # [n]
        largest.append(float(log.max().exp()))
        if len(log) > 1:
            share.append(entropy(log) / float(np.log(len(log))))
    return AttentionShape(float(np.mean(largest)), float(np.mean(share)) if share else None)
