"""By the drop of the label's probability that erasing the item alone causes."""

from __future__ import annotations

from fastattnerase.problem import RankingKind
from fastattnerase.rankings.base import Ranking, by_key

RANKING = Ranking(
    name="leave_one_out_drop",
    kind=RankingKind.LEAVE_ONE_OUT_DROP,
    doc="drop of the label's probability of erasing item i alone",
    order=by_key(lambda instance: instance.singles.drop),
)
