"""The public functions: their arguments, checks and results."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.callable_head import sweep_callable
from fastattnerase.ops.library import own_scores_op, sweep_op
from fastattnerase.ops.own_rankings import own_scores
from fastattnerase.ops.plan import Plan, RankingLike, check_minimal, plan_rankings
from fastattnerase.ops.results import ItemErasure, MinimalFlipSet, PrefixErasure, Sweep
from fastattnerase.problem import BIT, Outputs, as_outputs

_CURVE_BIT = {
    name.removeprefix("curve_"): bit for name, bit in BIT.items() if name.startswith("curve_")
}
CURVES = tuple(_CURVE_BIT)
_SINGLE_BITS = BIT["single_flip_label"] | BIT["single_js"] | BIT["single_drop"]
_MINIMAL_BITS = BIT["minimal_size"] | BIT["minimal_flip_label"] | BIT["minimal_order"]
DEFAULT_MAX_BYTES = 256 * 2**20


def _run(
    batch: AttentionBatch,
    plan: Plan,
    wants: int,
    seed: int,
    keep: bool,
    backend: str,
    validate: bool | None,
    max_bytes: int,
) -> Outputs:
    """Run the sweep operator on a batch."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed: given {seed}, needed 0 to 2^63 - 1")
    if validate is None:
        validate = batch.device.type == "cpu"
    if batch.head is not None:
        return sweep_callable(batch, plan, wants, seed, keep, backend, validate, max_bytes)
    if plan.unplaced:
        _place_own(batch, plan, seed, validate)
    results: list[Tensor] = sweep_op(
        *batch.packed,
        *batch.linear_head,
        batch.ids,
        plan.kinds,
        plan.args,
        plan.orders,
        plan.keys,
        seed,
        keep,
        wants,
        backend,
        validate,
    )
    return as_outputs(results, wants)


def _place_own(batch: AttentionBatch, plan: Plan, seed: int, validate: bool) -> None:
    """Give scores to the rows of a plan that no backend computes, for a linear head."""
    names = list(plan.unplaced.values())
    # A compiled or exported graph calls an operator, within which autograd does not work.
    compute = own_scores_op if torch.compiler.is_compiling() else own_scores
    scores = compute(*batch.packed, *batch.linear_head, batch.ids, names, seed, validate)
    for i, row in enumerate(plan.unplaced):
        plan.place(row, scores[i])


def _check_batch(batch: AttentionBatch) -> None:
    if not isinstance(batch, AttentionBatch):
        raise TypeError(f"batch: given {type(batch).__name__}, needed an AttentionBatch")


def rank(
    batch: AttentionBatch,
    ranking: RankingLike,
    *,
    seed: int = 0,
    order: int = 0,
    backend: str = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Tensor:
    """Order the items of each instance, most important first, ties by lower position.

    Args:
        batch: B instances of T items in all.
        ranking: a name ("attention", "gradient", "product", "renormalized_gradient", "random",
            "leave_one_out", "leave_one_out_drop", "greedy", "minimal", one of your own, see
            `register_ranking`, or "module:name"), or ranking scores [T], any float type.
        seed: of the ranking "random", 0 … 2^63 - 1.
        order: the number of the random order, 0 or more.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        [T], int64: positions within the instance.

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
    """
    _check_batch(batch)
    if order < 0:
        raise ValueError(f"order: given {order}, needed 0 or more")
    plan = plan_rankings(batch, (ranking,), 1, first_random=order)
    out = _run(batch, plan, BIT["order"], seed, False, backend, validate, max_bytes)
    assert out.order is not None
    return out.order[0]


def erase_prefixes(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike],
    *,
    curves: Sequence[str] = (),
    direction: str = "erase",
    orders: bool = False,
    logits: bool = False,
    weights: bool = False,
    seed: int = 0,
    random_orders: int = 1,
    backend: str = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> PrefixErasure:
    """Erase every prefix of every ranking and find the first whose erasure changes the decision.

    After erasing the first `k` items of a ranking `r` the logits are
    `z_k = Σ_{j>k} a_{r_j} W h_{r_j} / Σ_{j>k} a_{r_j} + b`, and `b` where no mass survives.

    Args:
        batch: B instances of T items in all.
        rankings: names (as of `rank`), orders int64 [T] (positions within the instance) or ranking
            scores [T] of a float type; or one of them.
        curves: what to return for every prefix, of "js" and "kl" (divergence from the original
            distribution, natural logarithm), "label_prob", "mass", "decision", "logits".
        direction: "erase" the first k, or "keep" only them: the first flip is then the smallest
            k >= 1 whose top k items alone give the original label.
        orders: whether the rankings' orders are returned too.
        logits: whether the original logits are returned too.
        weights: whether the normalised attention weights are returned too.
        seed: of the ranking "random", 0 … 2^63 - 1.
        random_orders: how many rows the ranking "random" stands for, 1 or more.
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
    backend: str = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> ItemErasure:
    """Erase every item alone: `z_{-i} = Σ_{j≠i} a_j W h_j / Σ_{j≠i} a_j + b`.

    Args:
        batch: B instances of T items in all.
        kl: whether KL(without the item ‖ original) is returned too, natural logarithm.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        An `ItemErasure`.

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
        minimal=False,
        backend=backend,
        validate=validate,
        max_bytes=max_bytes,
    ).single
    assert result is not None
    return result


def minimal_flip_set(
    batch: AttentionBatch, *, backend: str = "auto", validate: bool | None = None
) -> MinimalFlipSet:
    """Find the smallest set of items whose erasure changes the decision, exactly.

    For a class `c ≠ y` the best set of a size has the largest margins
    `a_i [(W h_i + b)_y − (W h_i + b)_c]`, so that a sort for each class finds the smallest set.

    Args:
        batch: B instances of T items in all, with a linear head and one attention head.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.

    Returns:
        A `MinimalFlipSet`.

    Raises:
        ValueError: naming the argument, what was given and what is needed; for a callable head
            and for several attention heads, where the sort is not exact.
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
    """
    result = sweep(
        batch, (), single=False, minimal=True, backend=backend, validate=validate
    ).minimal
    assert result is not None
    return result


def sweep(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = ("random", "attention", "gradient", "product"),
    *,
    curves: Sequence[str] = (),
    direction: str = "erase",
    orders: bool = False,
    logits: bool = False,
    weights: bool = False,
    seed: int = 0,
    random_orders: int = 1,
    single: bool = True,
    single_kl: bool = False,
    minimal: bool = True,
    backend: str = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Sweep:
    """Do `erase_prefixes`, `erase_each` and `minimal_flip_set` from one read of the values.

    Args:
        batch: B instances of T items in all.
        rankings, curves, direction, orders, logits, weights, seed, random_orders: as of
            `erase_prefixes`.
        single: whether every item is erased alone.
        single_kl: whether `single` has `kl` too, as of `erase_each`; needs `single`.
        minimal: whether the minimal flipping set is looked for.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        A `Sweep` with `prefixes`, `single` and `minimal`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: Serrano and Smith 2019, sections 4.1 and 4.2.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.6, 0.3, 0.1]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> result = fae.sweep(batch, ["attention"])
    >>> result.prefixes.first_flip.tolist(), result.minimal.size.tolist()
    ([[1]], [1])
    """
    _check_batch(batch)
    if isinstance(rankings, (str, Tensor)):
        rankings = (rankings,)
    if random_orders < 1:
        raise ValueError(f"random_orders: given {random_orders}, needed 1 or more")
    if direction not in ("erase", "keep"):
        raise ValueError(f"direction: given {direction!r}, needed 'erase' or 'keep'")
    if isinstance(curves, str):
        raise TypeError(f"curves: given the string {curves!r}, needed a sequence of names")
    wants = 0
    for curve in curves:
        if curve not in _CURVE_BIT:
            known = ", ".join(repr(name) for name in CURVES)
            raise ValueError(f"curves: given {curve!r}, needed one of {known}")
        wants |= _CURVE_BIT[curve]
    if orders:
        wants |= BIT["order"]
    if logits:
        wants |= BIT["logits"]
    if weights:
        wants |= BIT["weights"]
    if single:
        wants |= _SINGLE_BITS
    if single_kl:
        if not single:
            raise ValueError("single_kl: given True with single=False, needed single=True")
        wants |= BIT["single_kl"]
    if minimal:
        check_minimal(batch, "minimal")
        wants |= _MINIMAL_BITS
    plan = plan_rankings(batch, rankings, random_orders)
    out = _run(batch, plan, wants, seed, direction == "keep", backend, validate, max_bytes)
    offsets = batch.offsets
    prefixes = PrefixErasure(
        tuple(plan.names),
        out.label,
        out.probabilities,
        out.status,
        out.first_flip,
        out.flip_label,
        out.removed_mass,
        {curve: getattr(out, f"curve_{curve}") for curve in curves},
        offsets,
        out.order,
        out.logits,
        out.weights if out.weights is None or batch.num_heads > 1 else out.weights[:, 0],
    )
    items = smallest = None
    if single:
        assert out.single_flip_label is not None
        assert out.single_js is not None
        assert out.single_drop is not None
        items = ItemErasure(
            out.single_flip_label,
            out.single_js,
            out.single_drop,
            out.label,
            out.status,
            offsets,
            out.single_kl,
        )
    if minimal:
        assert out.minimal_size is not None
        assert out.minimal_flip_label is not None
        assert out.minimal_order is not None
        smallest = MinimalFlipSet(
            out.minimal_size,
            out.minimal_flip_label,
            out.minimal_order,
            out.label,
            out.status,
            offsets,
        )
    return Sweep(prefixes, items, smallest)
