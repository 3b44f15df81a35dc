"""Rankings by name: one file each in this folder, those of a caller, and `module:name`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from torch import Tensor

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import OfInstance, Ranking
from fastattnerase.reference.instance import Instance

RANKINGS: dict[str, Ranking] = {}
_BY_KIND: dict[RankingKind, Ranking] = {}


def register(ranking: Ranking, *, overwrite: bool = False) -> None:
    """Make a ranking known under its name.

    The same ranking may be registered again. Another of that name is refused, or replaces it with
    `overwrite`, unless it is one that backends compute; so is another of a kind.
    """
    known = RANKINGS.get(ranking.name)
    if known == ranking:
        return
    if known is not None and not overwrite:
        raise ValueError(
            f"name: given {ranking.name!r}, which is registered already, needed another, or "
            "overwrite=True"
        )
    if known is not None and known.kind is not None:
        raise ValueError(
            f"name: given {ranking.name!r}, which backends compute, needed another name"
        )
    if ranking.kind is not None:
        if ranking.kind in _BY_KIND:
            raise ValueError(
                f"kind: given {ranking.kind.name} for {ranking.name!r}, needed None, where no "
                f"backend computes it, or one that {_BY_KIND[ranking.kind].name!r} has not taken"
            )
        _BY_KIND[ranking.kind] = ranking
    RANKINGS[ranking.name] = ranking


def register_ranking(
    name: str, function: Callable[[Instance], Tensor], *, overwrite: bool = False
) -> None:
    """Make a ranking of your own known by name, on every backend and for every head.

    The function is called on one instance at a time, and the engine takes what it returns as if it
    had been given as a tensor. Its argument has, in float64,

    - `values` [n, H, D], `attention` [n, H] (scores or weights as given), `weights` [n, H] (each
      head's sum to 1), `scores` [n, H]; `n`, `H` (attention heads), `C` (classes), `id`,
      `positions` [n] (0 … n - 1);
    - `logits` [C] and `label` of the original decision, `bias` [C], the logits of nothing;
    - `gradient` [n, H], ∂ p_label / ∂ a; `logits_without(items [m])` [m, C], the logits over
      `items` without each of them; `others(h, items [m], terms [m, K])`, the weighted sums of
      `terms` without each of them [m, K], and their mass [m]; `singles`, what erasing each item
      alone does, its `js`, `kl`, `drop` and `flip_label` [n];
    - with a linear head `contributions` [n, H, C], `W_c · h_i`, and, with one attention head,
      `margins` [n, C], of the label over each class.

    Its tensors are on the CPU, with a callable head on the batch's device. An instance with
    something that is not finite is ordered by position, without a call.

    Calls with such a ranking compile and export: the graph calls the function, by the ranking's
    name, as an operator. Within a graph the function cannot use autograd of its own.

    Args:
        name: what the ranking is called, in calls and in results; without a colon.
        function: from an instance to ranking scores [n] of any float type, the most important
            largest, ties by position, or to an order [n], int64, the most important first.
        overwrite: whether a ranking of that name is replaced, unless backends compute it.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed; when used,
            naming the ranking and the instance, for anything else than scores or an order. NaN in
            scores and orders that are no permutation are refused as in given tensors: with
            `validate=False` they make the instance INVALID.

    `module:name` stands for the function (or `Ranking`) `name` of a module wherever a ranking is
    named, without being registered.

    >>> import torch, fastattnerase as fae
    >>> def value_norm(instance):
    ...     return instance.values.norm(dim=(1, 2))
    >>> fae.register_ranking("my_value_norm", value_norm)
    >>> batch = fae.AttentionBatch(
    ...     torch.tensor([[3.0, 0.0], [0.0, 5.0], [4.0, 0.0]]), torch.tensor([0, 3]),
    ...     weights=torch.ones(3), head_weight=torch.eye(2),
    ... )
    >>> fae.rank(batch, "my_value_norm").tolist()
    [1, 2, 0]
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise ValueError(f"name: given {name!r}, needed a string without a colon")
    if not callable(function):
        raise TypeError(f"function: given {type(function).__name__}, needed a function")
    register(_of_function(name, function), overwrite=overwrite)


def by_kind(kind: RankingKind) -> Ranking:
    """Find the ranking that a backend's kind stands for."""
    return _BY_KIND[kind]


def resolve(name: str) -> Ranking:
    """Find a ranking by its name, or by `module:name`, which imports the module.

    The module is looked for where Python looks, then in the current folder.
    """
    if name not in RANKINGS and ":" in name:
        register(_of_module(name))
    if name not in RANKINGS:
        known = ", ".join(repr(known) for known in RANKINGS)
        raise ValueError(
            f"rankings: given {name!r}, needed one of {known}, 'module:name' of a function, or a "
            "tensor"
        )
    return RANKINGS[name]


def _of_function(name: str, function: Callable[[Instance], Tensor]) -> Ranking:
    doc = (function.__doc__ or "").strip().partition("\n")[0]
    return Ranking(name, None, doc or f"given by a function, {name}", OfInstance(function))


def _of_module(name: str) -> Ranking:
    """Import the ranking that `module:name` stands for."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise ValueError(f"rankings: given {name!r}, needed the form 'module:name'")
    try:
        with _current_folder():
            found: Any = getattr(import_module(module_name), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, but not what it imports
        raise ValueError(
            f"rankings: given {name!r}, needed a module {module_name!r} where Python looks or in "
            "the current folder"
        ) from None
    if isinstance(found, Ranking) and found.kind is None:
        return replace(found, name=name)
    if isinstance(found, Ranking) or not callable(found):
        given = "nothing of that name" if found is None else repr(found)
        raise ValueError(
            f"rankings: given {name!r}, needed a function or a Ranking without a kind; the module "
            f"has {given}"
        )
    return _of_function(name, found)


@contextmanager
def _current_folder() -> Iterator[None]:
    """Let modules be imported from the current folder too, after everywhere else."""
    added = "" not in sys.path
    if added:
        sys.path.append("")
    try:
        yield
    finally:
        if added:
            sys.path.remove("")


def discover() -> None:
    """Register the ranking of every file in this folder."""
    for module in iter_modules(__path__):
        if module.name != "base":
            register(import_module(f"{__name__}.{module.name}").RANKING)


discover()
