"""From scores to attention weights: softmax, Gumbel-softmax and sparsemax.

A mechanism is a module `config -> mechanism` with `forward(scores [T], lengths [B], keys [B]) ->
weights [T]` on packed sequences, registered by name. Only softmax's weights are a function of the
scores that erasure can re-run; of the others the engine gets the weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from fastattnerase.models.config import ModelConfig
from fastattnerase.models.packed import offsets_of, segment_softmax
from fastattnerase.models.registry import Registry

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Mechanism(nn.Module, ABC):
    """The base of mechanisms; `is_softmax` says whether weights are the softmax of the scores."""

    is_softmax = False

    @abstractmethod
    def forward(self, scores: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
        """Weigh the items of packed sequences.

        Args:
            scores: `[T]`, float32.
            lengths: `[B]`, int64, sum `T`; 0 is allowed.
            keys: `[B]`, int64, a number for each sequence, whatever batch it is in.

        Returns:
            `[T]`, not negative; those of a sequence add to 1.
        """


MECHANISMS: Registry[Callable[[ModelConfig], Mechanism]] = Registry("mechanism")


@MECHANISMS.register("softmax")
class Softmax(Mechanism):
    """Softmax, `a_i = exp(e_i) / Σ_j exp(e_j)`."""

    is_softmax = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, scores: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
        """Weigh the items."""
        return segment_softmax(scores, lengths)


@MECHANISMS.register("gumbel")
class GumbelSoftmax(Mechanism):
    """Gumbel-softmax, `a = softmax((e + g) / τ)`, `g_i = −ln(−ln u_i)`, `u_i` uniform.

    In training the noise is new in every step (`gumbel_noise` = `fresh`) or always the same for a
    document (`shared`). In evaluation there is none (`gumbel_evaluation` = `off`: `softmax(e / τ)`)
    or the document's own (`on`), which depends on the model's seed, the document and the position
    alone, so that a measurement repeats. `gumbel_hard`: all weight on the largest, with the
    gradient of the soft weights (straight through).

    Source: Jang, Gu and Poole 2016; Wen, Subbalakshmi and Yang 2022, section 5.3 (τ = 0.8).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.temperature = config.temperature
        self.noise = config.gumbel_noise
        self.evaluation = config.gumbel_evaluation
        self.hard = config.gumbel_hard
        self.seed = config.seed

    def forward(self, scores: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
        """Weigh the items, with noise where the mode and the options say so."""
        noisy = scores
        if self.training and self.noise == "fresh":
            uniform = torch.rand_like(scores).clamp(1e-20, 1 - 2**-24)  # [T]
            noisy = scores - torch.log(-torch.log(uniform))
        elif self.training or self.evaluation == "on":
            noisy = scores + document_noise(self.seed, keys, lengths).to(scores)
        weights = segment_softmax(noisy / self.temperature, lengths)  # [T]
        if not self.hard:
            return weights
        largest = _one_hot_of_largest(weights.detach(), lengths)  # [T]
        return largest + weights - weights.detach()


def document_noise(seed: int, keys: Tensor, lengths: Tensor) -> Tensor:
    """Standard Gumbel noise that depends on the seed, a document's key and the position alone.

    Args:
        seed: a number.
        keys: `[B]`, int64.
        lengths: `[B]`, int64, sum `T`.

    Returns:
        `[T]`, float64, on the CPU.

    Example:
        >>> together = document_noise(0, torch.tensor([5, 9]), torch.tensor([2, 1]))
        >>> bool(document_noise(0, torch.tensor([9]), torch.tensor([1]))[0] == together[2])
        True
    """
    counts = lengths.cpu().numpy()
    with np.errstate(over="ignore"):
        start = np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN
        documents = _mix(_mix(start) + keys.cpu().numpy().astype(np.uint64) + _GOLDEN)  # [B]
        begins = np.cumsum(counts) - counts  # [B]
        places = np.arange(counts.sum()) - np.repeat(begins, counts)  # [T]
        bits = _mix(
            np.repeat(documents, counts) + (places.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        )
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # [T], inside (0, 1)
    return torch.from_numpy(-np.log(-np.log(uniform)))


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014), on arrays of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _one_hot_of_largest(weights: Tensor, lengths: Tensor) -> Tensor:
    """1 at the first largest item of each sequence, 0 elsewhere: `[T]`."""
    padded = _padded(weights, lengths, -1.0)[0]  # [B, N]
    largest = torch.zeros_like(weights)
    if len(weights):
        there = lengths > 0
        largest[(offsets_of(lengths)[:-1] + padded.argmax(1))[there]] = 1.0
    return largest


@MECHANISMS.register("sparsemax")
class Sparsemax(Mechanism):
    """Sparsemax, the nearest point of the simplex: `a_i = max(e_i − t, 0)` with `Σ a_i = 1`.

    `t = (Σ_{j ≤ k} e_(j) − 1) / k`, `e_(1) ≥ e_(2) ≥ …`, `k` the largest with
    `1 + k e_(k) > Σ_{j ≤ k} e_(j)`. Many weights are exactly 0.

    Source: Martins and Astudillo 2016, algorithm 1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, scores: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
        """Weigh the items."""
        if len(scores) == 0:
            return scores
        padded, mask = _padded(scores, lengths, -torch.inf)  # [B, N]
        top = padded.detach().amax(1, keepdim=True)  # [B, 1]
        shifted = padded - top.masked_fill(top == -torch.inf, 0.0)  # [B, N], largest 0
        ordered = shifted.sort(1, descending=True).values  # [B, N]
        # Whatever lies 1 or more below the largest has weight 0.
        sums = ordered.clamp(min=-2.0).cumsum(1)  # [B, N]
        places = torch.arange(1, ordered.shape[1] + 1, device=scores.device)  # [N]
        support = (1 + places * ordered > sums).sum(1, keepdim=True).clamp(min=1)  # [B, 1]
        threshold = (sums.gather(1, support - 1) - 1) / support  # [B, 1]
        return (shifted - threshold).clamp(min=0.0)[mask]  # [T]


def _padded(values: Tensor, lengths: Tensor, fill: float) -> tuple[Tensor, Tensor]:
    """Give packed values as rows, `[B, N]`, and where they are, `[B, N]` bool."""
    columns = torch.arange(int(lengths.max()) if len(lengths) else 0, device=lengths.device)  # [N]
    mask = columns < lengths[:, None]  # [B, N]
    padded = values.new_full(mask.shape, fill).masked_scatter(mask, values)  # [B, N]
    return padded, mask
