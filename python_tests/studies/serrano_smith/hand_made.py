"""Two-class instances small enough to work out on paper, and sources of them.

Values are one number an item and the logits are [0, c] for the weighted mean c, so the decision is
1 exactly where the mean of the surviving items is positive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

import fastattnerase as fae
from fastattnerase.sources import Chunk
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.studies.serrano_smith.result import Result

NAN = float("nan")

# (values, weights): what happens is said beside each.
INSTANCES = [
    ([2.0, -1.0, -0.5], [0.5, 0.3, 0.2]),  # 1; without item 0: 0
    ([-1.0, 3.0], [0.8, 0.2]),  # 0; without item 0: 1
    ([-0.5, 2.0], [0.6, 0.4]),  # 1; without item 1: 0, without item 0 still 1
    ([1.0, 1.0], [0.5, 0.5]),  # 1; only the empty sum gives 0
    ([-1.0, -1.0], [0.5, 0.5]),  # 0; nothing changes it
    ([1.0], [1.0]),  # a single item
    ([], []),  # no item
    ([NAN, 1.0], [0.5, 0.5]),  # not a number
]
GOLD = [1, 1, 1, 0, 0, 1, 0, -1]
MODEL = [1, 0, 1, 1, 0, 1, 0, 0]  # differs from the engine at the last, which is not a number


def batch_of(rows: list[int]) -> fae.AttentionBatch:
    """The instances of these numbers as a batch; ids are the numbers."""
    picked = [INSTANCES[row] for row in rows]
    lengths = torch.tensor([len(values) for values, _ in picked])
    return fae.AttentionBatch(
        torch.tensor([[v] for values, _ in picked for v in values]).reshape(-1, 1),
        torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        weights=torch.tensor([w for _, weights in picked for w in weights]),
        head_weight=torch.tensor([[0.0], [1.0]]),
        head_bias=torch.zeros(2),
        ids=torch.tensor(rows),
    )


def with_skill(result: Result, skill: float) -> Result:
    """The same result with another skill of attention."""
    attention = result.multi["attention"]
    overall = replace(attention.counted.skill, overall=Estimate(skill, skill, skill))
    attention = replace(attention, counted=replace(attention.counted, skill=overall))
    return replace(result, multi=result.multi | {"attention": attention})


class HandMade:
    """The instances above as a source, in batches of a given size, several times over."""

    def __init__(
        self, size: int = 3, rows: list[int] | None = None, stop_at: int | None = None
    ) -> None:
        self.classes = ["bad", "good"]
        self.rows = list(range(len(INSTANCES))) if rows is None else rows
        self.size = size
        self.stop_at = stop_at  # where somebody presses Ctrl-C
        self.started: list[int] = []

    def __len__(self) -> int:
        return len(self.rows)

    def describe(self) -> dict[str, Any]:
        return {"what": "hand-made", "rows": self.rows}

    def chunks(self, start: int) -> Iterator[Chunk]:
        self.started.append(start)
        for begin in range(start, len(self.rows), self.size):
            if self.stop_at is not None and begin >= self.stop_at:
                raise KeyboardInterrupt
            yield self._chunk(self.rows[begin : begin + self.size])

    def select(self, rows: list[int]) -> Iterator[Chunk]:
        for row in rows:
            yield self._chunk([self.rows[row]])

    def _chunk(self, rows: list[int]) -> Chunk:
        return Chunk(
            batch_of(rows),
            gold=torch.tensor([GOLD[row] for row in rows]),
            model_label=torch.tensor([MODEL[row] for row in rows]),
            texts=[[f"<w{i}>" for i in range(len(INSTANCES[row][0]))] for row in rows],
        )
