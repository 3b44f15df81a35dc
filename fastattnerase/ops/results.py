"""What the public operators return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, Literal

import torch
from torch import Tensor

from fastattnerase.choices import Direction
from fastattnerase.extras import needs
from fastattnerase.plurals import counted
from fastattnerase.status import status_names

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Self, TypeVar

    from fastattnerase.measures.of_sweep import SweepMeasures
    from fastattnerase.measures.thresholds import Preset
    from fastattnerase.ops.envelope import Envelope
    from fastattnerase.ops.groups import Groups

    # A sweep's parts by the options of its call; `Sweep` alone is one with any of them left out.
    SingleT = TypeVar(
        "SingleT", bound="ItemErasure | None", default="ItemErasure | None", covariant=True
    )
    MinimalT = TypeVar(
        "MinimalT", bound="MinimalFlipSet | None", default="MinimalFlipSet | None", covariant=True
    )
else:
    from typing import TypeVar

    # pandas and measures are imported when they are used; hints that are read at run time say Any.
    DataFrame = Self = SweepMeasures = Preset = Envelope = Groups = Any
    SingleT = TypeVar("SingleT", covariant=True)
    MinimalT = TypeVar("MinimalT", covariant=True)


class _Record:
    """Results whose tensors move together; shown by counts and shapes."""

    def to(self, device: torch.device | str) -> Self:
        """Copy all tensors to a device.

        Args:
            device: a `torch.device` or its name, such as "cpu" or "cuda:0".
        """
        moved = {f.name: _move(getattr(self, f.name), device) for f in fields(self)}  # type: ignore[arg-type]
        return type(self)(**moved)

    def _shown(self, **counts: int) -> str:
        """Show counts of what there is, by what one of it is called, then each tensor's shape."""
        named = (_named(f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        shapes = [f"{name} {list(tensor.shape)}" for part in named for name, tensor in part]
        said = [counted(number, noun) for noun, number in counts.items()]
        return f"{type(self).__name__}({', '.join(said)}; {', '.join(shapes)})"


def _move(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, (Tensor, _Record)):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _move(item, device) for name, item in value.items()}
    return value


def _named(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """List the tensors of a field, with their names."""
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", tensor) for key, tensor in value.items())
    elif isinstance(value, Tensor) and not name.startswith("_"):
        yield name, value


def _table(columns: dict[str, Any]) -> DataFrame:
    """Make a table of tensors and lists, with the names of flags behind `status`."""
    with needs("text"):
        import pandas as pd

    made: dict[str, Any] = {}
    for name, column in columns.items():
        made[name] = column.cpu().numpy() if isinstance(column, Tensor) else column
        if name == "status":
            made["status_names"] = status_names(column)
    return pd.DataFrame(made)


@dataclass(eq=False, repr=False)
class PrefixErasure(_Record):
    """What erasing every prefix of every ranking does.

    Axes: `B` instances, `R` rankings, `T` items in all, `C` classes; reals are float64 where the
    values are, else float32. The curves have `n_b + 1` points an instance of `n_b` items, for
    `k = 0 … n_b` items erased (kept, with direction "keep"): those of instance `b` are
    `curve_offsets[b]` to `curve_offsets[b + 1]`.

    Attributes:
        rankings: Names of the R rows; "random" stands for `random_orders` rows, random[0], ….
        label: [B], int64: the original decision, -1 where something is not finite.
        probabilities: [B, C], real: of the original decision, NaN where it is not finite.
        status: [B], int64: bits of `Status`.
        first_flip: [R, B], int64: the smallest prefix `k >= 1` whose erasure changes the decision,
            -1 for never. With direction "keep" the smallest whose items alone give the label.
        flip_label: [R, B], int64: the decision there, -1 for never.
        removed_mass: [R, B], float64: attention mass erased there, of the original weights (with
            direction "keep" of the items not kept), NaN for never.
        curves: From the name of each curve asked for to its tensor: "js" [R, T + B], real, the
            Jensen-Shannon divergence of the class distributions at k and originally, natural
            logarithm, 0 to ln 2; "kl" [R, T + B], real, KL(at k ‖ original) =
            Σ_c p_c(k) ln(p_c(k) / p_c), natural logarithm; "label_prob" [R, T + B], real, the
            original label's probability; "mass" [R, T + B], float64, the share of the original
            attention that the items which are left hold: 1 where none is erased, 0 where all are;
            "decision" [R, T + B], int64; "logits" [R, T + B, C], real.
        offsets: [B + 1], int64: where each instance's items begin.
        order: [R, T], int64: positions within the instance, most important first; they count kept
            items, see `rank`. None where not asked for (`orders=True`).
        logits: [B, C], real: of the original decision, NaN where it is not finite; None where not
            asked for (`logits=True`).
        weights: [T], or [T, H] of several heads, float64: attention that sums to one over an
            instance, NaN where a score or weight is not finite; None where not asked for
            (`weights=True`).
        direction: "erase" or "keep", what `first_flip`, `flip_label`, `removed_mass` and `curves`
            are of.
        kept_curves: with direction "both", which erases, as `curves` of the first k items kept;
            else empty.
        groups: Which items each group holds, a `Groups`, where groups were erased (`groups=…`);
            else None. Offsets, orders, `n` and prefixes then count groups.
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
    direction: Direction = "erase"
    kept_curves: dict[str, Tensor] = field(default_factory=dict)
    groups: Groups | None = None

    @property
    def curve_offsets(self) -> Tensor:
        """[B + 1], int64: where each instance's `n_b + 1` curve points begin."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    @property
    def fraction(self) -> Tensor:
        """[R, B], float64: first flip / n, NaN for never."""
        fraction = self.first_flip.double() / self.offsets.diff()  # [R, B]
        return fraction.masked_fill(self.first_flip < 0, torch.nan)

    def to_pandas(self) -> DataFrame:
        """Make a table with a row per instance and ranking; curves stay out.

        Columns: instance (the row of the batch), ranking, n, label, status, status_names (such as
        "EMPTY|UNDERFLOW", empty for none), first_flip, fraction, flip_label, removed_mass.
        """
        R, B = len(self.rankings), len(self.label)
        return _table(
            {
                "instance": torch.arange(B).repeat(R),
                "ranking": [name for name in self.rankings for _ in range(B)],
                "n": self.offsets.diff().repeat(R),
                "label": self.label.repeat(R),
                "status": self.status.repeat(R),
                "first_flip": self.first_flip.flatten(),
                "fraction": self.fraction.flatten(),
                "flip_label": self.flip_label.flatten(),
                "removed_mass": self.removed_mass.flatten(),
            }
        )

    def measures(
        self,
        *,
        of: Literal["probability", "logit"] = "probability",
        fraction: float = 0.2,
        grids: Sequence[Preset] = ("eraser", "ferret", "every"),
        envelope: Envelope | None = None,
    ) -> SweepMeasures:
        """Measure the rankings by the curves that are here, in float64.

        Of curves as items are erased: `comprehensiveness`, `aopc_comprehensiveness`,
        `deletion_area`, and `aopc_over_random` (AOPC-R) where "random" is among the rankings; as
        they are kept: `sufficiency`, `aopc_sufficiency`, `insertion_area`; of both
        (`direction="both"`) `symmetric_relevance_gain`; with an envelope `normalized_area` and
        `envelope_area`, of its margins. `fastattnerase.measures.find(name)` has each with formula,
        direction and range. What lacks a curve is left out, and `missing` says which argument it
        needs. Several random orders are one ranking, of their mean.

        Args:
            of: "probability" of the original label, from the curve "label_prob" (or "logits"), or
                its "logit", from "logits"; ranges that measures state are those of probabilities.
            fraction: of the items, for comprehensiveness and sufficiency.
            grids: of AOPC: "eraser", "ferret", "every". Orders do not say which items have a score
                above 0, so that "ferret" takes them all.
            envelope: `fae.envelope` of the same batch and rankings, on every prefix or a grid.

        Returns:
            A `SweepMeasures`: `found[name]`, `.to_pandas()`, `.summary()` with intervals.

        Raises:
            ValueError: naming the argument: none of the curves, one output whose probability is
                always 1, an envelope of something else.

        Source: DeYoung et al. 2020; Samek et al. 2017; Petsiuk et al. 2018; Blücher et al. 2024.

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[4.0], [-1.0], [1.0]]), torch.tensor([0, 3]),
        ...     weights=torch.tensor([0.5, 0.3, 0.2]), head_weight=torch.tensor([[1.0], [-1.0]]),
        ... )
        >>> found = fae.erase_prefixes(batch, ["attention"], curves="label_prob").measures()
        >>> found["comprehensiveness"].values.round(3).tolist()
        [[0.577]]
        >>> found.missing["sufficiency"]
        "direction='both'"
        """
        from fastattnerase.measures.of_sweep import measure_sweep

        return measure_sweep(self, of=of, fraction=fraction, grids=grids, envelope=envelope)

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(ranking=len(self.rankings), instance=len(self.label))


@dataclass(eq=False, repr=False)
class ItemErasure(_Record):
    """What erasing each item alone does.

    Axes: `T` items of `B` instances, one instance after the other as in the batch; reals are
    float64 where the values are, else float32.

    Attributes:
        flip_label: [T], int64: the decision without the item, -1 where it stays.
        js: [T], real: Jensen-Shannon divergence of the class distributions with and without the
            item, natural logarithm, 0 to ln 2.
        label_prob_drop: [T], real: original probability of the label minus the one without the
            item; negative where it rises.
        label: [B], int64: the original decision, -1 where something is not finite.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
        kl: [T], real: KL(without the item ‖ original), natural logarithm; None where not asked for.
        groups: As of `PrefixErasure`: where groups were erased, `T` and positions count them.
    """

    flip_label: Tensor
    js: Tensor
    label_prob_drop: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor
    kl: Tensor | None = None
    _positions: Tensor | None = None  # of a batch that was padded
    groups: Groups | None = None

    @property
    def flip(self) -> Tensor:
        """[T], bool: whether the decision differs without the item."""
        return self.flip_label >= 0

    @property
    def positions(self) -> Tensor:
        """[T], int64: the original column of each item, as `batch.positions`.

        Of packed input the place within the instance.
        """
        if self._positions is not None:
            return self._positions
        instance = torch.repeat_interleave(self.offsets.diff(), output_size=len(self.js))  # [T]
        return torch.arange(len(self.js), device=self.offsets.device) - self.offsets[instance]

    def to_pandas(self) -> DataFrame:
        """Make a table with a row per item.

        Columns: instance (the row of the batch), position (the original column in padded input, in
        packed input the place within the instance), status (the instance's), status_names, flip,
        flip_label, js, label_prob_drop, kl if asked for.

        Of groups there is their given number, group, too.
        """
        instance = torch.repeat_interleave(self.offsets.diff(), output_size=len(self.js))  # [T]
        columns = {
            "instance": instance,
            "position": self.positions,
            "status": self.status[instance],
            "flip": self.flip,
            "flip_label": self.flip_label,
            "js": self.js,
            "label_prob_drop": self.label_prob_drop,
        }
        if self.kl is not None:
            columns["kl"] = self.kl
        if self.groups is not None:
            columns["group"] = self.groups.ids
        return _table(columns)

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(item=len(self.js), instance=len(self.label))


@dataclass(eq=False, repr=False)
class MinimalFlipSet(_Record):
    """The smallest sets of items whose erasure changes the decision.

    Axes: `B` instances, `T` items in all.

    Attributes:
        size: [B], int64: items of the set, -1 where no set flips; with several attention heads
            also where none was found, and of scores that span more than 600.
        flip_label: [B], int64: the decision after erasing the set, -1 where there is none.
        order: [T], int64: positions within the instance; the first `size` of an instance are the
            set (ranking "minimal"). They count kept items: the original columns, in the same order,
            are `batch.positions[batch.offsets[batch.instance_of_item] + result.order]`.
        label: [B], int64: the original decision, -1 where something is not finite.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
        lower_bound: [B], int64: no set with fewer items flips, -1 where none flips at all; the size
            itself with one attention head. With several it is proved as far as that is cheap.
        groups: As of `PrefixErasure`: where groups were erased, `T`, size and order count them, and
            `groups.first(order, size)` marks the items of the set.
    """

    size: Tensor
    flip_label: Tensor
    order: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor
    lower_bound: Tensor
    groups: Groups | None = None

    @property
    def optimal(self) -> Tensor:
        """[B], bool: whether the set is known to be as small as any that flips."""
        return (self.size > 0) & (self.size == self.lower_bound)

    def to_pandas(self) -> DataFrame:
        """Make a table with a row per instance.

        Columns: instance (the row of the batch), n, label, status, status_names, size, flip_label,
        lower_bound, optimal.
        """
        return _table(
            {
                "instance": torch.arange(len(self.size)),
                "n": self.offsets.diff(),
                "label": self.label,
                "status": self.status,
                "size": self.size,
                "flip_label": self.flip_label,
                "lower_bound": self.lower_bound,
                "optimal": self.optimal,
            }
        )

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(instance=len(self.size), item=len(self.order))


@dataclass(eq=False, repr=False)
class PermutedWeights(_Record):
    """What permuting the attention weights within each instance does to its output.

    Axes: `B` instances, `P` permutations, `C` classes; reals are float64 where the values are,
    else float32.

    Attributes:
        tvd: [P, B], real: total variation distance `½ Σ_c |p_c − p'_c|` of the class probabilities
            under each permutation from the original ones, 0 to 1; NaN where something is not
            finite.
        flips: [B], int64: the number of permutations under which the decision is another, -1
            where something is not finite.
        label: [B], int64: the original decision, -1 where something is not finite.
        probabilities: [B, C], real: of the original decision, NaN where it is not finite.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
    """

    tvd: Tensor
    flips: Tensor
    label: Tensor
    probabilities: Tensor
    status: Tensor
    offsets: Tensor

    @property
    def median(self) -> Tensor:
        """[B], real: the median of `tvd` over the permutations, of an even number the mean of two.

        Computed at each use.
        """
        P = len(self.tvd)
        ascending = self.tvd.sort(0).values  # [P, B], NaN last
        return (ascending[(P - 1) // 2] + ascending[P // 2]) / 2

    def to_pandas(self) -> DataFrame:
        """Make a table with a row per instance; single permutations stay out.

        Columns: instance (the row of the batch), n, label, status, status_names, median (of the
        total variation distance), flips, permutations.
        """
        B = len(self.label)
        return _table(
            {
                "instance": torch.arange(B),
                "n": self.offsets.diff(),
                "label": self.label,
                "status": self.status,
                "median": self.median,
                "flips": self.flips,
                "permutations": torch.full((B,), len(self.tvd)),
            }
        )

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(permutation=len(self.tvd), instance=len(self.label))


@dataclass(eq=False, repr=False)
class Sweep(_Record, Generic[SingleT, MinimalT]):
    """All results of one read of the values.

    Attributes:
        prefixes: What erasing every prefix of every ranking does, a `PrefixErasure`.
        single: What erasing each item alone does, an `ItemErasure`; None with `single=False`.
        minimal: The smallest flipping sets, a `MinimalFlipSet`; None where it was left out.
        why_no_minimal: Why `minimal` is None, such as "2 attention heads: …"; empty where it is
            there.
    """

    prefixes: PrefixErasure
    single: SingleT
    minimal: MinimalT
    why_no_minimal: str = ""

    def to_pandas(self) -> DataFrame:
        """Make the table of `prefixes`, a row per instance and ranking, with the minimal set.

        Columns: those of `PrefixErasure.to_pandas`; where there is a minimal set, its size and
        label as minimal_size and minimal_flip_label.
        """
        table = self.prefixes.to_pandas()
        if self.minimal is not None:
            R = len(self.prefixes.rankings)
            table["minimal_size"] = self.minimal.size.cpu().repeat(R).numpy()
            table["minimal_flip_label"] = self.minimal.flip_label.cpu().repeat(R).numpy()
        return table

    def measures(
        self,
        *,
        of: Literal["probability", "logit"] = "probability",
        fraction: float = 0.2,
        grids: Sequence[Preset] = ("eraser", "ferret", "every"),
        envelope: Envelope | None = None,
    ) -> SweepMeasures:
        """Measure the rankings of `prefixes`; see `PrefixErasure.measures`.

        Args:
            of, fraction, grids, envelope: as there.

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[4.0], [-1.0], [1.0]]), torch.tensor([0, 3]),
        ...     weights=torch.tensor([0.5, 0.3, 0.2]), head_weight=torch.tensor([[1.0], [-1.0]]),
        ... )
        >>> names = ["attention", "random"]
        >>> swept = fae.sweep(
        ...     batch, names, curves="label_prob", direction="both", random_orders=5
        ... )
        >>> found = swept.measures(envelope=fae.envelope(batch, names))
        >>> found.rankings, len(found.missing)
        (('attention', 'random'), 0)
        >>> found["aopc_sufficiency", "every"].mean.round(3).tolist()[0]
        -0.01
        """
        return self.prefixes.measures(of=of, fraction=fraction, grids=grids, envelope=envelope)

    def __repr__(self) -> str:
        """Show the parts; of the minimal set why it is not there."""
        why = f" ({self.why_no_minimal})" if self.why_no_minimal else ""
        return (
            f"Sweep(\n  prefixes={self.prefixes!r},\n  single={self.single!r},\n"
            f"  minimal={self.minimal!r}{why}\n)"
        )
