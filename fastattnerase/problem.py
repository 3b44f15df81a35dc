"""The records that the public operators and the backends exchange, and the table of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import IntEnum
from functools import partial
from operator import itemgetter
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import torch
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


# Not frozen, which would cost a tiny call a microsecond; nobody writes to one.
@dataclass(eq=False)
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


@dataclass(frozen=True)
class ReweighedProblem:
    """Other weights of a batch's items, `R` rows of them, and the linear head that reads them."""

    values: Tensor  # [T, H, D]
    offsets: Tensor  # [B + 1]
    head_weight: Tensor  # [C, H, D]
    head_bias: Tensor  # [C] or [B, C]
    weights: Tensor  # [R, T, H], any of the four float types
    validate: bool = True

    def as_problem(self) -> Problem:
        """The sweep without rankings of the same items under the first row of weights."""
        return Problem(
            self.values,
            self.offsets,
            self.weights[0],
            False,
            self.head_weight,
            self.head_bias,
            self.offsets[:-1],  # ids, of which nothing depends where nothing is drawn
            (),
            (),
            validate=self.validate,
        )


# Permutation p of the weights is the order of number 2^33 + p of the ranking `random`, which nobody
# draws; the value of `kFirstPermutation` in `params.h`.
FIRST_PERMUTATION = 2**33


@dataclass(eq=False)
class PermutedProblem:
    """A batch with a linear head whose weights are permuted `P` times; fields as of `Problem`."""

    values: Tensor  # [T, H, D]
    offsets: Tensor  # [B + 1]
    attention: Tensor  # [T, H]
    is_scores: bool
    head_weight: Tensor  # [C, H, D]
    head_bias: Tensor  # [C] or [B, C]
    ids: Tensor  # [B]
    permutations: int  # P
    seed: int
    validate: bool = True

    def as_problem(self) -> Problem:
        """The sweep without rankings of the same items, as checks and instances are made of."""
        return Problem(
            self.values,
            self.offsets,
            self.attention,
            self.is_scores,
            self.head_weight,
            self.head_bias,
            self.ids,
            (),
            (),
            seed=self.seed,
            validate=self.validate,
        )


@dataclass
class PermutedOutputs:
    """What permuted weights do, allocated by the caller; "real" as of `Outputs`."""

    label: Tensor  # [B], int64: the original decision
    probabilities: Tensor  # [B, C], real
    status: Tensor  # [B], int64
    tvd: Tensor  # [P, B], real
    flips: Tensor  # [B], int64: permutations with another decision

    @classmethod
    def allocate(
        cls, values: Tensor, offsets: Tensor, num_classes: int, permutations: int
    ) -> PermutedOutputs:
        """Allocate what permuting the weights of values [T, H, D] and offsets [B + 1] gives."""
        B = offsets.shape[0] - 1
        real = torch.float64 if values.dtype == torch.float64 else torch.float32
        return cls(
            values.new_empty(B, dtype=torch.int64),
            values.new_empty((B, num_classes), dtype=real),
            values.new_empty(B, dtype=torch.int64),
            values.new_empty((permutations, B), dtype=real),
            values.new_empty(B, dtype=torch.int64),
        )


# "real" is float64 where the values are float64, else float32.
ResultType = Literal["integer", "real", "double"]


@dataclass
class Outputs:
    """The results of one sweep, allocated by the caller: the one table of what a sweep can give.

    A line is a result, with its axes and type, None where it is not wanted;
    `csrc/include/fastattnerase/outputs.h` has the same lines for native code. Axes as of `Problem`,
    and `P = T + B` curve points: instance `b` has `n_b + 1` of them, the first at `offsets[b] + b`.
    Allocation, the addresses that native code takes, what is written for an invalid instance and
    the contract tests follow from these lines.
    """

    label: Annotated[Tensor, "B", "integer"]
    probabilities: Annotated[Tensor, "B C", "real"]
    status: Annotated[Tensor, "B", "integer"]
    first_flip: Annotated[Tensor, "R B", "integer"]
    flip_label: Annotated[Tensor, "R B", "integer"]
    removed_mass: Annotated[Tensor, "R B", "double"]
    curve_js: Annotated[Tensor | None, "R P", "real"] = None
    curve_kl: Annotated[Tensor | None, "R P", "real"] = None
    curve_label_prob: Annotated[Tensor | None, "R P", "real"] = None
    curve_mass: Annotated[Tensor | None, "R P", "double"] = None
    curve_decision: Annotated[Tensor | None, "R P", "integer"] = None
    curve_logits: Annotated[Tensor | None, "R P C", "real"] = None
    order: Annotated[Tensor | None, "R T", "integer"] = None
    logits: Annotated[Tensor | None, "B C", "real"] = None  # of the original decision
    weights: Annotated[Tensor | None, "T H", "double"] = None  # normalised
    # -1 where the decision stays.
    single_flip_label: Annotated[Tensor | None, "T", "integer"] = None
    single_js: Annotated[Tensor | None, "T", "real"] = None
    single_kl: Annotated[Tensor | None, "T", "real"] = None
    single_drop: Annotated[Tensor | None, "T", "real"] = None
    minimal_size: Annotated[Tensor | None, "B", "integer"] = None
    minimal_flip_label: Annotated[Tensor | None, "B", "integer"] = None
    minimal_order: Annotated[Tensor | None, "T", "integer"] = None

    def wanted(self, prefix: str) -> dict[str, Tensor]:
        """Find the wanted results whose names begin with `prefix`, by the rest of the name."""
        found = {n.removeprefix(prefix): t for n, t in vars(self).items() if n.startswith(prefix)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}


class Result(NamedTuple):
    """A line of the table of results."""

    name: str
    axes: tuple[str, ...]
    dtype: ResultType
    always: bool  # filled by every sweep, not on request alone

    def place(self, instance: int, items: slice) -> tuple[int | slice, ...]:
        """Index what belongs to an instance whose items are the rows `items`."""
        points = slice(items.start + instance, items.stop + instance + 1)
        own: dict[str, int | slice] = {"B": instance, "T": items, "P": points}
        return tuple([own.get(axis, slice(None)) for axis in self.axes])


def _read_table() -> tuple[Result, ...]:
    """Read the lines of `Outputs`; a result without a default is one that every sweep fills."""
    annotations = get_type_hints(Outputs, include_extras=True)
    return tuple(
        Result(line.name, tuple(axes.split()), dtype, always=line.default is MISSING)
        for line in fields(Outputs)
        for axes, dtype in [annotations[line.name].__metadata__]
    )


RESULTS = _read_table()
# The bit of each result in `wants`; what every sweep fills has none.
BIT = {name: 1 << i for i, name in enumerate(line.name for line in RESULTS if not line.always)}
_AXES = "BCHPRT"
_BITS = [BIT.get(line.name, 0) for line in RESULTS]


# What picks a result's shape out of the sizes of `_AXES`, and its type, for each `wants` seen.
_Layout = list[tuple[Callable[[tuple[int, ...]], tuple[int, ...]], ResultType]]
_LAYOUTS: dict[int, _Layout] = {}


def _layout(wants: int) -> _Layout:
    """List the shapes and types of the wanted results."""
    lines = [line for line in RESULTS if line.always or wants & BIT[line.name]]
    return [(_sizes_of(line.axes), line.dtype) for line in lines]


def _sizes_of(axes: tuple[str, ...]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Make what picks the sizes of some axes, as a tuple even of one."""
    first, *others = map(_AXES.index, axes)
    return itemgetter(first, *others) if others else itemgetter(slice(first, first + 1))


def allocate(
    values: Tensor, offsets: Tensor, num_classes: int, num_rankings: int, wants: int
) -> list[Tensor]:
    """Allocate what a sweep over values [T, H, D] and offsets [B + 1] gives, in table order."""
    B, (T, H, _) = offsets.shape[0] - 1, values.shape
    sizes = (B, num_classes, H, T + B, num_rankings, T)
    # Tensors that have the type need not be told, and take sizes one by one quicker than a tuple.
    empty = values.new_empty
    if values.dtype not in (torch.float32, torch.float64):
        empty = partial(empty, dtype=torch.float32)
    makers: dict[ResultType, Callable[..., Tensor]] = {
        "integer": offsets.new_empty,
        "real": empty,
        "double": partial(values.new_empty, dtype=torch.float64),
    }
    layout = _LAYOUTS.get(wants)
    if layout is None:
        layout = _LAYOUTS[wants] = _layout(wants)
    return [makers[dtype](*shape(sizes)) for shape, dtype in layout]


def as_outputs(results: Sequence[Tensor], wants: int) -> Outputs:
    """Give the results of `allocate` their names."""
    if not wants:
        return Outputs(*results)
    given = iter(results)
    named: list[Any] = [next(given) if bit & wants or not bit else None for bit in _BITS]
    return Outputs(*named)
