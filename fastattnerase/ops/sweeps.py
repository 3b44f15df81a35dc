"""The sweep: what its arguments mean, and what it returns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, overload

from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName, CurveName, Directions
from fastattnerase.ops.emptied import Empty
from fastattnerase.ops.groups import group_items
from fastattnerase.ops.plan import RankingLike, check_minimal, plan_rankings, why_no_minimal
from fastattnerase.ops.results import ItemErasure, MinimalFlipSet, PrefixErasure, Sweep
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, check_batch
from fastattnerase.ops.ways import way_to_run
from fastattnerase.problem import BIT

_CURVE_BIT = {
    name.removeprefix("curve_"): bit for name, bit in BIT.items() if name.startswith("curve_")
}
CURVES: tuple[CurveName, ...] = get_args(CurveName)
_SINGLE_BITS = BIT["single_flip_label"] | BIT["single_js"] | BIT["single_drop"]
_MINIMAL_BITS = BIT["minimal_size"] | BIT["minimal_flip_label"] | BIT["minimal_order"]


# By default there is a minimal set where one exists: checkers take it as there.
@overload
def sweep(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = ...,
    *,
    curves: CurveName | Sequence[CurveName] = ...,
    direction: Directions = ...,
    orders: bool = ...,
    logits: bool = ...,
    weights: bool = ...,
    seed: int = ...,
    random_orders: int = ...,
    groups: Tensor | None = ...,
    renormalize: bool = ...,
    empty: Empty = ...,
    single: Literal[True] = ...,
    single_kl: bool = ...,
    minimal: Literal[True],
    backend: BackendName = ...,
    validate: bool | None = ...,
    max_bytes: int = ...,
) -> Sweep[ItemErasure, MinimalFlipSet]: ...
@overload
def sweep(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = ...,
    *,
    curves: CurveName | Sequence[CurveName] = ...,
    direction: Directions = ...,
    orders: bool = ...,
    logits: bool = ...,
    weights: bool = ...,
    seed: int = ...,
    random_orders: int = ...,
    groups: Tensor | None = ...,
    renormalize: bool = ...,
    empty: Empty = ...,
    single: Literal[True] = ...,
    single_kl: bool = ...,
    minimal: None = ...,
    backend: BackendName = ...,
    validate: bool | None = ...,
    max_bytes: int = ...,
) -> Sweep[ItemErasure, MinimalFlipSet | Any]: ...
@overload
def sweep(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = ...,
    *,
    curves: CurveName | Sequence[CurveName] = ...,
    direction: Directions = ...,
    orders: bool = ...,
    logits: bool = ...,
    weights: bool = ...,
    seed: int = ...,
    random_orders: int = ...,
    groups: Tensor | None = ...,
    renormalize: bool = ...,
    empty: Empty = ...,
    single: bool = ...,
    single_kl: bool = ...,
    minimal: bool | None = ...,
    backend: BackendName = ...,
    validate: bool | None = ...,
    max_bytes: int = ...,
) -> Sweep: ...
def sweep(
    batch: AttentionBatch,
    rankings: RankingLike | Sequence[RankingLike] = ("random", "attention", "gradient", "product"),
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
    single: bool = True,
    single_kl: bool = False,
    minimal: bool | None = None,
    backend: BackendName = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Sweep[Any, Any]:
    """Do `erase_prefixes`, `erase_each` and `minimal_flip_set` from one read of the values.

    Args:
        batch: B instances of T items in all.
        rankings, curves, direction, orders, logits, weights, seed, random_orders, groups,
            renormalize, empty: as of `erase_prefixes`.
        single: whether every item is erased alone.
        single_kl: whether `single` has `kl` too, as of `erase_each`; needs `single`.
        minimal: whether the minimal flipping set is looked for; None: where it exists, which is
            with a linear head and one attention head (any number with `renormalize=False`).
            Elsewhere it is left out, `why_no_minimal` of the result says why, and True raises.
        backend: "auto" or the name of one; see `backends()`.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        A `Sweep` with `prefixes`, `single` and `minimal`, None where left out.

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
    check_batch(batch)
    if batch.head is None and batch.num_classes == 1:
        warnings.warn(
            "batch: one output, so nothing can flip; where it crosses a threshold says "
            "cross_threshold; a two-class model with one logit is binary_head(w, b), for capture "
            "head=fae.binary_head(layer.weight, layer.bias)",
            stacklevel=2,
        )
    if isinstance(rankings, (str, Tensor)):
        rankings = (rankings,)
    if random_orders < 1:
        raise ValueError(f"random_orders: given {random_orders}, needed 1 or more")
    if direction not in ("erase", "keep", "both"):
        raise ValueError(f"direction: given {direction!r}, needed 'erase', 'keep' or 'both'")
    if isinstance(curves, str):
        curves = (curves,)
    if isinstance(rankings, Mapping):
        raise TypeError(
            f"rankings: given a {type(rankings).__name__}, needed names and tensors in a list; a "
            "ranking of a name of your own is fae.register_ranking(name, function)"
        )
    for name, given in (("rankings", rankings), ("curves", curves)):
        if not isinstance(given, (tuple, list, Iterable)):  # the abstract class is slow to ask
            raise TypeError(f"{name}: given {type(given).__name__}, needed one or a sequence")
    curves = tuple(curves)
    wants = 0
    for curve in curves:
        if curve not in _CURVE_BIT:
            known = ", ".join(repr(name) for name in CURVES)
            raise ValueError(f"curves: given {curve!r}, needed one of {known}")
        wants |= _CURVE_BIT[curve]
    curve_bits = wants
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
    left_out = "not asked for: minimal=False" if minimal is False else ""
    if minimal:
        check_minimal(batch, "minimal", renormalize)
    elif minimal is None:
        left_out = why_no_minimal(batch, renormalize)
    if not left_out:
        wants |= _MINIMAL_BITS
    made = None
    if groups is not None:
        batch, made = group_items(batch, groups)
        rankings = made.of_groups(rankings)
    plan = plan_rankings(batch, rankings, random_orders, renormalize=renormalize)
    run = way_to_run(batch, renormalize, empty)
    out = run(batch, plan, wants, seed, direction == "keep", backend, validate, max_bytes)
    kept = None
    if direction == "both" and curves:
        kept = run(batch, plan, curve_bits, seed, True, backend, validate, max_bytes)
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
        "keep" if direction == "keep" else "erase",
        {} if kept is None else {curve: getattr(kept, f"curve_{curve}") for curve in curves},
        made,
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
            batch.padded_positions,
            made,
        )
    if not left_out:
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
            out.minimal_size,  # the sort finds no set that is not the smallest
            made,
        )
    return Sweep(prefixes, items, smallest, left_out)
