"""What the public operators return."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from fastattnerase.extras import needs

if TYPE_CHECKING:
    import pandas as pd

_Result = TypeVar("_Result", bound="_Movable")


class _Movable:
    """Results whose tensors move together."""

    def to(self: _Result, device: torch.device | str) -> _Result:
        """Copy all tensors to a device."""
        moved = {f.name: _move(getattr(self, f.name), device) for f in fields(self)}  # type: ignore[arg-type]
        return type(self)(**moved)


def _move(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, (Tensor, _Movable)):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _move(item, device) for name, item in value.items()}
    return value


@dataclass(eq=False)
class PrefixErasure(_Movable):
    """What erasing every prefix of every ranking does; `B` instances, `R` rankings, `T` items.

    Attributes:
        rankings: Names of the R rows.
        label: [B], int64: the original decision, -1 where something is not finite.
        probabilities: [B, C]: of the original decision.
        status: [B], int64: bits of `Status`.
        first_flip: [R, B], int64: the smallest prefix that flips, -1 for never.
        flip_label: [R, B], int64: the decision there, -1 for never.
        removed_mass: [R, B], float64: attention mass erased there, NaN for never.
        curves: From a curve's name to [R, T + B]; the points of instance b are
            `curve_offsets[b]` to `curve_offsets[b + 1]`.
        offsets: [B + 1], int64: where each instance's items begin.
        order: [R, T], int64: positions, most important first; None where not asked for.
        logits: [B, C]: of the original decision, NaN where it is not finite; None where not asked
            for.
        weights: [T], or [T, H] of several heads, float64: attention that sums to one over an
            instance, NaN where a score or weight is not finite; None where not asked for.
    """

    rankings: tuple[str, ...]
    label: Tensor
    probabilities: Tensor
    status: Tensor
    first_flip: Tensor
    flip_label: Tensor
    removed_mass: Tensor
    curves: dict[str, Tensor]
    offsets: Tensor
    order: Tensor | None = None
    logits: Tensor | None = None
    weights: Tensor | None = None

    @property
    def curve_offsets(self) -> Tensor:
        """[B + 1], int64: where each instance's `n_b + 1` curve points begin."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    @property
    def fraction(self) -> Tensor:
        """[R, B], float64: first flip / n, NaN for never."""
        fraction = self.first_flip.double() / self.offsets.diff()  # [R, B]
        return fraction.masked_fill(self.first_flip < 0, torch.nan)

    def to_pandas(self) -> pd.DataFrame:
        """Make a table with a row per instance and ranking; curves stay out.

        Columns: instance, ranking, n, label, status, first_flip, fraction, flip_label,
        removed_mass.
        """
        with needs("text"):
            import pandas as pd

        R, B = len(self.rankings), len(self.label)
        per_instance = {
            "instance": torch.arange(B),
            "n": self.offsets.diff(),
            "label": self.label,
            "status": self.status,
        }
        per_ranking = {
            "first_flip": self.first_flip,
            "fraction": self.fraction,
            "flip_label": self.flip_label,
            "removed_mass": self.removed_mass,
        }
        columns: dict[str, Any] = {k: v.cpu().repeat(R).numpy() for k, v in per_instance.items()}
        columns["ranking"] = [name for name in self.rankings for _ in range(B)]
        columns |= {name: tensor.cpu().flatten().numpy() for name, tensor in per_ranking.items()}
        order = ["instance", "ranking", "n", "label", "status", *per_ranking]
        table: pd.DataFrame = pd.DataFrame(columns)[order]
        return table


@dataclass(eq=False)
class ItemErasure(_Movable):
    """What erasing each item alone does; `T` items of `B` instances.

    Attributes:
        flip_label: [T], int64: the decision without the item, -1 where it stays.
        js: [T]: JS divergence of the class distributions with and without the item.
        label_prob_drop: [T]: original probability of the label minus the one without the item.
        label: [B], int64: the original decision.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
        kl: [T]: KL(without the item ‖ original), natural logarithm; None where not asked for.
    """

    flip_label: Tensor
    js: Tensor
    label_prob_drop: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor
    kl: Tensor | None = None

    @property
    def flip(self) -> Tensor:
        """[T], bool: whether the decision differs without the item."""
        return self.flip_label >= 0

    def to_pandas(self) -> pd.DataFrame:
        """Make a table with a row per item.

        Columns: instance, position, flip, flip_label, js, label_prob_drop, and kl if asked for.
        """
        with needs("text"):
            import pandas as pd

        offsets = self.offsets.cpu()
        instance = torch.repeat_interleave(offsets.diff())  # [T]
        columns = {
            "instance": instance,
            "position": torch.arange(len(instance)) - offsets[instance],
            "flip": self.flip.cpu(),
            "flip_label": self.flip_label.cpu(),
            "js": self.js.cpu(),
            "label_prob_drop": self.label_prob_drop.cpu(),
        }
        if self.kl is not None:
            columns["kl"] = self.kl.cpu()
        table: pd.DataFrame = pd.DataFrame({k: v.numpy() for k, v in columns.items()})
        return table


@dataclass(eq=False)
class MinimalFlipSet(_Movable):
    """The smallest sets of items whose erasure changes the decision; `B` instances, `T` items.

    Attributes:
        size: [B], int64: items of the set, -1 where no set flips.
        flip_label: [B], int64: the decision after erasing the set, -1 where no set flips.
        order: [T], int64: positions; the first `size` of an instance are the set (ranking
            "minimal").
        label: [B], int64: the original decision.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
    """

    size: Tensor
    flip_label: Tensor
    order: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor

    def to_pandas(self) -> pd.DataFrame:
        """Make a table with a row per instance: instance, n, label, status, size, flip_label."""
        with needs("text"):
            import pandas as pd

        columns = {
            "instance": torch.arange(len(self.size)),
            "n": self.offsets.diff(),
            "label": self.label,
            "status": self.status,
            "size": self.size,
            "flip_label": self.flip_label,
        }
        table: pd.DataFrame = pd.DataFrame({k: v.cpu().numpy() for k, v in columns.items()})
        return table


@dataclass(eq=False)
class Sweep(_Movable):
    """All results of one read of the values; None where a part was not asked for."""

    prefixes: PrefixErasure
    single: ItemErasure | None
    minimal: MinimalFlipSet | None

    def to_pandas(self) -> pd.DataFrame:
        """Make the table of `prefixes`, with minimal_size and minimal_flip_label if asked for."""
        table = self.prefixes.to_pandas()
        if self.minimal is not None:
            R = len(self.prefixes.rankings)
            table["minimal_size"] = self.minimal.size.cpu().repeat(R).numpy()
            table["minimal_flip_label"] = self.minimal.flip_label.cpu().repeat(R).numpy()
        return table
