"""How a transformer is fine-tuned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fastattnerase.models.errors import ModelError


@dataclass(frozen=True)
class FineTuneConfig:
    """Options of a fine-tuning; JSON-able.

    AdamW whose learning rate rises from 0 in the first steps and then falls to 0, both in a
    straight line; the epoch of the best dev accuracy, the first such, is kept.

    Attributes:
        epochs: How often the training documents are gone through.
        learning_rate: The largest learning rate.
        batch_size: Documents of a batch.
        warm_up: Share of the steps in which the learning rate of a transformer rises.
        weight_decay: AdamW's, of a transformer's matrices; biases and norms have none.
        clip_norm: Norm that a transformer's gradient is cut to.
        max_pieces: Pieces of a text, special tokens included; longer texts are cut and counted.
        seed: Of the new classifier, the batches and dropout.

    Raises:
        ModelError: a number out of range.

    Example:
        >>> rates = [FineTuneConfig(learning_rate=1.0).rate(step, 20) for step in (0, 1, 11)]
        >>> rates
        [0.5, 1.0, 0.5]
    """

    epochs: int = 3
    learning_rate: float = 5e-5
    batch_size: int = 32
    warm_up: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    max_pieces: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("max_pieces", 3)):
            if getattr(self, name) < least:
                raise ModelError(f"{name}: given {getattr(self, name)}, needed at least {least}")
        if not 0 < self.learning_rate < math.inf:
            raise ModelError(f"learning_rate: given {self.learning_rate}, needed above 0")
        if not 0 <= self.warm_up < 1:
            raise ModelError(f"warm_up: given {self.warm_up}, needed from 0 to below 1")
        if not 0 <= self.weight_decay < math.inf:
            raise ModelError(f"weight_decay: given {self.weight_decay}, needed 0 or more")
        if not self.clip_norm > 0:
            raise ModelError(f"clip_norm: given {self.clip_norm}, needed above 0")
        if not 0 <= self.seed < 2**63:
            raise ModelError(f"seed: given {self.seed}, needed 0 to 2**63 - 1")

    def rate(self, step: int, steps: int) -> float:
        """Give the learning rate of a step.

        Args:
            step: its number, from 0, over all epochs.
            steps: of all epochs.
        """
        rising = math.ceil(self.warm_up * steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (steps - step) / (steps - rising)

    def to_dict(self) -> dict[str, Any]:
        """Give the options as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FineTuneConfig:
        """Make options from `to_dict`'s result.

        Raises:
            ModelError: a name that is not known.
        """
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ModelError(f"fine-tuning: given {unknown[0]!r}, needed an option of it")
        return cls(**values)
