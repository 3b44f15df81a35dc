"""All of the engine's results for a batch, one instance at a time (engine contract, section 6)."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.problem import RESULTS, Outputs, Problem, RankingKind
from fastattnerase.rankings import by_kind
from fastattnerase.rankings.base import OrderContext, descending
from fastattnerase.reference.instance import Instance, LinearInstance
from fastattnerase.reference.minimal import minimal
from fastattnerase.reference.prefixes import CURVES, prefixes
from fastattnerase.status import Status


def sweep(problem: Problem, out: Outputs) -> None:
    """Fill every wanted result; all tensors are on the CPU."""
    for index in range(len(problem.ids)):
        if is_invalid(problem, index):
            fill_invalid(problem, out, index)
        else:
            sweep_instance(problem, out, index)


def is_permutation(order: Tensor) -> bool:
    """Say whether `order` [n] holds each of 0 … n - 1 once."""
    return bool((order.sort().values == torch.arange(len(order))).all())


def is_invalid(problem: Problem, index: int) -> bool:
    """Say whether an unchecked instance has a negative weight or an unusable ranking."""
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
    """Find the rows of an instance's items."""
    return slice(int(problem.offsets[index]), int(problem.offsets[index + 1]))


def point_range(problem: Problem, index: int) -> slice:
    """Find the columns of an instance's curve points."""
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
    label = torch.full((instance.n + 1,), instance.label)  # [n + 1], of every point
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
        for name, tensor in out.wanted("curve_").items():
            if name in CURVES:
                curve = CURVES[name](result.logits, original, label)
                tensor[row, points] = curve.to(tensor.dtype)
            else:
                tensor[row, points] = getattr(result, name)
        if result.near_tie:
            status |= Status.NEAR_TIE

    alone = out.wanted("single_")
    if alone:
        for name, tensor in alone.items():
            tensor[items] = getattr(instance.singles, name).to(tensor.dtype)
        if instance.singles.near_tie:
            status |= Status.NEAR_TIE

    sets = out.wanted("minimal_")
    if sets:
        smallest = minimal(instance)
        for name, tensor in sets.items():
            tensor[items if name == "order" else index] = getattr(smallest, name)
        if smallest.near_tie:
            status |= Status.NEAR_TIE

    out.status[index] = int(status)


def order_of(problem: Problem, instance: Instance, items: slice, row: int) -> Tensor:
    """Order an instance's items by ranking `row`: [n]."""
    kind, arg = problem.rankings[row], problem.ranking_args[row]
    if kind == RankingKind.GIVEN_ORDER:
        return problem.orders[arg][items]
    if kind == RankingKind.GIVEN_KEYS:
        return descending(problem.keys[arg][items].double())
    return by_kind(kind).order(instance, OrderContext(seed=problem.seed, arg=arg))
