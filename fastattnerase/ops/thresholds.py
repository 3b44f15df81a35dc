"""Where an output crosses a threshold: one output, a margin between classes, a probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName, Direction
from fastattnerase.ops.plan import RankingLike, plan_rankings, why_no_minimal
from fastattnerase.ops.results import Sweep, _Record, _table
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, check_batch, run
from fastattnerase.ops.sweeps import sweep
from fastattnerase.tensor_checks import check_devices, offsets_of, shape_of

Of = Literal["output", "margin", "probability"]
Crossing = Literal["below", "above"]


@dataclass(eq=False, repr=False)
class ThresholdCrossing(_Record):
    """Where an output crosses a threshold as items are erased.

    Axes: `B` instances, `T` items in all, `R` rankings; reals are float64 where the values are,
    else float32.

    Attributes:
        rankings: names of the R rows; "random" stands for `random_orders` of them.
        label: [B], int64: the original decision (0 where there is one output), -1 where something
            is not finite.
        output: [B], real: what is compared with the threshold, nothing erased; NaN where something
            is not finite.
        threshold: [B], float64: as given.
        crossed: [B], bool: whether the output is past the threshold before anything is erased.
        status: [B], int64: bits of `Status`; near-ties are judged on output − threshold, and on
            the original decision, whose margin or probability it is.
        first_crossing: [R, B], int64: with direction "erase" the smallest k whose erasure takes
            the output past the threshold, 0 where it is there already; with "keep" the smallest
            k >= 1 whose top k items alone leave it on the side where it is; -1 for never.
        removed_mass: [R, B], float64: attention of the items erased by then, NaN for never.
        size: [B], int64: items of the smallest set whose erasure takes the output past the
            threshold, exactly; 0 where it is there already, -1 where no set does. None where it
            was left out.
        order: [T], int64: positions within the instance; the first `size` of an instance are that
            set. None where it was left out.
        curve: [R, T + B], real: the output at every prefix, `n_b + 1` points an instance from
            `curve_offsets` on; None where not asked for.
        offsets: [B + 1], int64: where each instance's items begin.
    """

    rankings: tuple[str, ...]
    label: Tensor
    output: Tensor
    threshold: Tensor
    crossed: Tensor
    status: Tensor
    first_crossing: Tensor
    removed_mass: Tensor
    size: Tensor | None
    order: Tensor | None
    curve: Tensor | None
    offsets: Tensor

    @property
    def curve_offsets(self) -> Tensor:
        """[B + 1], int64: where each instance's `n_b + 1` curve points begin."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    @property
    def fraction(self) -> Tensor:
        """[R, B], float64: first crossing / n, NaN for never."""
        fraction = self.first_crossing.double() / self.offsets.diff().clamp(min=1)  # [R, B]
        return fraction.masked_fill(self.first_crossing < 0, torch.nan)

    def to_pandas(self) -> object:
        """Make a table with a row per instance and ranking; curves stay out.

        Columns: instance (the row of the batch), ranking, n, label, status, status_names, output,
        threshold, crossed, first_crossing, fraction, removed_mass, and size where it is there.
        """
        R, B = len(self.rankings), len(self.label)
        columns = {
            "instance": torch.arange(B).repeat(R),
            "ranking": [name for name in self.rankings for _ in range(B)],
            "n": self.offsets.diff().repeat(R),
            "label": self.label.repeat(R),
            "status": self.status.repeat(R),
            "output": self.output.repeat(R),
            "threshold": self.threshold.repeat(R),
            "crossed": self.crossed.repeat(R),
            "first_crossing": self.first_crossing.flatten(),
            "fraction": self.fraction.flatten(),
            "removed_mass": self.removed_mass.flatten(),
        }
        if self.size is not None:
            columns["size"] = self.size.repeat(R)
        return _table(columns)

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(ranking=len(self.rankings), instance=len(self.label))


def cross_threshold(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = ("attention",),
    *,
    threshold: float | Tensor,
    crossing: Crossing = "below",
    of: Of | None = None,
    rival: int | Tensor | None = None,
    direction: Direction = "erase",
    curves: bool = False,
    minimal: bool | None = None,
    seed: int = 0,
    random_orders: int = 1,
    backend: BackendName = "auto",
    validate: bool | None = None,
) -> ThresholdCrossing:
    """Erase every prefix of every ranking and find the first that takes the output past `t`.

    With one output (`C = 1`: regression, risk, one logit) `v(S) = Σ_S a_i w·h_i / Σ_S a_i + b` of
    the survivors `S`; below means `v(S) <= t`, above `v(S) >= t`. Since `v(S) <= t` exactly when
    `Σ_S a_i (m_i − t) <= 0`, `m_i` the output that item `i` gives alone, a sort by `a_i (m_i − t)`
    finds the smallest set. With classes the output is the margin `z_y − z_c` of the original
    decision `y` over its nearest rival, or over `rival`; at equality the lower class wins, as in
    decisions, so that below 0 is a flip. Where no mass survives the logits are the bias.

    It is a sweep of the two-sided problem whose decision is on which side of the threshold the
    output is: rankings by gradient, by single items, `greedy` and `minimal` are those of that
    problem, the most important item that which holds the output most on its side. Every backend
    that sweeps does it.

    Args:
        batch: B instances of T items in all, with a linear head.
        rankings: names, orders int64 [T] or ranking scores [T], as of `erase_prefixes`.
        threshold: `t`, a number, or one an instance [B], a float type; of a probability above 0
            and below 1.
        crossing: "below" (default) or "above": from which side the threshold is reached. The
            nearest of several rivals has "below" alone.
        of: "output" (one output), "margin" or "probability" (of the original decision, where there
            are two classes); by default the output where there is one, else the margin.
        rival: a class, or one an instance [B], int64, the margin over which is meant; None: the
            nearest, at every prefix. Where it is the original decision nothing crosses.
        direction: "erase" the first k, or "keep" only them.
        curves: whether the output at every prefix is returned.
        minimal: whether the smallest set is looked for; None: where it exists, which is with one
            attention head.
        seed, random_orders: of the ranking "random", as of `erase_prefixes`.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.

    Returns:
        A `ThresholdCrossing`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: the decision flip of Serrano and Smith 2019, section 4.2, for any threshold.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.tensor([[4.0], [1.0], [2.0]]), torch.tensor([0, 3]),
    ...     weights=torch.tensor([0.5, 0.3, 0.2]), head_weight=torch.tensor([[1.0]]),
    ... )
    >>> found = fae.cross_threshold(batch, ["attention"], threshold=1.5, curves=True)
    >>> found.first_crossing.tolist(), found.size.tolist(), found.order.tolist()
    ([[1]], [1], [0, 2, 1])
    >>> [round(v, 3) for v in found.curve[0].tolist()]
    [2.7, 1.4, 2.0, 0.0]
    """
    check_batch(batch)
    if batch.head is not None:
        raise ValueError("batch: given a callable head, needed a linear one for thresholds")
    if isinstance(rankings, (str, Tensor)):
        rankings = (rankings,)
    rankings = tuple(rankings)
    C = batch.num_classes
    if of is None:
        of = "output" if C == 1 else "margin"
    _check_choices(of, crossing, C, rival)
    t = per_instance(batch, "threshold", threshold)  # [B]
    if of == "probability" and bool(((t <= 0) | (t >= 1)).any()):
        raise ValueError(f"threshold: given {threshold}, needed above 0 and below 1")
    given, t = t, t.logit() if of == "probability" else t
    plan = plan_rankings(batch, rankings, random_orders)
    decision = run(
        batch, plan_rankings(batch, (), 1), 0, seed, False, backend, validate, DEFAULT_MAX_BYTES
    )
    label = decision.label  # [B]
    found = _nothing(batch, tuple(plan.names), label, given, curves, minimal)
    for side in _sides(batch, label, t, crossing, rival):
        part = sweep(
            side.batch,
            side.chosen(rankings),
            curves=("logits",) if curves else (),
            direction=direction,
            logits=True,
            seed=seed,
            random_orders=random_orders,
            single=False,
            minimal=minimal,
            backend=backend,
            validate=validate,
        )
        _write(found, side, part, direction == "keep")
    if of != "output":
        # Rounding says which of two tied classes is meant, so that nothing about it is certain.
        found.status |= decision.status
    if of == "probability":
        found.output = found.output.sigmoid()
        found.curve = None if found.curve is None else found.curve.sigmoid()
    return found


def _check_choices(of: str, crossing: str, C: int, rival: int | Tensor | None) -> None:
    """Refuse what has no meaning with this number of classes."""
    if crossing not in ("below", "above"):
        raise ValueError(f"crossing: given {crossing!r}, needed 'below' or 'above'")
    needs = {"output": C == 1, "margin": C > 1, "probability": C == 2}
    if of not in needs:
        raise ValueError(f"of: given {of!r}, needed 'output', 'margin' or 'probability'")
    if not needs[of]:
        what = {"output": "one output", "margin": "two classes or more", "probability": "two"}
        raise ValueError(f"of: given {of!r} with C = {C}, needed {what[of]}")
    if rival is not None and of != "margin":
        raise ValueError(f"rival: given with of={of!r}, needed of='margin'")
    if crossing == "above" and of == "margin" and C > 2 and rival is None:
        raise ValueError(
            f"rival: given none with crossing='above' and C = {C}, needed a class: above all "
            "rivals at once is no sort"
        )


def per_instance(batch: AttentionBatch, name: str, given: float | Tensor) -> Tensor:
    """Bring a number, or one an instance, to float64 [B]."""
    B = len(batch)
    if isinstance(given, Tensor):
        if given.shape not in ((), (B,)):
            raise ValueError(f"{name}: given {shape_of(given)}, needed a number or [{B}]")
        if given.ndim:
            check_devices(batch.values, **{name: given})
        numbers = given.detach().double().to(batch.device).expand(B)  # [B]
    else:
        numbers = torch.full((B,), float(given), dtype=torch.float64, device=batch.device)
    if not bool(numbers.isfinite().all()):
        raise ValueError(f"{name}: given {given}, needed finite numbers")
    return numbers


@dataclass
class _Side:
    """Some instances of a batch, in the form whose decision is the side of the threshold."""

    batch: AttentionBatch  # B' instances, T' items
    instances: Tensor  # [B'], int64, rows of the whole batch
    items: Tensor  # [T'], int64, rows of its items
    points: Tensor  # [T' + B'], int64, of its curves
    start: Tensor  # [B'], the decision of an output that has not crossed
    own: Tensor  # [B'], the class whose logit, less the largest other, is ±(output − t)
    sign: float
    t: Tensor  # [B']

    def chosen(self, rankings: tuple[RankingLike, ...]) -> list[RankingLike]:
        """Give each ranking the side's items alone."""
        return [r[self.items] if isinstance(r, Tensor) and r.ndim else r for r in rankings]


def _side(
    batch: AttentionBatch, part: AttentionBatch, start: Tensor, own: Tensor, sign: float, t: Tensor
) -> _Side:
    """Make the side that holds all instances of a batch."""
    B, device = len(batch), batch.device
    rows = torch.arange(B, device=device)
    items = torch.arange(batch.num_items, device=device)
    points = torch.arange(batch.num_items + B, device=device)
    return _Side(part, rows, items, points, start, own, sign, t)


def _nothing(
    batch: AttentionBatch,
    names: tuple[str, ...],
    label: Tensor,
    t: Tensor,
    curves: bool,
    minimal: bool | None,
) -> ThresholdCrossing:
    """Make results of instances that never cross, to write into."""
    B, T, R = len(batch), batch.num_items, len(names)
    values = batch.values
    real = torch.float64 if values.dtype == torch.float64 else torch.float32
    sets = minimal is not False and not why_no_minimal(batch)
    by_position = torch.arange(T, device=batch.device) - batch.offsets[batch.instance_of_item]
    return ThresholdCrossing(
        rankings=names,
        label=label,
        output=values.new_full((B,), torch.nan, dtype=real),
        threshold=t,
        crossed=values.new_zeros(B, dtype=torch.bool),
        status=values.new_zeros(B, dtype=torch.int64),
        first_crossing=values.new_full((R, B), -1, dtype=torch.int64),
        removed_mass=values.new_full((R, B), torch.nan, dtype=torch.float64),
        size=values.new_full((B,), -1, dtype=torch.int64) if sets else None,
        order=by_position if sets else None,
        curve=values.new_full((R, T + B), torch.nan, dtype=real) if curves else None,
        offsets=batch.offsets,
    )


def _write(found: ThresholdCrossing, side: _Side, part: Sweep, keep: bool) -> None:
    """Write what a sweep of one side says into the results of the whole batch."""
    prefixes, rows = part.prefixes, side.instances
    crossed = (prefixes.label >= 0) & (prefixes.label != side.start)  # [B']
    first, mass = prefixes.first_flip, prefixes.removed_mass  # [R, B']
    if not keep:
        first = first.masked_fill(crossed, 0)
        mass = mass.masked_fill(crossed, 0)
    found.crossed[rows], found.status[rows] = crossed, prefixes.status
    found.first_crossing[:, rows], found.removed_mass[:, rows] = first, mass
    assert prefixes.logits is not None  # asked for
    lead = _lead(prefixes.logits.double(), side.own)  # [B']
    found.output[rows] = (side.sign * lead + side.t).to(found.output.dtype)
    if found.curve is not None:
        instance = torch.repeat_interleave(side.batch.lengths + 1, output_size=len(side.points))
        for row, logits in enumerate(prefixes.curves["logits"]):  # [P', C] each
            curve = side.sign * _lead(logits.double(), side.own[instance]) + side.t[instance]
            found.curve[row, side.points] = curve.to(found.curve.dtype)
    if part.minimal is not None:
        assert found.size is not None
        assert found.order is not None
        found.size[rows] = part.minimal.size.masked_fill(crossed, 0)
        found.order[side.items] = part.minimal.order


def _lead(logits: Tensor, own: Tensor) -> Tensor:
    """Compute the logit of a class less the largest of the others: [M, C] and [M] to [M]."""
    column = own[:, None]  # [M, 1]
    others = logits.scatter(1, column, -torch.inf).amax(1)  # [M]
    return logits.gather(1, column)[:, 0] - others


def _sides(
    batch: AttentionBatch,
    label: Tensor,
    t: Tensor,
    crossing: str,
    rival: int | Tensor | None,
) -> list[_Side]:
    """Make the batches whose decisions tell on which side of the threshold the output is."""
    weight, bias = batch.linear_head  # [C, H, D], [C] or [B, C]
    B, C = len(batch), len(weight)
    bias = bias.double().expand(B, C)  # [B, C]
    if C == 1:
        # Logits [0, ±(v − t)]: class 1 until v reaches t, where the lower class wins.
        sign = 1.0 if crossing == "below" else -1.0
        two = torch.cat([torch.zeros_like(weight), sign * weight])  # [2, H, D]
        shifted = torch.cat([torch.zeros_like(bias), sign * (bias - t[:, None])], dim=1)  # [B, 2]
        ones = torch.ones_like(label)
        return [_side(batch, _with_head(batch, two, shifted), ones, ones, sign, t)]
    y = label.clamp(min=0)  # [B]
    rows = torch.arange(B, device=batch.device)
    shifted = bias.clone()
    shifted[rows, y] -= t
    if rival is not None:
        return _by_pair(batch, y, _rivals(batch, rival, C), shifted, crossing == "below", t)
    start = y if crossing == "below" else 1 - y  # above is of two classes
    return [_side(batch, _with_head(batch, weight, shifted), start, y, 1.0, t)]


def _rivals(batch: AttentionBatch, rival: int | Tensor, C: int) -> Tensor:
    """Bring a class, or one an instance, to int64 [B]."""
    B = len(batch)
    if isinstance(rival, Tensor) and (rival.dtype != torch.int64 or rival.shape not in ((), (B,))):
        raise ValueError(
            f"rival: given {shape_of(rival)} of {rival.dtype}, needed int64, a class or [{B}]"
        )
    classes = torch.as_tensor(rival, dtype=torch.int64, device=batch.device).expand(B)  # [B]
    if bool(((classes < 0) | (classes >= C)).any()):
        raise ValueError(f"rival: given {rival}, needed classes 0 … {C - 1}")
    return classes


def _by_pair(
    batch: AttentionBatch, y: Tensor, other: Tensor, bias: Tensor, below: bool, t: Tensor
) -> list[_Side]:
    """Group the instances by the two classes compared, in ascending order so that ties are as ever.

    Those whose rival is the decision itself are in no group.
    """
    (values, _, attention, _), weight = batch.packed, batch.linear_head[0]
    C = len(weight)
    pairs = torch.minimum(y, other) * C + torch.maximum(y, other)  # [B]
    pairs = pairs.masked_fill(y == other, -1)
    of_item = pairs[batch.instance_of_item]  # [T]
    of_point = pairs.repeat_interleave(batch.lengths + 1)  # [T + B]
    sides = []
    for pair in sorted(set(pairs[pairs >= 0].tolist())):
        both = list(divmod(pair, C))  # the lower and the upper class
        rows = (pairs == pair).nonzero()[:, 0]  # [B']
        items = (of_item == pair).nonzero()[:, 0]  # [T']
        part = batch[:]
        part.offsets, part.ids = offsets_of(batch.lengths[rows]), batch.ids[rows]
        part._positions, part._rows = None, batch._rows[rows]
        part._values, part._attention = values[items], attention[items]
        part = _with_head(part, weight[both], bias[rows][:, both])
        own = (y[rows] == both[1]).long()  # [B']
        start, points = own if below else 1 - own, (of_point == pair).nonzero()[:, 0]
        sides.append(_Side(part, rows, items, points, start, own, 1.0, t[rows]))
    return sides


def _with_head(batch: AttentionBatch, weight: Tensor, bias: Tensor) -> AttentionBatch:
    """Give the same items another linear head, weight [C, H, D] and bias [B, C]."""
    other = batch[:]
    other._head_weight, other._head_bias = weight.contiguous(), bias.contiguous()
    return other
