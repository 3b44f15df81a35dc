"""The best and the worst output that any ranking can reach at every prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName, Direction
from fastattnerase.exact_problems import EnvelopeOutputs
from fastattnerase.ops.exact_library import envelope_op
from fastattnerase.ops.plan import RankingLike, plan_rankings
from fastattnerase.ops.results import _Record, _table
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, run
from fastattnerase.ops.terms import terms_of
from fastattnerase.problem import BIT
from fastattnerase.tensor_checks import offsets_of

if TYPE_CHECKING:
    from fastattnerase.measures.base import Floats, Ints
else:
    Floats = Ints = Any  # measures are imported when one is asked for


@dataclass(eq=False, repr=False)
class Envelope(_Record):
    """Between which outputs every ranking's curve lies, and where rankings lie in between.

    Axes: `B` instances, `P` points of all instances, `K` rivals (one where there is one output),
    `R` rankings. Reals are NaN where an instance has something that is not finite or scores that
    span more than 600.

    Attributes:
        rankings: names of the R rows.
        erased: [P], int64: items erased at each point; with direction "keep" those kept.
        rivals: [B, K], int64: the classes over which the label's margin is meant, ascending; -1
            where there is one output.
        lower: [P, K], float64: the least margin over each rival (or output) over all sets of as
            many items.
        upper: [P, K], float64: the largest.
        least: [P], float64: the least margin over the nearest rival, exactly.
        largest: [P], float64: the largest margin over the nearest rival; with more than two classes
            an upper bound, since no one set need reach it over all rivals.
        curves: [R, P], float64: each ranking's margin over the nearest rival (or output).
        label: [B], int64: the original decision, -1 where something is not finite.
        status: [B], int64: bits of `Status`.
        offsets: [B + 1], int64: where each instance's items begin.
        point_offsets: [B + 1], int64: where each instance's points begin.
        direction: "erase" or "keep".
    """

    rankings: tuple[str, ...]
    erased: Tensor
    rivals: Tensor
    lower: Tensor
    upper: Tensor
    least: Tensor
    largest: Tensor
    curves: Tensor
    label: Tensor
    status: Tensor
    offsets: Tensor
    point_offsets: Tensor
    direction: str

    def area(self, curves: Tensor) -> Tensor:
        """Integrate curves [R, P] over the share of items, straight between points: [R, B].

        NaN where an instance has one point alone.
        """
        from fastattnerase.measures.areas import measured_area

        values = measured_area(curves.double().cpu().numpy(), *self.places).values
        return torch.from_numpy(values).to(curves.device)

    @property
    def normalized_area(self) -> Tensor:
        """[R, B]: (area − worst) / (best − worst), 1 for the best order and 0 for the worst.

        Best is the least curve with direction "erase", the largest with "keep"; NaN where the two
        meet. Against the best nested order, which need not follow the bound, areas are exact to
        3e-4 of the range at most, 1e-5 in the mean (n = 12).
        """
        from fastattnerase.measures.normalized_area import normalized_area

        curves, least, largest = (x.cpu().numpy() for x in (self.curves, self.least, self.largest))
        bounds, shares = self.places
        keep = self.direction == "keep"
        found = normalized_area(curves, least, largest, bounds, shares=shares, keep=keep)
        return torch.from_numpy(found.values).to(self.curves.device)

    @property
    def places(self) -> tuple[Ints, Floats]:
        """[B + 1], int64, where each instance's points begin, and [P], their shares of its items.

        Arrays, as measures take them.
        """
        n = self.offsets.diff().clamp(min=1)  # [B]
        shares = self.erased.double() / n.repeat_interleave(self.point_offsets.diff())  # [P]
        return self.point_offsets.cpu().numpy(), shares.cpu().numpy()

    def to_pandas(self) -> object:
        """Make a table with a row per instance and ranking; points stay out.

        Columns: instance (the row of the batch), ranking, n, label, status, status_names, area,
        normalized_area.
        """
        R, B = len(self.rankings), len(self.label)
        return _table(
            {
                "instance": torch.arange(B).repeat(R),
                "ranking": [name for name in self.rankings for _ in range(B)],
                "n": self.offsets.diff().repeat(R),
                "label": self.label.repeat(R),
                "status": self.status.repeat(R),
                "area": self.area(self.curves).flatten(),
                "normalized_area": self.normalized_area.flatten(),
            }
        )

    def __repr__(self) -> str:
        """Counts and shapes."""
        return self._shown(ranking=len(self.rankings), instance=len(self.label))


def envelope(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = (),
    *,
    grid: int | Sequence[float] | None = None,
    direction: Direction = "erase",
    seed: int = 0,
    random_orders: int = 1,
    backend: BackendName = "auto",
    validate: bool | None = None,
) -> Envelope:
    """Find the least and the largest output over all sets of as many items, for every prefix.

    For `s` kept items `min` and `max` over `|S| = s` of `v(S) = Σ_S a_i m_i / Σ_S a_i`, `m_i` the
    margin of the original decision over a rival that item `i` gives alone, biases included (or the
    output, where there is one); exactly, by repeated selection of the largest `a_i (m_i − λ)`. The
    curve of every ranking lies between, so that it can be judged against what is possible. A set
    without mass has the bias. With more than two classes the bounds are exact for each rival, and
    so is the least margin over the nearest; the largest is an upper bound, which one set may not
    reach over all rivals at once.

    Args:
        batch: B instances of T items in all, with a linear head and one attention head.
        rankings: names, orders int64 [T] or ranking scores [T], as of `erase_prefixes`, whose
            curves and areas are computed on the same points.
        grid: None: every prefix, in O(n log n) steps; a number of points, 2 or more, evenly from
            nothing to all items, rounded to items; or shares of the items in [0, 1].
        direction: "erase" the first items of a ranking, or "keep" them alone.
        seed, random_orders: of the ranking "random", as of `erase_prefixes`.
        backend: "auto" or the name of one, "cpu" or "reference"; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.

    Returns:
        An `Envelope`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: Dinkelbach 1967, "On Nonlinear Fractional Programming".

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.tensor([[4.0], [1.0], [2.0]]), torch.tensor([0, 3]),
    ...     weights=torch.tensor([0.5, 0.3, 0.2]), head_weight=torch.tensor([[1.0]]),
    ... )
    >>> found = fae.envelope(batch, ["attention"])
    >>> [round(v, 3) for v in found.least.tolist()]
    [2.7, 1.4, 1.0, 0.0]
    >>> [round(v, 3) for v in found.largest.tolist()]
    [2.7, 3.429, 4.0, 0.0]
    >>> found.normalized_area.round(decimals=3).tolist()
    [[0.801]]
    """
    if direction not in ("erase", "keep"):
        raise ValueError(f"direction: given {direction!r}, needed 'erase' or 'keep'")
    if isinstance(rankings, (str, Tensor)):
        rankings = (rankings,)
    terms = terms_of(batch, "the envelope", backend, validate)
    chosen, point_offsets = _points(batch, grid)  # [P], [B + 1]
    kept = chosen
    if direction == "erase":
        kept = torch.repeat_interleave(batch.lengths, point_offsets.diff()) - chosen
    plan = plan_rankings(batch, tuple(rankings), random_orders)
    orders = batch.offsets.new_zeros(0, batch.num_items)  # [R, T]
    if plan.names:
        wants = BIT["order"]
        out = run(batch, plan, wants, seed, False, backend, validate, DEFAULT_MAX_BYTES)
        assert out.order is not None  # asked for
        # Unusable orders, without checks, are by position: their instance has no answer.
        positions = torch.arange(batch.num_items, device=batch.device)
        positions = positions - batch.offsets[batch.instance_of_item]
        orders, terms.status = out.order.where(out.order >= 0, positions), out.status
    own, empty = terms.margins()  # [T, K], [B, K]
    found = EnvelopeOutputs(
        *envelope_op(
            batch.offsets, terms.status, terms.weights, own, empty, point_offsets, kept, orders,
            direction == "keep", backend if backend in ("cpu", "reference") else "auto",
        )
    )  # fmt: skip
    rivals = terms.rivals()
    if not rivals.shape[1]:
        rivals = terms.label.new_full((len(batch), 1), -1)
    return Envelope(
        tuple(plan.names), chosen, rivals, found.lower, found.upper, found.lower.amin(1),
        found.upper.amin(1), found.curves, terms.label, terms.status, batch.offsets, point_offsets,
        direction,
    )  # fmt: skip


def _points(batch: AttentionBatch, grid: int | Sequence[float] | None) -> tuple[Tensor, Tensor]:
    """Choose how many items are erased or kept at each point: [P] and the points' offsets [B + 1].

    Points of an instance ascend and are distinct.
    """
    n = batch.lengths  # [B]
    if grid is None:
        offsets = offsets_of(n + 1)
        instance = torch.repeat_interleave(n + 1)  # [P]
        return torch.arange(int(offsets[-1]), device=n.device) - offsets[instance], offsets
    if isinstance(grid, int):
        if grid < 2:
            raise ValueError(f"grid: given {grid}, needed 2 points or more")
        shares = torch.linspace(0, 1, grid, dtype=torch.float64, device=n.device)  # [G]
    else:
        shares = torch.as_tensor(grid, dtype=torch.float64, device=n.device)
        if shares.ndim != 1 or not len(shares) or not bool(((shares >= 0) & (shares <= 1)).all()):
            raise ValueError(f"grid: given {grid}, needed shares of the items in [0, 1]")
    rounded = (shares * n[:, None] + 0.5).floor().long().sort(1).values  # [B, G]
    fresh = torch.ones_like(rounded, dtype=torch.bool)
    fresh[:, 1:] = rounded[:, 1:] != rounded[:, :-1]
    return rounded[fresh], offsets_of(fresh.sum(1))
