"""What the public operators hand to a backend, and what a backend is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from torch import Tensor


class RankingKind(IntEnum):
    """How the items of an instance are ordered; the values of `RankingKind` in `params.h`."""

    ATTENTION = 0
    GRADIENT = 1
    PRODUCT = 2
    RENORMALIZED_GRADIENT = 3
    RANDOM = 4
    LEAVE_ONE_OUT = 5
    LEAVE_ONE_OUT_DROP = 6
    GREEDY = 7
    MINIMAL = 8
    GIVEN_ORDER = 9
    GIVEN_KEYS = 10


@dataclass(frozen=True)
class Problem:
    """The inputs of one sweep, checked and in the form every backend takes.

    Axes: `B` instances, `T` items, `H` heads, `D` features a head, `C` classes, `R` rankings.
    All tensors are on one device.
    """

    values: Tensor  # [T, H, D], float32/float64/bfloat16/float16, unit last stride
    offsets: Tensor  # [B + 1], int64, contiguous
    attention: Tensor  # [T, H], scores or weights, any of the four float types
    is_scores: bool
    head_weight: Tensor  # [C, H, D], contiguous; float64 where values are, else float32
    head_bias: Tensor  # [C] or [B, C], float32 or float64, unit last stride
    ids: Tensor  # [B], int64, contiguous
    rankings: tuple[RankingKind, ...]  # R
    ranking_args: tuple[int, ...]  # R: order number of a random ranking, row of a given one
    orders: tuple[Tensor, ...] = ()  # each [T], int64, contiguous: positions within the instance
    # Ranking scores, each [T], float32 or float64, contiguous. A NaN in them raises with `validate`
    # and makes the instance INVALID without, as an order that is no permutation does.
    keys: tuple[Tensor, ...] = ()
    seed: int = 0
    keep: bool = False
    validate: bool = True


@dataclass
class Outputs:
    """The results of one sweep, allocated by the caller; None where a result is not wanted.

    "real" is float64 where the values are float64, else float32. A curve has `n_b + 1` points for
    instance `b`, the first at `offsets[b] + b`.
    """

    label: Tensor  # [B], int64
    probabilities: Tensor  # [B, C], real
    status: Tensor  # [B], int64
    first_flip: Tensor  # [R, B], int64
    flip_label: Tensor  # [R, B], int64
    removed_mass: Tensor  # [R, B], float64
    curve_js: Tensor | None = None  # [R, T + B], real
    curve_kl: Tensor | None = None  # [R, T + B], real
    curve_label_prob: Tensor | None = None  # [R, T + B], real
    curve_mass: Tensor | None = None  # [R, T + B], float64
    curve_decision: Tensor | None = None  # [R, T + B], int64
    curve_logits: Tensor | None = None  # [R, T + B, C], real
    order: Tensor | None = None  # [R, T], int64
    single_flip_label: Tensor | None = None  # [T], int64, -1 where the decision stays
    single_js: Tensor | None = None  # [T], real
    single_drop: Tensor | None = None  # [T], real
    minimal_size: Tensor | None = None  # [B], int64
    minimal_flip_label: Tensor | None = None  # [B], int64
    minimal_order: Tensor | None = None  # [T], int64


@dataclass(frozen=True)
class PooledProblem:
    """Pooled vectors of the points `[begin, begin + M)` of one ranking's curve layout."""

    values: Tensor  # [T, H, D]
    offsets: Tensor  # [B + 1]
    attention: Tensor  # [T, H]
    is_scores: bool
    order: Tensor  # [T], int64
    keep: bool
    begin: int


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
