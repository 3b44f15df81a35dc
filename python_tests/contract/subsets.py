"""Every subset of small instances, in float64 and from the definitions alone: the oracle of answers
that are exact without search."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch

import fastattnerase as fae
from contract.oracle import NEAR_TIE, NON_FINITE

KINDS = ("random", "tied", "degenerate", "biased")
USUAL, LONGEST = 7, 12  # items of seven instances in eight at most, and of the others
_EXHAUSTIVE = os.environ.get("FASTATTNERASE_TEST_EXHAUSTIVE") == "1"  # make test-exhaustive


def share_of(count: int) -> int:
    """How many of `count` instances a long test judges: a tenth, or all where that is asked for."""
    return count if _EXHAUSTIVE else -(-count // 10)


@cache
def every_subset(n: int) -> np.ndarray:
    """Which of n items each subset keeps, the last all of them: [2^n, n], bool."""
    return (np.arange(2**n)[:, None] >> np.arange(n)) % 2 == 1


@dataclass(frozen=True)
class Small:
    """An instance whose contributions are given: values are contributions, the head is I."""

    weights: np.ndarray  # [n], their sum is 1 or 0
    contributions: np.ndarray  # [n, C]
    bias: np.ndarray  # [C]

    @property
    def n(self) -> int:
        return len(self.weights)

    @property
    def kept(self) -> np.ndarray:  # [2^n, n] bool, the last all items
        return every_subset(self.n)

    @cached_property
    def mass(self) -> np.ndarray:  # [2^n]
        return self.kept @ self.weights

    @cached_property
    def logits(self) -> np.ndarray:  # [2^n, C], the bias where no mass survives
        sums = self.kept @ (self.weights[:, None] * self.contributions)
        alive = self.kept.astype(int) @ (self.weights > 0) > 0
        with np.errstate(all="ignore"):
            return np.where(alive[:, None], sums / self.mass[:, None], 0) + self.bias

    @cached_property
    def sizes(self) -> np.ndarray:  # [2^n], items of positive weight that are kept
        return self.kept.astype(int) @ (self.weights > 0).astype(int)

    @property
    def label(self) -> int:
        return int(self.logits[-1].argmax())


def draw(kind: str, count: int, classes: int, seed: int) -> list[Small]:
    """Draw instances of a kind, 0 to 12 items each: one in eight has more than seven."""
    rng = np.random.default_rng([seed, KINDS.index(kind), classes])
    found = []
    for _ in range(count):
        bounds = (1, USUAL) if rng.integers(8) else (USUAL + 1, LONGEST)
        n = int(rng.integers(bounds[0], bounds[1] + 1))
        weights = rng.random(n) ** 3
        contributions = rng.normal(size=(n, classes))
        bias = rng.normal(size=classes) / 4
        if kind == "tied":
            weights = rng.integers(1, 4, n).astype(float)
            contributions = rng.integers(-2, 3, (n, classes)).astype(float)
            bias = rng.integers(-1, 2, classes).astype(float)
        elif kind == "degenerate":
            n = min(n, int(rng.integers(0, 3))) if rng.random() < 0.3 else n
            weights, contributions = weights[:n], contributions[:n]
            choice = rng.integers(5)
            if choice == 0:
                weights = np.zeros(n)
            elif choice == 1:
                weights = np.where(rng.random(n) < 0.5, 0, weights)
            elif choice == 2:
                weights = np.where(np.arange(n) == n // 2, 1, 1e-9 * weights)
            elif choice == 3:
                contributions = contributions[:1].repeat(n, 0) if n else contributions
            else:
                weights = 10.0 ** rng.uniform(-200, 0, n)
        elif kind == "biased":
            bias = 2 * rng.normal(size=classes)
        total = weights.sum()
        found.append(Small(weights / total if total > 0 else weights, contributions, bias))
    return found


def batch_of(instances: list[Small], device: str = "cpu") -> fae.AttentionBatch:
    """The batch of the instances, in float64."""
    C = len(instances[0].bias)
    lengths = torch.tensor([0, *(one.n for one in instances)])
    return fae.AttentionBatch(
        torch.from_numpy(np.concatenate([one.contributions for one in instances])).to(device),
        lengths.cumsum(0).to(device),
        weights=torch.from_numpy(np.concatenate([one.weights for one in instances])).to(device),
        head_weight=torch.eye(C, dtype=torch.float64, device=device),
        head_bias=torch.from_numpy(np.stack([one.bias for one in instances])).to(device),
    )


def decided(status: torch.Tensor, b: int) -> bool:
    """Whether the results of instance `b` are in no doubt."""
    return not int(status[b]) & (NEAR_TIE | NON_FINITE)
