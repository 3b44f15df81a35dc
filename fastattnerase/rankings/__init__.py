"""The rankings that come with the engine: one file each, found and registered by name."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import Ranking

RANKINGS: dict[str, Ranking] = {}
_BY_KIND: dict[RankingKind, Ranking] = {}


def register(ranking: Ranking) -> None:
    """Make a ranking known under its name; a name or kind taken already is refused."""
    if ranking.name in RANKINGS:
        raise ValueError(f"ranking {ranking.name!r} is registered already")
    if ranking.kind in _BY_KIND:
        raise ValueError(
            f"ranking {ranking.name!r}: kind {ranking.kind.name} is taken by "
            f"{_BY_KIND[ranking.kind].name!r}"
        )
    RANKINGS[ranking.name] = ranking
    _BY_KIND[ranking.kind] = ranking


def by_kind(kind: RankingKind) -> Ranking:
    """Find the ranking that a backend's kind stands for."""
    return _BY_KIND[kind]


for _module in iter_modules(__path__):
    if _module.name != "base":
        register(import_module(f"{__name__}.{_module.name}").RANKING)
