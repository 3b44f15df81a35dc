"""By the JS divergence that erasing the item alone causes."""

from __future__ import annotations

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import Ranking, by_key

RANKING = Ranking(
    name="leave_one_out",
    kind=RankingKind.LEAVE_ONE_OUT,
    doc="JS divergence of erasing item i alone",
    order=by_key(lambda instance: instance.singles.js),
)
