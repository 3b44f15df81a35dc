"""What a backend is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from fastattnerase.exact_problems import (
    EnvelopeOutputs,
    EnvelopeProblem,
    GreedyOutputs,
    GreedyProblem,
    ShapleyOutputs,
    ShapleyProblem,
    SufficientOutputs,
    SufficientProblem,
)
from fastattnerase.problem import (
    Outputs,
    PermutedOutputs,
    PermutedProblem,
    PooledProblem,
    Problem,
    ReweighedProblem,
)


class Backend(Protocol):
    """One way to compute a sweep; adapters turn tensors into addresses, nothing else does."""

    name: str
    devices: tuple[str, ...]  # torch device types it takes

    def unavailable(self) -> list[str]:
        """Say why this backend cannot run in this process; empty when it can."""

    def unsupported(self, problem: Problem) -> list[str]:
        """Say why this backend cannot run this problem; empty when it can."""

    def sweep(self, problem: Problem, out: Outputs) -> None:
        """Fill every wanted result of `out`."""

    def pooled_prefixes(self, problem: PooledProblem, pooled: Tensor) -> None:
        """Fill `pooled` [M, H, D] with the renormalised averages over the survivors."""


class PermutingBackend(Backend, Protocol):
    """A backend that permutes weights too; not every one does."""

    def permute(self, problem: PermutedProblem, out: PermutedOutputs) -> None:
        """Fill all results of `out`."""


class ExactBackend(Backend, Protocol):
    """A backend with the answers that need no search; not every one has them."""

    def envelope(self, problem: EnvelopeProblem, out: EnvelopeOutputs) -> None:
        """Fill the bounds and curves."""

    def shapley(self, problem: ShapleyProblem, out: ShapleyOutputs) -> None:
        """Fill the Shapley values."""

    def sufficient(self, problem: SufficientProblem, out: SufficientOutputs) -> None:
        """Fill the sufficient sets."""

    def greedy(self, problem: GreedyProblem, out: GreedyOutputs) -> None:
        """Fill the greedy orders."""


class ReweighingBackend(Backend, Protocol):
    """A backend that computes the logits of other weights; the reference does it for the rest."""

    def reweigh(self, problem: ReweighedProblem, logits: Tensor) -> None:
        """Fill `logits` [R, B, C]."""
