"""What the erasure of a last layer needs to know of an architecture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

FAMILIES: dict[str, type[Family]] = {}

F = TypeVar("F", bound="type[Family]")


def family(model_type: str) -> Callable[[F], F]:
    """Register a family under the name that `config.json` has as `model_type`."""

    def register(cls: F) -> F:
        FAMILIES[model_type] = cls
        return cls

    return register


class Family(ABC):
    """A sequence classifier whose last layer is taken apart at the classifying position.

    The classifying position is the first one, `p`. With `x_p` what the last layer is given there,
    and `c` what its heads' attention gives:

        q = W_q x_p,  k_i = W_k x_i,  v_i = W_v x_i
        logits = classify(after(c, x_p))

    Args:
        model: a sequence classifier of this architecture.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    @abstractmethod
    def layer(self) -> nn.Module:
        """The last layer, whose first argument is `x`, `[B, L, hidden]`."""

    @property
    @abstractmethod
    def projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The layer's projections to queries, keys and values."""

    @property
    @abstractmethod
    def heads(self) -> int:
        """How many attention heads the layer has, H."""

    @abstractmethod
    def after(self, context: Tensor, x_p: Tensor) -> Tensor:
        """Run the rest of the layer at one position.

        Args:
            context: `[M, hidden]`, what attention gives, all heads side by side.
            x_p: `[M, hidden]`, what the layer was given there; the residual.

        Returns:
            `[M, hidden]`, the layer's output there.
        """

    @abstractmethod
    def classify(self, hidden: Tensor) -> Tensor:
        """Run the model's head on the classifying position's output: `[M, hidden]` to `[M, C]`."""

    @property
    def max_positions(self) -> int:
        """How many positions a text can have, special tokens included."""
        return int(self.model.config.max_position_embeddings)
