"""All of the engine's results for a batch, one instance at a time (engine contract, section 6)."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.problem import RESULTS, Outputs, Problem, RankingKind
from fastattnerase.rankings import by_kind
from fastattnerase.rankings.base import OrderContext, descending
from fastattnerase.reference.divergence import js_divergence, kl_divergence
from fastattnerase.reference.instance import Instance, LinearInstance
from fastattnerase.reference.minimal import minimal
from fastattnerase.reference.prefixes import Prefixes, prefixes
from fastattnerase.reference.single import singles
from fastattnerase.status import Status


def sweep(problem: Problem, out: Outputs) -> None:
    """Fill every wanted result; all tensors are on the CPU."""
    for index in range(len(problem.ids)):
        if is_invalid(problem, index):
            fill_invalid(problem, out, index)
        else:
            sweep_instance(problem, out, index)


def is_permutation(order: Tensor) -> bool:
    """Whether `order` [n] holds each of 0 … n - 1 once."""
    return bool((order.sort().values == torch.arange(len(order))).all())


def is_invalid(problem: Problem, index: int) -> bool:
    """Whether an unchecked instance has a negative weight or an unusable ranking."""
    items = item_range(problem, index)
    if not problem.is_scores and bool((problem.attention[items] < 0).any()):
        return True
    for kind, arg in zip(problem.rankings, problem.ranking_args, strict=True):
        if kind == RankingKind.GIVEN_ORDER and not is_permutation(problem.orders[arg][items]):
            return True
        if kind == RankingKind.GIVEN_KEYS and bool(problem.keys[arg][items].isnan().any()):
            return True
    return False


def item_range(problem: Problem, index: int) -> slice:
    """The rows of an instance's items."""
    return slice(int(problem.offsets[index]), int(problem.offsets[index + 1]))


def point_range(problem: Problem, index: int) -> slice:
    """The columns of an instance's curve points."""
    items = item_range(problem, index)
    return slice(items.start + index, items.stop + index + 1)


def fill_invalid(problem: Problem, out: Outputs, index: int) -> None:
    """Write -1 and NaN everywhere and say why."""
    items = item_range(problem, index)
    for line in RESULTS:
        tensor = getattr(out, line.name)
        if tensor is not None:
            tensor[line.place(index, items)] = -1 if line.dtype == "integer" else torch.nan
    count = items.stop - items.start
    status = Status.INVALID | (Status.SINGLE if count == 1 else Status(0))
    out.status[index] = int(status)


def sweep_instance(problem: Problem, out: Outputs, index: int) -> None:
    """Fill the results of one valid instance."""
    items, points = item_range(problem, index), point_range(problem, index)
    instance = LinearInstance(problem, index)
    status = instance.status
    out.label[index] = instance.label
    nan = torch.full_like(instance.bias, torch.nan)
    original = instance.logits if instance.finite else nan  # [C]
    out.probabilities[index] = original.softmax(0)
    if out.logits is not None:
        out.logits[index] = original
    if out.weights is not None:
        bad = instance.bad_attention[:, None]  # [n, 1]
        out.weights[items] = instance.weights.masked_fill(bad, torch.nan)

    for row in range(len(problem.rankings)):
        order = order_of(problem, instance, items, row)
        if out.order is not None:
            out.order[row, items] = order
        result = prefixes(instance, order, problem.keep)
        out.first_flip[row, index] = result.first_flip
        out.flip_label[row, index] = result.flip_label
        out.removed_mass[row, index] = result.removed_mass
        fill_curves(out, instance, original, result, row, points)
        if result.near_tie:
            status |= Status.NEAR_TIE

    if (
        out.single_flip_label is not None
        or out.single_js is not None
        or out.single_kl is not None
        or out.single_drop is not None
    ):
        single = singles(instance)
        for tensor, values in (
            (out.single_flip_label, single.flip_label),
            (out.single_js, single.js),
            (out.single_kl, single.kl),
            (out.single_drop, single.drop),
        ):
            if tensor is not None:
                tensor[items] = values.to(tensor.dtype)
        if single.near_tie:
            status |= Status.NEAR_TIE

    if (
        out.minimal_size is not None
        or out.minimal_flip_label is not None
        or out.minimal_order is not None
    ):
        smallest = minimal(instance)
        if out.minimal_size is not None:
            out.minimal_size[index] = smallest.size
        if out.minimal_flip_label is not None:
            out.minimal_flip_label[index] = smallest.flip_label
        if out.minimal_order is not None:
            out.minimal_order[items] = smallest.order
        if smallest.near_tie:
            status |= Status.NEAR_TIE

    out.status[index] = int(status)


def order_of(problem: Problem, instance: Instance, items: slice, row: int) -> Tensor:
    """The order of an instance's items under ranking `row`: [n]."""
    kind, arg = problem.rankings[row], problem.ranking_args[row]
    if kind == RankingKind.GIVEN_ORDER:
        return problem.orders[arg][items]
    if kind == RankingKind.GIVEN_KEYS:
        return descending(problem.keys[arg][items].double())
    return by_kind(kind).order(instance, OrderContext(seed=problem.seed, arg=arg))


def fill_curves(
    out: Outputs, instance: Instance, original: Tensor, result: Prefixes, row: int, points: slice
) -> None:
    """Write the wanted curves of one instance under one ranking."""
    if out.curve_js is not None:
        out.curve_js[row, points] = js_divergence(result.logits, original).to(out.curve_js.dtype)
    if out.curve_kl is not None:
        out.curve_kl[row, points] = kl_divergence(result.logits, original).to(out.curve_kl.dtype)
    if out.curve_label_prob is not None:
        if instance.finite:
            prob = result.logits.softmax(1)[:, instance.label]  # [n + 1]
        else:
            prob = torch.full_like(result.mass, torch.nan)
        out.curve_label_prob[row, points] = prob.to(out.curve_label_prob.dtype)
    if out.curve_mass is not None:
        out.curve_mass[row, points] = result.mass
    if out.curve_decision is not None:
        out.curve_decision[row, points] = result.decision
    if out.curve_logits is not None:
        out.curve_logits[row, points] = result.logits.to(out.curve_logits.dtype)
