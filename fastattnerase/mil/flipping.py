"""Patch flipping: patches erased by a ranking, most and least important first, at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName
from fastattnerase.measures.of_sweep import SweepMeasures
from fastattnerase.ops import Sweep, erase_each, erase_prefixes, shapley_values, sweep
from fastattnerase.ops.plan import RankingLike
from fastattnerase.tensor_checks import offsets_of, shape_of

STEPS = 100  # the field's grid: every 1 % of the patches
SCORES = ("attention", "single", "one_removed", "shapley")


@dataclass(frozen=True, eq=False)
class PatchFlipping:
    """What flipping patches does, by every ranking, in both directions.

    Axes: `B` slides, `R` rankings (a row for each random order), `P` points of all slides' grids,
    `T` patches. The original decision of a slide is followed throughout, also once the largest
    logit is another.

    Attributes:
        rankings: Names of the R rows.
        erased: [P], int64: patches erased at each point of the grid: by rank, `⌊n j / 100 + ½⌋`.
        point_offsets: [B + 1], int64: where each slide's points begin.
        most_first: [R, P]: the original decision's probability once the most important patches of
            as many are erased.
        least_first: [R, P]: the same once the least important are, by the reverse of the order.
        first_flip: [R, B], int64: the smallest number of most important patches whose erasure
            changes the decision (the largest logit), over every prefix; -1 for never.
        least_first_flip: [R, B], int64: the same of least important ones.
        swept: The sweep of every prefix: `swept.prefixes` has curves over all of them,
            `swept.single` what erasing each patch alone does, `swept.minimal` the smallest set of
            patches that changes the decision, None where no exact one exists.
        given: The rankings as the engine takes them, such as for `fae.envelope`.
    """

    rankings: tuple[str, ...]
    erased: Tensor
    point_offsets: Tensor
    most_first: Tensor
    least_first: Tensor
    first_flip: Tensor
    least_first_flip: Tensor
    swept: Sweep
    given: tuple[RankingLike, ...]

    @property
    def label(self) -> Tensor:
        """[B], int64: the original decisions, which are followed."""
        return self.swept.prefixes.label

    def measures(self, **options: Any) -> SweepMeasures:
        """Measure the rankings over every prefix: AOPC, AOPC-R, symmetric relevance gain, areas.

        Args:
            options: as of `Sweep.measures`; rows of random orders are one there.
        """
        found = self.swept.measures(**{"grids": ("every",), **options})
        names = iter(name for name in self.rankings if not name.startswith("random"))
        named = tuple("random" if name == "random" else next(names) for name in found.rankings)
        return SweepMeasures(named, found.found, found.missing)


def attention_scores(batch: AttentionBatch) -> Tensor:
    """Score patches by attention: [T], scores before the softmax or weights.

    Of several branches that of the class that is decided where each class reads a branch of its own
    (CLAM's multi branch), else the mean of the weights over branches.

    >>> import torch, fastattnerase as fae
    >>> from fastattnerase import mil
    >>> batch = fae.AttentionBatch(
    ...     torch.zeros(3, 2, 1), torch.tensor([0, 3]),
    ...     scores=torch.tensor([[0.0, 3.0], [1.0, 2.0], [2.0, 1.0]]),
    ...     head_weight=torch.eye(2)[..., None], head_bias=torch.tensor([0.0, 1.0]),
    ... )
    >>> mil.attention_scores(batch).tolist()
    [3.0, 2.0, 1.0]
    """
    given = batch.scores if batch.is_scores else batch.weights
    assert given is not None
    if given.ndim == 1:
        return given
    found = erase_prefixes(batch, (), weights=True)
    weight = batch.head_weight
    apart = weight is not None and len(weight) == weight.shape[1]
    if apart and weight is not None:
        others = ~torch.eye(len(weight), dtype=torch.bool)  # [C, H]
        apart = not bool((weight[others] != 0).any())
    if apart:
        decided = found.label.clamp(min=0)[batch.instance_of_item]  # [T]
        return given.gather(1, decided[:, None])[:, 0]
    assert found.weights is not None  # asked for
    return found.weights.mean(1)


def single_scores(batch: AttentionBatch) -> Tensor:
    """Score each patch by the decision's probability of a slide that has it alone: [T].

    `softmax(W h_i + b)_y`, `y` the decision with all patches.

    >>> import torch, fastattnerase as fae
    >>> from fastattnerase import mil
    >>> batch = fae.AttentionBatch(
    ...     torch.tensor([[2.0, 0.0], [0.0, 0.0]]).double(), torch.tensor([0, 2]),
    ...     scores=torch.zeros(2), head_weight=torch.eye(2),
    ... )
    >>> mil.single_scores(batch).round(decimals=3).tolist()
    [0.881, 0.5]
    """
    T = batch.num_items
    label = erase_prefixes(batch, ()).label[batch.instance_of_item]  # [T]
    items = torch.arange(T + 1)
    several = batch.values.ndim == 3
    ones = batch.values.new_ones(T, batch.num_heads)
    bias = batch.head_bias
    if bias is not None and bias.ndim == 2:
        bias = bias[batch.instance_of_item]
    rows = batch._rows[batch.instance_of_item]
    alone = AttentionBatch(
        batch.values, items, weights=ones if several else ones[:, 0],
        head_weight=batch.head_weight, head_bias=bias, head=batch.head,
    )  # fmt: skip
    alone._rows = rows  # a head of one's own is told the slide
    found = erase_prefixes(alone, ()).probabilities  # [T, C]
    return found.gather(1, label.clamp(min=0)[:, None])[:, 0].masked_fill(label < 0, torch.nan)


def one_removed_scores(batch: AttentionBatch) -> Tensor:
    """Score each patch by what the decision's probability loses without it alone: [T].

    >>> import torch, fastattnerase as fae
    >>> from fastattnerase import mil
    >>> batch = fae.AttentionBatch(
    ...     torch.tensor([[2.0, 0.0], [0.0, 0.0]]).double(), torch.tensor([0, 2]),
    ...     scores=torch.zeros(2), head_weight=torch.eye(2),
    ... )
    >>> mil.one_removed_scores(batch).round(decimals=3).tolist()
    [0.231, -0.15]
    """
    return erase_each(batch).label_prob_drop


def shapley_scores(batch: AttentionBatch) -> Tensor:
    """Score each patch by its Shapley value of the decision's lead over the runner-up: [T].

    Of one branch and a linear classifier; exact (`fae.shapley_values`).

    >>> import torch, fastattnerase as fae
    >>> from fastattnerase import mil
    >>> batch = fae.AttentionBatch(
    ...     torch.tensor([[2.0, 0.0], [0.0, 0.0]]).double(), torch.tensor([0, 2]),
    ...     scores=torch.zeros(2), head_weight=torch.eye(2),
    ... )
    >>> mil.shapley_scores(batch).round(decimals=6).tolist()
    [1.5, -0.5]
    """
    values = shapley_values(batch).values  # [T, C]
    found = erase_prefixes(batch, (), logits=True)
    assert found.logits is not None  # asked for
    label = found.label.clamp(min=0)[:, None]  # [B, 1]
    if found.logits.shape[1] == 1:
        return values[:, 0]
    second = found.logits.scatter(1, label, -torch.inf).argmax(1, keepdim=True)  # [B, 1]
    instance = batch.instance_of_item
    return (values.gather(1, label[instance]) - values.gather(1, second[instance]))[:, 0]


_FUNCTIONS = {
    "attention": attention_scores,
    "single": single_scores,
    "one_removed": one_removed_scores,
    "shapley": shapley_scores,
}


def patch_scores(batch: AttentionBatch, names: Sequence[str]) -> dict[str, Tensor]:
    """Score the patches by several of `attention`, `single`, `one_removed` and `shapley`: [T] each.

    Raises:
        ValueError: another name, with the list.

    >>> import torch, fastattnerase as fae
    >>> from fastattnerase import mil
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(2), torch.tensor([0, 2]), scores=torch.zeros(2), head_weight=torch.eye(2),
    ... )
    >>> list(mil.patch_scores(batch, ["attention", "single"]))
    ['attention', 'single']
    """
    for name in names:
        if name not in _FUNCTIONS:
            raise ValueError(f"names: given {name!r}, needed {', '.join(SCORES)}")
    return {name: _FUNCTIONS[name](batch) for name in names}


def patch_flipping(
    batch: AttentionBatch,
    rankings: Sequence[RankingLike] = ("attention", "single", "one_removed", "random"),
    *,
    scores: Mapping[str, Tensor] | None = None,
    seed: int = 0,
    random_orders: int = 20,
    backend: BackendName = "auto",
) -> PatchFlipping:
    """Erase patches by every ranking, the most important first and the least important first.

    One launch gives every prefix in both directions; the field's grid of 1 % steps is read off it.
    Steps are by rank, ties by position, so that every step erases its share whatever the scores;
    the decision is the largest logit, of however many classes; the original one is followed.

    Args:
        batch: B slides, as `PoolModel.batch` gives them.
        rankings: `attention`, `single` (the decision's probability of the patch alone),
            `one_removed` (what it loses without the patch), `shapley`, any ranking of `fae.rank`,
            orders int64 [T] or scores [T].
        scores: scores [T] by their names, which rankings may then name, such as those that
            `patch_scores` has computed before.
        seed, random_orders: of the ranking "random".
        backend: "auto" or the name of one; see `fae.backends()`.

    Returns:
        A `PatchFlipping`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.

    Source: Samek et al. 2017, "Evaluating the Visualization of What a Deep Neural Network Has
    Learned"; Hense et al. 2024, "xMIL: Insightful Explanations for Multiple Instance Learning".

    >>> import torch, fastattnerase as fae
    >>> from fastattnerase import mil
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3).double(), torch.tensor([0, 3]), weights=torch.tensor([0.2, 0.5, 0.3]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> found = mil.patch_flipping(batch, ["attention"])
    >>> found.erased.tolist(), found.first_flip.tolist(), found.least_first_flip.tolist()
    ([0, 1, 2, 3], [[2]], [[3]])
    >>> found.most_first.round(decimals=2).tolist()
    [[0.71, 0.69, 0.27, 0.5]]
    """
    if isinstance(rankings, (str, Tensor)):
        rankings = (rankings,)
    known = dict(scores or {})
    names: list[str] = []
    taken: list[RankingLike] = []
    for given in rankings:
        if not isinstance(given, str):
            names.append(f"given[{sum(name.startswith('given') for name in names)}]")
            taken.append(given)
            continue
        if given not in known and given in _FUNCTIONS:
            known[given] = _FUNCTIONS[given](batch)
        rows = random_orders if given == "random" else 1
        names += [given] if rows == 1 else [f"random[{row}]" for row in range(rows)]
        taken.append(known.get(given, given))
    for name, values in known.items():
        if values.shape != (batch.num_items,):
            raise ValueError(f"scores[{name!r}]: given {shape_of(values)}, needed one a patch")
    swept = sweep(
        batch, taken, curves=("label_prob", "decision"), direction="both", seed=seed,
        random_orders=random_orders, backend=backend,
    )  # fmt: skip
    prefixes = swept.prefixes
    n, starts = batch.lengths, prefixes.curve_offsets[:-1]  # [B]
    erased, point_offsets = _grid(n)
    slide = torch.repeat_interleave(point_offsets.diff())  # [P]
    most_first = prefixes.curves["label_prob"][:, starts[slide] + erased]
    least_first = prefixes.kept_curves["label_prob"][:, starts[slide] + n[slide] - erased]
    return PatchFlipping(
        tuple(names), erased, point_offsets, most_first, least_first, prefixes.first_flip,
        _first_change(prefixes.kept_curves["decision"], prefixes.label, n), swept,
        tuple(taken),
    )  # fmt: skip


def _grid(n: Tensor) -> tuple[Tensor, Tensor]:
    """Choose how many patches are erased at each point: [P], ascending and distinct, [B + 1]."""
    steps = torch.arange(STEPS + 1)
    counts = (2 * steps * n[:, None] + STEPS) // (2 * STEPS)  # [B, 101], rounded, halves up
    fresh = torch.ones_like(counts, dtype=torch.bool)
    fresh[:, 1:] = counts[:, 1:] != counts[:, :-1]
    return counts[fresh], offsets_of(fresh.sum(1))


def _first_change(kept: Tensor, label: Tensor, n: Tensor) -> Tensor:
    """Find how many must go from the end of an order until the decision is another: [R, B].

    Args:
        kept: [R, T + B], the decisions of the first k = 0 … n patches alone.
        label: [B].
        n: [B].
    """
    ends = (n + 1).cumsum(0)  # [B]
    slide = torch.repeat_interleave(n + 1)  # [T + B]
    place = torch.arange(len(slide)) - (ends - n - 1)[slide]  # patches that are kept
    other = (kept != label[slide]) & (label[slide] >= 0) & (place < n[slide])
    most = kept.new_full((len(kept), len(n)), -1)
    most.scatter_reduce_(
        1, slide.expand_as(kept), torch.where(other, place, -1), "amax", include_self=True
    )  # the most that can be kept with another decision
    return torch.where(most >= 0, n - most, -1)
