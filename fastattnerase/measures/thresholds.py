"""Which prefixes of a ranking are read: ERASER's fractions, ferret's, or every one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Ints

Preset = Literal["eraser", "ferret", "every"]
_SLACK = 1e-9  # of a product q · n, whose rounding shall not add a word


@dataclass(frozen=True)
class Thresholds:
    """Which prefixes `k` of an instance of `n` words are read, for an average over them.

    Attributes:
        fractions: of the words, `q` in (0, 1]; None: every prefix, `k = 1 … n`.
        rounding: whether `k` is the smallest integer not below `q · n` ("ceil"), or the largest not
            above ("floor").
        distinct: whether thresholds with no word, or with the words of the one before, are left
            out.
        only_positive: whether only words of a score above 0 are taken: `k` is at most their number.
        include_zero: whether `k = 0`, whose drop is 0, counts as one threshold more.
    """

    fractions: tuple[float, ...] | None = (0.01, 0.05, 0.1, 0.2, 0.5)
    rounding: Literal["ceil", "floor"] = "ceil"
    distinct: bool = False
    only_positive: bool = False
    include_zero: bool = False

    def __post_init__(self) -> None:
        if self.fractions is not None and not all(0 < q <= 1 for q in self.fractions):
            raise ValueError(f"fractions: given {self.fractions}, needed some in (0, 1]")
        if self.fractions == ():
            raise ValueError("fractions: given none, needed at least one")
        if self.rounding not in ("ceil", "floor"):
            raise ValueError(f"rounding: given {self.rounding!r}, needed ceil or floor")

    def counts(self, lengths: ArrayLike, positive: ArrayLike | None = None) -> tuple[Ints, Ints]:
        """List the prefixes of each instance that are read, instance after instance.

        Args:
            lengths: `[N]`, words of each instance.
            positive: `[N]`, how many of them have a score above 0; needed with `only_positive`.

        Returns:
            `[M]`, the instances, and `[M]`, how many words. None of an instance without words.

        Raises:
            ValueError: `only_positive` without `positive`.

        Example:
            >>> from fastattnerase.measures.thresholds import PRESETS
            >>> PRESETS["eraser"].counts([20])[1].tolist()
            [1, 1, 2, 4, 10]
            >>> PRESETS["ferret"].counts([5], positive=[3])[1].tolist()
            [1, 2, 3]
        """
        n = np.asarray(lengths, dtype=np.int64)  # [N]
        if self.fractions is None:
            instance = np.repeat(np.arange(len(n)), n)  # [M]
            k = np.arange(len(instance)) - np.repeat(np.cumsum(n) - n, n) + 1
        else:
            exact = n[:, None] * np.array(self.fractions)  # [N, Q]
            down = self.rounding == "floor"
            table = np.floor(exact + _SLACK) if down else np.ceil(exact - _SLACK)
            instance = np.repeat(np.arange(len(n)), len(self.fractions))
            k = table.astype(np.int64).ravel()
        if self.only_positive:
            if positive is None:
                raise ValueError(
                    "positive: given none, needed how many words of each instance have a score "
                    "above 0, as only_positive asks"
                )
            k = np.minimum(k, np.asarray(positive, dtype=np.int64)[instance])
        keep = n[instance] > 0
        if self.distinct:
            before = np.zeros_like(k)
            before[1:] = np.where(instance[1:] == instance[:-1], k[:-1], 0)
            keep &= (k > 0) & (k != before)
        return instance[keep], k[keep]


PRESETS: dict[Preset, Thresholds] = {
    "eraser": Thresholds(),
    "ferret": Thresholds(
        tuple(q / 10 for q in range(1, 11)), rounding="floor", distinct=True, only_positive=True
    ),
    "every": Thresholds(None),
}


def thresholds(preset: Preset | Thresholds) -> Thresholds:
    """Find a preset by its name, or give what was given.

    Raises:
        ValueError: the name is not known.
    """
    if isinstance(preset, Thresholds):
        return preset
    if preset not in PRESETS:
        known = ", ".join(PRESETS)
        raise ValueError(f"preset: given {preset!r}, needed one of {known}, or Thresholds")
    return PRESETS[preset]
