"""How kernels are launched: what they take, over which instances, in tiles of which shape.

Every kernel calls the same thing by the same name: a result by its name in the table of results, a
fact of a batch by its field of `Batch`, in capitals. A launch hands over what the kernel names as a
parameter; None stands for a result that is not wanted, and what would compute it is not compiled.

With few classes every kernel that works an instance at a time is launched twice over the same
instances: once with a one-warp tile for those that fit it, once with a four-warp tile for the
longer ones. Which of the two handles an instance depends on its own length alone, so that its sums
round the same whatever the batch around it: the promise of batch independence holds bit for bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
import triton

MAX_ROWS = 65535  # the second axis of a grid ends there


def batch_jit(function: Callable[..., None]) -> Any:
    """Make a kernel that is compiled once for all batches.

    The alignment and the size of what callers pass differ from batch to batch and must not choose
    the code, else an instance's sums would round as its batch does.
    """
    parameters = inspect.signature(function).parameters.values()
    varying = [p.name for p in parameters if p.annotation != "tl.constexpr"]
    return triton.jit(function, do_not_specialize=varying)


@dataclass(frozen=True)
class Tile:
    """One launch over the instances of `low < n <= high` items."""

    items: int  # rows of a tile
    classes: int  # columns: C rounded up to a power of two
    low: int
    high: int
    warps: int

    @property
    def registers(self) -> int:
        """Count what a thread may use: all there are, else the assembler spills for more blocks."""
        return min(255, 65536 // (32 * self.warps))


def tiles(num_classes: int, num_items: int) -> list[Tile]:
    """List the launches that together cover every instance of a batch of `num_items` items."""
    classes = max(2, triton.next_power_of_2(num_classes))
    long = max(1, min(128, 512 // classes))
    if classes > 8:
        return [Tile(long, classes, -1, 2**31 - 1, min(16, max(8, classes // 128)))]
    short = 128 // classes
    launches = [Tile(short, classes, -1, short, 1)]
    if num_items > short:
        launches.append(Tile(long, classes, short, 2**31 - 1, 4))
    return launches


def group_size(num_instances: int, rows: int) -> int:
    """Choose the instances a program walks through: several only where the grid is large anyway."""
    return max(1, min(8, num_instances * rows // 4096))


def launch(
    kernel: Any,
    num_instances: int,
    rows: int = 1,
    group: int | None = None,
    num_warps: int = 4,
    maxnreg: int | None = None,
    **arguments: Any,
) -> None:
    """Launch a kernel over all instances, and over `rows` rankings, orders or classes of each.

    Besides what it names of `arguments` the kernel may take the number of instances B, the
    instances a program walks through (`group`) and the row of the grid's first (`first_row`).
    """
    if num_instances == 0:
        return
    group = group or group_size(num_instances, rows)
    for first_row in range(0, rows, MAX_ROWS):
        grid = (triton.cdiv(num_instances, group), min(rows - first_row, MAX_ROWS))
        given = arguments | {"B": num_instances, "group": group, "first_row": first_row}
        taken = {name: given[name] for name in kernel.arg_names}
        kernel[grid](**taken, num_warps=num_warps, maxnreg=maxnreg)


@dataclass(frozen=True)
class Batch:
    """A batch of instances: what kernels take of it, under these names in capitals.

    Axes: `B` instances, `T` items, `C` classes. The fields after `bias` are written by
    `project.py` and `decide.py` and read by all that follows.
    """

    attention: torch.Tensor  # [T], scores or weights as given, any stride
    is_scores: bool
    keep: bool  # whether prefixes of a ranking are what is kept
    offsets: torch.Tensor  # [B + 1], never decreasing, within the batch
    bias: torch.Tensor  # [C] or [B, C]
    contributions: torch.Tensor  # [T, C], real: sum_d W_{c,d} v_{i,d}
    norms: torch.Tensor  # [T], float64: |v_i|
    weights: torch.Tensor  # [T], float64: normalised, NaN where an item's own is not finite
    log_probabilities: torch.Tensor  # [B, C], float64: of the original decision
    tolerance: torch.Tensor  # [B], float64: sums nearer to zero than that times the mass are ties
    positive: torch.Tensor  # [B], int64: items of weight above zero
    runner_up: torch.Tensor  # [B], int64: the class that comes next to the label
    bias_label: torch.Tensor  # [B], int64: the decision where no mass survives
    results: Mapping[str, torch.Tensor | None]  # by the names of the table, None: not wanted

    @property
    def num_instances(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_items(self) -> int:
        return len(self.contributions)

    @property
    def num_classes(self) -> int:
        return self.contributions.shape[1]

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Name everything as kernels do."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {**own.pop("results"), **own}  # `weights` is a result, or workspace
        return {name.upper(): value for name, value in tensors.items()} | {
            "T": self.num_items,
            "C": self.num_classes,
            "attention_stride": self.attention.stride(0),
            "bias_stride": self.bias.stride(0) if self.bias.ndim == 2 else 0,
        }

    def launch(self, kernel: Any, rows: int = 1, **options: Any) -> None:
        """Launch a kernel that works a row of numbers at a time."""
        launch(kernel, self.num_instances, rows, **(self.arguments | options))

    def launch_tiles(self, kernel: Any, rows: int = 1, **options: Any) -> None:
        """Launch a kernel that works in tiles of items and classes, once a tile shape."""
        for tile in tiles(self.num_classes, self.num_items):
            self.launch(
                kernel, rows, LOW=tile.low, HIGH=tile.high, BN=tile.items, BC=tile.classes,
                num_warps=tile.warps, maxnreg=tile.registers, **options,
            )  # fmt: skip
