"""What a ranking is, and the one rule by which keys become an order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from fastattnerase.problem import RankingKind

if TYPE_CHECKING:
    from fastattnerase.reference.instance import Instance


@dataclass(frozen=True)
class OrderContext:
    """What an order may depend on besides the instance."""

    seed: int  # of random orders
    arg: int  # the number of a random order


@dataclass(frozen=True)
class Ranking:
    """A ranking that comes with the engine.

    `order` is its definition: an instance in float64 and a context to positions [n], most
    important first. Backends compute the same from `kind`.
    """

    name: str
    kind: RankingKind
    doc: str
    order: Callable[[Instance, OrderContext], Tensor]


def descending(keys: Tensor) -> Tensor:
    """Positions by descending key, NaN first, ties by lower position: [n] to [n]."""
    by_key = keys.argsort(descending=True, stable=True)
    return by_key[keys.isnan()[by_key].long().argsort(descending=True, stable=True)]


def by_key(key: Callable[[Instance], Tensor]) -> Callable[[Instance, OrderContext], Tensor]:
    """Make an order of a key function; with something not finite the order is by position."""

    def order(instance: Instance, context: OrderContext) -> Tensor:
        return descending(key(instance)) if instance.finite else instance.positions

    return order
