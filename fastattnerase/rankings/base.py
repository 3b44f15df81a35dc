"""What a ranking is, and the one rule by which keys become an order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fastattnerase.problem import RankingKind

if TYPE_CHECKING:
    from fastattnerase.reference.instance import Instance
else:  # imported where they are used; hints that are read at run time say Any
    Instance = Any


class RankingError(ValueError, TypeError):
    """What a ranking's function gave back is neither scores nor an order of the items."""


@dataclass(frozen=True)
class OrderContext:
    """What an order may depend on besides the instance."""

    seed: int  # of random orders
    arg: int  # the number of a random order


@dataclass(frozen=True)
class Ranking:
    """A ranking known by name.

    `order` is its definition: from an instance in float64 and a context to positions [n], int64,
    most important first. Backends compute the same from `kind`. Where that is None they take what
    `order` says as given; it may then give ranking scores [n] of a float type as well.
    """

    name: str
    kind: RankingKind | None
    doc: str
    order: Callable[[Instance, OrderContext], Tensor]


@dataclass(frozen=True)
class OfInstance:
    """Makes a definition of a function of the instance alone; equal where the functions are."""

    function: Callable[[Instance], Tensor]

    def __call__(self, instance: Instance, context: OrderContext) -> Tensor:
        """Call the function on the instance."""
        return self.function(instance)


def descending(keys: Tensor) -> Tensor:
    """Sort positions by descending key, NaN first, ties by lower position: [n] to [n]."""
    by_key = keys.argsort(descending=True, stable=True)  # [n]
    return by_key[keys.isnan()[by_key].long().argsort(descending=True, stable=True)]


@dataclass(frozen=True)
class ByKey:
    """Makes an order of a key function; with something not finite the order is by position.

    Attributes:
        key: from an instance to ranking scores [n], the most important largest.
    """

    key: Callable[[Instance], Tensor]

    def __call__(self, instance: Instance, context: OrderContext) -> Tensor:
        """Sort by the keys."""
        return descending(self.key(instance)) if instance.finite else instance.positions


def by_key(key: Callable[[Instance], Tensor]) -> ByKey:
    """Make an order of a key function; with something not finite the order is by position."""
    return ByKey(key)
