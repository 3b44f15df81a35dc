"""The public functions: one order, and the parts of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName, CurveName, Directions
from fastattnerase.ops.emptied import Empty, gives_bias
from fastattnerase.ops.groups import group_items
from fastattnerase.ops.heads import flip_sets
from fastattnerase.ops.library import reweigh_op
from fastattnerase.ops.plan import RankingLike, plan_rankings
from fastattnerase.ops.results import ItemErasure, MinimalFlipSet, PrefixErasure
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, check_batch, run
from fastattnerase.ops.sweeps import sweep
from fastattnerase.ops.ways import way_to_run
from fastattnerase.problem import BIT
from fastattnerase.tensor_checks import check_devices, check_float, shape_of


def rank(
    batch: AttentionBatch,
    ranking: RankingLike,
    *,
    seed: int = 0,
    order: int = 0,
    groups: Tensor | None = None,
    renormalize: bool = True,
    empty: Empty = "bias",
    backend: BackendName = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Tensor:
    """Order the items of each instance, most important first, ties by lower position.

    Args:
        batch: B instances of T items in all.
        ranking: a name ("attention", "gradient", "product", "renormalized_gradient", "random",
            "leave_one_out", "leave_one_out_drop", "greedy", "minimal", "shapley", one of your own,
            see `register_ranking`, or "module:name"), or ranking scores [T], any float type.
        seed: of the ranking "random", 0 … 2^63 - 1.
        order: the number of the random order, 0 or more.
        groups: as of `erase_prefixes`; the order is then one of groups, [G].
        renormalize, empty: as of `erase_prefixes`.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        [T], int64: positions within the instance, which count its kept items. Their original
        columns are `batch.positions[batch.offsets[batch.instance_of_item] + order]`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: Serrano and Smith 2019, section 4.2 (random, attention, gradient, product).

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.2, 0.5, 0.3]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> fae.rank(batch, "attention").tolist()
    [1, 2, 0]

    Of padded input with holes, the order and the original columns:

    >>> batch = fae.AttentionBatch.from_padded(
    ...     torch.eye(3)[None], weights=torch.tensor([[0.2, 0.5, 0.3]]),
    ...     mask=torch.tensor([[1, 0, 1]]), head_weight=torch.eye(3),
    ... )
    >>> order = fae.rank(batch, "attention")
    >>> columns = batch.positions[batch.offsets[batch.instance_of_item] + order]
    >>> order.tolist(), columns.tolist()
    ([1, 0], [2, 0])
    """
    check_batch(batch)
    if order < 0:
        raise ValueError(f"order: given {order}, needed 0 or more")
    if groups is not None:
        batch, made = group_items(batch, groups)
        (ranking,) = made.of_groups((ranking,))
    plan = plan_rankings(batch, (ranking,), 1, order, renormalize)
    way = way_to_run(batch, renormalize, empty)
    out = way(batch, plan, BIT["order"], seed, False, backend, validate, max_bytes)
    assert out.order is not None
    return out.order[0]


def erase_prefixes(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike],
    *,
    curves: CurveName | Sequence[CurveName] = (),
    direction: Directions = "erase",
    orders: bool = False,
    logits: bool = False,
    weights: bool = False,
    seed: int = 0,
    random_orders: int = 1,
    groups: Tensor | None = None,
    renormalize: bool = True,
    empty: Empty = "bias",
    backend: BackendName = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> PrefixErasure:
    """Erase every prefix of every ranking and find the first whose erasure changes the decision.

    After erasing the first `k` items of a ranking `r` the logits are
    `z_k = Σ_{j>k} a_{r_j} W h_{r_j} / Σ_{j>k} a_{r_j} + b`, and `b` where no mass survives; without
    renormalising `z_k = Σ_{j>k} a_{r_j} W h_{r_j} + b`.

    Args:
        batch: B instances of T items in all.
        rankings: names (as of `rank`), orders int64 [T] (positions within the instance) or ranking
            scores [T] of a float type; or one of them.
        curves: what to return for every prefix, a name or several of "js" and "kl" (divergence
            from the original distribution, natural logarithm; "kl" is KL(after erasing ‖
            original)), "label_prob" (of the original label), "mass" (attention that the survivors
            had originally, 1 to 0), "decision", "logits".
        direction: "erase" the first k, or "keep" only them: the first flip is then the smallest
            k >= 1 whose top k items alone give the original label. "both" erases, and has the
            curves of what is kept besides, as `kept_curves`, for `measures()`.
        orders: whether the rankings' orders are returned too.
        logits: whether the original logits are returned too.
        weights: whether the normalised attention weights are returned too.
        seed: of the ranking "random", 0 … 2^63 - 1.
        random_orders: how many rows the ranking "random" stands for, 1 or more.
        groups: what is erased together (sentences, regions, the pieces of a word): the group of
            each item, [T], int64, as of `group_items`. Everything then counts groups, `T` too:
            "attention" goes by a group's mass, the other names by the group's value and weight;
            ranking scores of items [T] are summed over each group, scores and orders of groups [G]
            are taken as they are.
        renormalize: False: the survivors' weights stay as they are, so that the logits of survivors
            `S` are `Σ_S a_i W h_i + b` (value zeroing, models that do not normalise; given weights
            are not divided by their sum). Every decision starts from the bias instead of scaling it
            by mass. Of the names "gradient", "product", "leave_one_out", "leave_one_out_drop",
            "greedy" and "minimal" are those of this erasing, the others as they always are; scores
            that underflow weigh nothing. Computed in torch from the contributions of any backend,
            a linear head's: `O(n C)` a ranking and `O(n^2 C)` for "greedy" with more than two
            classes, several times slower than the engine.
        empty: what is there where no mass survives: "bias", or logits [C] or one an instance
            [B, C], of a float type, such as those of a model that is shown nothing; of a linear
            head and one attention head that renormalise. The items are projected once more, and
            "attention", "gradient", "product", "renormalized_gradient" and rankings of your own
            stay what they are.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        A `PrefixErasure`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: Serrano and Smith 2019, section 4.2.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.2, 0.5, 0.3]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> result = fae.erase_prefixes(batch, ["attention"], curves=("decision",))
    >>> result.first_flip.tolist(), result.flip_label.tolist()
    ([[2]], [[0]])
    >>> result.curves["decision"].tolist()
    [[1, 1, 0, 0]]
    >>> result = fae.erase_prefixes(batch, ["attention"], renormalize=False, curves=("logits",))
    >>> [[round(z, 2) for z in point] for point in result.curves["logits"][0].tolist()]
    [[0.2, 1.1], [0.2, 0.6], [0.2, 0.0], [0.0, 0.0]]
    """
    return sweep(
        batch,
        rankings,
        curves=curves,
        direction=direction,
        orders=orders,
        logits=logits,
        weights=weights,
        seed=seed,
        random_orders=random_orders,
        groups=groups,
        renormalize=renormalize,
        empty=empty,
        single=False,
        minimal=False,
        backend=backend,
        validate=validate,
        max_bytes=max_bytes,
    ).prefixes


def erase_each(
    batch: AttentionBatch,
    *,
    kl: bool = False,
    groups: Tensor | None = None,
    renormalize: bool = True,
    empty: Empty = "bias",
    backend: BackendName = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> ItemErasure:
    """Erase every item alone: `z_{-i} = Σ_{j≠i} a_j W h_j / Σ_{j≠i} a_j + b`.

    Args:
        batch: B instances of T items in all.
        kl: whether KL(without the item ‖ original) is returned too, natural logarithm.
        groups: as of `erase_prefixes`: every group alone is erased, and `T` counts groups.
        renormalize, empty: as of `erase_prefixes`.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        An `ItemErasure`; its `positions` are the original columns, as `batch.positions`.

    Raises:
        ValueError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: Serrano and Smith 2019, section 4.1.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.6, 0.3, 0.1]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> fae.erase_each(batch).flip.tolist()
    [True, False, False]
    """
    result = sweep(
        batch,
        (),
        single=True,
        single_kl=kl,
        groups=groups,
        renormalize=renormalize,
        empty=empty,
        minimal=False,
        backend=backend,
        validate=validate,
        max_bytes=max_bytes,
    ).single
    assert result is not None
    return result


def minimal_flip_set(
    batch: AttentionBatch,
    *,
    groups: Tensor | None = None,
    renormalize: bool = True,
    empty: Empty = "bias",
    backend: BackendName = "auto",
    validate: bool | None = None,
) -> MinimalFlipSet:
    """Find the smallest set of items whose erasure changes the decision, exactly.

    For a class `c ≠ y` the best set of a size has the largest margins
    `a_i [(W h_i + b)_y − (W h_i + b)_c]`, so that a sort for each class finds the smallest set.

    With several attention heads the margin is a sum of ratios, `Σ_h N_h / Z_h`, and no sort finds
    its least. A set is then found by greedy removal for each rival, and by sorting what items add
    near a set at hand; `lower_bound` is the number below which none flips, proved by each head's
    own best, by bounds on boxes of the heads' masses and, of few, by trying all; `optimal` says
    where the two meet.
    In torch on the CPU, an instance at a time: `O(n H C)` for every item of the set.

    Args:
        batch: B instances of T items in all, with a linear head and any number of attention heads.
        groups: as of `erase_prefixes`: the fewest groups, and `T` counts groups.
        renormalize: as of `erase_prefixes`. False: the largest `a_i [(W h_i)_y − (W h_i)_c]` go
            first, until their sum outweighs the bias too; exact for any number of attention heads.
        empty: as of `erase_prefixes`.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.

    Returns:
        A `MinimalFlipSet`.

    Raises:
        ValueError: naming the argument, what was given and what is needed; for a callable head.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: the set that Serrano and Smith 2019, section 4.2, call the gold standard.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.6, 0.3, 0.1]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> result = fae.minimal_flip_set(batch)
    >>> result.size.tolist(), result.order.tolist()
    ([1], [0, 2, 1])

    Of the pieces of a word, 0 and 2, and another:

    >>> result = fae.minimal_flip_set(batch, groups=torch.tensor([5, 8, 5]))
    >>> result.size.tolist(), result.groups.first(result.order, result.size).tolist()
    ([1], [True, False, True])
    """
    check_batch(batch)
    if renormalize and batch.head is None and batch.num_heads > 1:
        made = None
        gives_bias(batch, empty)
        if groups is not None:
            batch, made = group_items(batch, groups)
        return flip_sets(batch, made, backend, validate)
    result = sweep(
        batch,
        (),
        groups=groups,
        renormalize=renormalize,
        empty=empty,
        single=False,
        minimal=True,
        backend=backend,
        validate=validate,
    ).minimal
    assert result is not None
    return result


def reweigh(
    batch: AttentionBatch,
    weights: Tensor,
    *,
    backend: BackendName = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Tensor:
    """Compute the logits of other weights on the same items: `Σ_i w_i W h_i / Σ_i w_i + b`.

    The batch's own scores or weights have no part in it. Each item is projected once, whatever the
    number of rows; a callable head is called on `Σ_i w_i h_i / Σ_i w_i`. Where all weights of an
    instance are zero the logits are `b` (a callable head's of a zero vector).

    Args:
        batch: B instances of T items in all.
        weights: R rows of weights, [R, T], or [R, T, H] with several attention heads; 0 or more,
            float32, float64, bfloat16 or float16; divided by their sums, for each instance.
        backend: "auto" or the name of one; see `backends()`. With a linear head "cpu" computes
            this natively, the others leave it to the reference.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        [R, B, C], float64 where the values are, else float32; NaN where an instance has a value,
        a weight of the row or a bias that is not finite.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run here, with its reasons.

    Source: Jain and Wallace 2019, section 4.2.1, permuted weights.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.6, 0.3, 0.1]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> fae.reweigh(batch, torch.tensor([[1.0, 1.0, 2.0], [1.0, 0.0, 0.0]])).tolist()
    [[[0.25, 1.25]], [[1.0, 0.0]]]
    """
    check_batch(batch)
    check_float("weights", weights)
    several = batch.values.ndim == 3
    inner = (batch.num_items, batch.num_heads)[: 2 if several else 1]
    if weights.ndim == 0 or tuple(weights.shape[1:]) != inner or not len(weights):
        needed = ", ".join(map(str, inner))
        raise ValueError(
            f"weights: given {shape_of(weights)}, needed [R, {needed}] with R at least 1"
        )
    check_devices(batch.values, weights=weights)
    rows = weights.detach() if several else weights.detach().unsqueeze(2)  # [R, T, H]
    if batch.head is not None:
        plan = plan_rankings(batch, (), 1)
        found = []
        for row in rows:
            other = batch.with_weights(row)
            out = run(other, plan, BIT["logits"], 0, False, backend, validate, max_bytes)
            assert out.logits is not None  # asked for
            found.append(out.logits)
        return torch.stack(found)
    values, offsets, *_ = batch.packed
    if validate is None:
        validate = batch.device.type == "cpu"
    logits: Tensor = reweigh_op(values, offsets, *batch.linear_head, rows, backend, validate)
    return logits
