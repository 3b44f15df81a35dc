"""Attention weights, and entropy and divergences of distributions; float64, in nats."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastattnerase.batch import AttentionBatch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


# --- of all instances of a batch, one after another ----------------------------------------------


def sums_of(values: Floats, offsets: Ints) -> Floats:
    """Add up numbers of items within each instance, in their order from 0 on.

    `((0 + v_1) + v_2) + …`: a sum depends on its own items alone, to the last bit.
    `np.add.reduceat` adds up in another order; `np.add.at` in this one, four times as slowly.

    Args:
        values: `[T]` float64, contiguous.
        offsets: `[B + 1]` int64, where each instance begins, and the end of the last.

    Returns:
        `[B]` float64; 0 for an instance without items.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.attention import sums_of
        >>> sums_of(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
        [3.0, 0.0, 4.0]
    """
    # Unsafe: the offsets are not looked through again.
    sums = torch.segment_reduce(
        torch.from_numpy(values), "sum", offsets=torch.from_numpy(offsets), initial=0.0, unsafe=True
    )
    return np.asarray(sums.numpy())


def head_weights(batch: AttentionBatch) -> Floats:
    """Compute the weight of every item in every attention head.

    `a_i = exp(e_i − max e) / Σ_j exp(e_j − max e)` of scores, `w_i / Σ_j w_j` of weights, over the
    items of an instance; 0 for a score of -inf and for an instance without any mass.

    Args:
        batch: `B` instances, `T` items, `H` heads.

    Returns:
        `[T, H]` float64; NaN in an instance with a score or weight that is not finite.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.statistics.attention import head_weights
        >>> head_weights(fae.AttentionBatch(
        ...     torch.zeros(2, 1), torch.tensor([0, 2]), weights=torch.tensor([1.0, 3.0]),
        ...     head_weight=torch.ones(2, 1))).tolist()
        [[0.25], [0.75]]
    """
    given = batch.weights if batch.scores is None else batch.scores
    assert given is not None  # a batch has one of the two
    given = given.reshape(-1, batch.num_heads).cpu()  # [T, H]
    # NumPy converts what it knows: torch's threads would go on spinning for milliseconds.
    plain = given.float() if given.dtype == torch.bfloat16 else given
    values = plain.numpy().astype(np.float64)
    offsets = batch.offsets.cpu().numpy()
    lengths = np.diff(offsets)
    if batch.scores is not None:
        highest = np.zeros((len(lengths), values.shape[1]))  # [B, H]
        some = lengths > 0
        if some.any():
            highest[some] = np.maximum.reduceat(values, offsets[:-1][some])
        # An instance whose scores are all -inf has no mass.
        highest[~np.isfinite(highest)] = 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            values = np.exp(values - np.repeat(highest, lengths, axis=0))
    heads = np.ascontiguousarray(values.T)  # [H, T]
    total = np.stack([sums_of(of_head, offsets) for of_head in heads], axis=1)  # [B, H]
    total[total == 0] = 1.0
    with np.errstate(invalid="ignore"):
        return np.asarray(values / np.repeat(total, lengths, axis=0))


def attention_weights(batch: AttentionBatch) -> Floats:
    """Compute the weight of every item, the mean over the attention heads: see `head_weights`.

    Args:
        batch: `B` instances, `T` items.

    Returns:
        `[T]` float64; sums to 1 over each instance that has mass in all heads.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.statistics.attention import attention_weights
        >>> attention_weights(fae.AttentionBatch(
        ...     torch.zeros(2, 1), torch.tensor([0, 2]), weights=torch.tensor([1.0, 3.0]),
        ...     head_weight=torch.ones(2, 1))).tolist()
        [0.25, 0.75]
    """
    weights = head_weights(batch)  # [T, H]
    return np.asarray(weights[:, 0] if batch.num_heads == 1 else weights.mean(axis=1))


def divergences_from_uniform(weights: Floats, offsets: Ints) -> tuple[Floats, Floats]:
    """Measure how far attention is from uniform in each instance: `KL(a ‖ 1/n)`, `JS(a, 1/n)`.

    Args:
        weights: `[T]` float64, adding to 1 within each instance.
        offsets: `[B + 1]` int64, where each instance begins, and the end of the last.

    Returns:
        Two times `[B]` float64, in nats; NaN for an instance without items.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.attention import divergences_from_uniform
        >>> kl, js = divergences_from_uniform(np.array([1.0, 0.0]), np.array([0, 2]))
        >>> round(float(kl[0]), 4), round(float(js[0]), 4)  # ln 2, ¾ ln 4/3
        (0.6931, 0.2158)
    """
    n = np.diff(offsets)  # [B]
    even = 1 / np.repeat(n, n)  # [T]
    middle = (weights + even) / 2  # [T]

    def total(terms: Floats) -> Floats:
        return np.where(n > 0, sums_of(terms, offsets), np.nan)

    def times_log(of: Floats, to: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(of == 0, 0.0, of * np.log(of / to)))

    kl = total(times_log(weights, even))
    js = total(times_log(weights, middle) + times_log(even, middle)) / 2
    return np.maximum(kl, 0), np.maximum(js, 0)  # NaN stays


def js_divergences(p: Floats, q: Floats) -> Floats:
    """Compute `½ KL(p ‖ m) + ½ KL(q ‖ m)`, `m = (p + q) / 2`, of distributions; 0 ln 0 is 0.

    Args:
        p, q: `[..., n]` float64, each row a distribution; broadcast against each other.

    Returns:
        `[...]` float64, in nats, from 0 to `ln 2`.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.attention import js_divergences
        >>> p = np.array([[1.0, 0.0], [0.5, 0.5]])
        >>> js_divergences(p, np.array([0.0, 1.0])).round(4).tolist()
        [0.6931, 0.2158]
    """
    middle = (p + q) / 2  # [..., n]
    total = np.zeros(middle.shape[:-1])
    for one in (p, q):
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(one == 0, 0.0, one * np.log(one / middle))  # [..., n]
        total += terms.sum(axis=-1) / 2
    return np.asarray(np.clip(total, 0.0, np.log(2)))


def entropies(probabilities: Floats) -> Floats:
    """Compute the entropy `−Σ p ln p` of several distributions; 0 ln 0 is 0.

    Args:
        probabilities: `[B, n]` float64, each row a distribution.

    Returns:
        `[B]` float64, in nats.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.statistics.attention import entropies
        >>> entropies(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
        [0.0, 0.6931]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(probabilities > 0, probabilities * np.log(probabilities), 0.0)  # [B, n]
    return np.asarray(-terms.sum(axis=1) + 0.0)


# --- of one distribution, by its logarithms, which are finite where weights underflow ------------


def entropy(log_p: Tensor) -> float:
    """Compute the entropy `−Σ p ln p` of a distribution with positive probabilities.

    Args:
        log_p: `[n]`, any float type, finite.

    Returns:
        The entropy in nats, from 0 to `ln n`.

    Example:
        >>> import torch
        >>> from fastattnerase.statistics.attention import entropy
        >>> round(entropy(torch.tensor([0.5, 0.5]).log()), 4)
        0.6931
    """
    log_p = log_p.double()  # [n]
    return float(-(log_p.exp() * log_p).sum())


def kl_divergence(log_p: Tensor, log_q: Tensor) -> float:
    """Compute `KL(p ‖ q) = Σ p (ln p − ln q)` of two distributions.

    Args:
        log_p, log_q: `[n]`, any float type, finite.

    Returns:
        The divergence in nats, not clipped: rounding may leave it just below 0.

    Example:
        >>> import torch
        >>> from fastattnerase.statistics.attention import kl_divergence
        >>> p, q = torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])
        >>> round(kl_divergence(p.log(), q.log()), 4)  # ½ ln 2 + ½ ln ⅔
        0.1438
    """
    p, q = log_p.double().numpy(), log_q.double().numpy()  # [n]
    return float(np.sum(np.exp(p) * (p - q)))


def js_divergence(log_p: Tensor, log_q: Tensor) -> float:
    """Compute `½ KL(p ‖ m) + ½ KL(q ‖ m)`, `m = (p + q) / 2`, of two distributions.

    Args:
        log_p, log_q: `[n]`, any float type, finite.

    Returns:
        The divergence in nats, from 0 to `ln 2`.

    Example:
        >>> import torch
        >>> from fastattnerase.statistics.attention import js_divergence
        >>> js_divergence(torch.tensor([0.0, -900.0]), torch.tensor([-900.0, 0.0]))
        0.6931471805599453
    """
    p, q = log_p.double().numpy(), log_q.double().numpy()  # [n]
    middle = np.logaddexp(p, q) - np.log(2)  # [n]
    found = np.sum(np.exp(p) * (p - middle)) + np.sum(np.exp(q) * (q - middle))
    return max(0.0, float(found) / 2)
