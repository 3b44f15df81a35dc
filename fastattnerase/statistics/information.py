"""Mutual information of two labellings: plug-in, corrected, and under shuffling; all in nats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.plurals import counted

Ints = NDArray[np.int64]
Labels = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Information:
    """Mutual information of two labellings of the same instances, in nats.

    Attributes:
        plug_in: of the empirical distribution; within [0, bound].
        miller_madow: with all three entropies corrected; may leave [0, bound], and is not clipped.
        bias: about what independent labels would give, `(K_x − 1)(K_y − 1) / 2n`, with `K` the
            labels that occur.
        x_entropy, y_entropy: plug-in entropies.
        bound: the smaller entropy.
        instances: `n`.
    """

    plug_in: float
    miller_madow: float
    bias: float
    x_entropy: float
    y_entropy: float
    bound: float
    instances: int


def mutual_information(x: Labels, y: Labels) -> Information:
    """Estimate the mutual information of two labellings, `Σ p(x,y) ln [p(x,y) / p(x) p(y)]`.

    The Miller-Madow entropy is `H + (K − 1) / 2n`, so that the corrected mutual information is
    `I + (K_x + K_y − K_xy − 1) / 2n`, with `K_xy` the pairs that occur.

    Args:
        x, y: `[n]` integers from 0, labels of the same instances.

    Returns:
        The estimates, in nats.

    Raises:
        ValueError: no instance, different lengths, labels that are no integers or negative.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 3.2.1; G. Miller, Note on the bias of information
        estimates, 1955.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.mi import mutual_information
        >>> same = np.array([0, 0, 1, 1])
        >>> round(mutual_information(same, same).plug_in, 4)  # ln 2
        0.6931
    """
    x, y = _labels("x", x), _labels("y", y)
    if len(x) != len(y):
        raise ValueError(
            f"x, y: given {len(x)} and {counted(len(y), 'label')}, needed one of each an instance"
        )
    n = len(x)
    counts = _contingency(x, y, int(x.max()) + 1, int(y.max()) + 1)  # [K_x, K_y]
    x_entropy, y_entropy = entropy(counts.sum(axis=1)), entropy(counts.sum(axis=0))
    plug_in = _plug_in(counts)
    occupied = [int(np.count_nonzero(c)) for c in (counts.sum(axis=1), counts.sum(axis=0), counts)]
    return Information(
        plug_in=plug_in,
        miller_madow=plug_in + (occupied[0] + occupied[1] - occupied[2] - 1) / (2 * n),
        bias=(occupied[0] - 1) * (occupied[1] - 1) / (2 * n),
        x_entropy=x_entropy,
        y_entropy=y_entropy,
        bound=min(x_entropy, y_entropy),
        instances=n,
    )


def entropy(counts: Ints) -> float:
    """Compute the plug-in entropy `−Σ p ln p` of counts.

    Args:
        counts: `[K]`, 0 or more each, at least one positive.

    Returns:
        Nats, from 0 to `ln K`.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.mi import entropy
        >>> entropy(np.array([5, 0]))
        0.0
    """
    p = counts[counts > 0] / counts.sum()
    return max(0.0, float(-(p * np.log(p)).sum()))


def shuffled_information(x: Labels, shuffled: Labels) -> Floats:
    """Compute the plug-in mutual information of `x` with each of several shuffled labellings.

    Args:
        x: `[n]` integers from 0.
        shuffled: `[S, n]` integers from 0, each row the other labelling in another order.

    Returns:
        `[S]`, nats: what the estimator gives where the truth is 0.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.mi import shuffled_information
        >>> orders = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
        >>> shuffled_information(np.array([0, 0, 1, 1]), orders).round(4).tolist()
        [0.6931, 0.0]
    """
    x_labels, y_labels = int(x.max()) + 1, int(shuffled.max(initial=0)) + 1
    return np.array(
        [_plug_in(_contingency(x, row, x_labels, y_labels)) for row in shuffled],
        dtype=np.float64,
    )


def shuffles_of(y: Labels, count: int, seed: int) -> NDArray[np.int32]:
    """Draw `count` random orders of the labels `y` [n]: `[count, n]`."""
    rng = np.random.default_rng(seed)
    return rng.permuted(np.broadcast_to(y.astype(np.int32), (count, len(y))), axis=1)


def _labels(name: str, labels: Labels) -> Ints:
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name}: given {array.dtype} {list(array.shape)}, needed integers [n], n at least 1"
        )
    if array.min() < 0:
        raise ValueError(f"{name}: given the label {array.min()}, needed labels from 0")
    return array.astype(np.int64)


def _contingency(x: Labels, y: Labels, x_labels: int, y_labels: int) -> Ints:
    pairs = np.bincount(x.astype(np.int64) * y_labels + y, minlength=x_labels * y_labels)
    return pairs.reshape(x_labels, y_labels)


def _plug_in(counts: Ints) -> float:
    n = counts.sum()
    x, y = counts.sum(axis=1), counts.sum(axis=0)
    rows, columns = np.nonzero(counts)
    cells = counts[rows, columns].astype(np.float64)
    information = (cells * (np.log(cells) + np.log(n) - np.log(x[rows]) - np.log(y[columns]))).sum()
    # The bounds hold exactly; what is cut off is rounding.
    return min(max(float(information / n), 0.0), entropy(x), entropy(y))
