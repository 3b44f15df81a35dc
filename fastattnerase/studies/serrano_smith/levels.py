"""How sure the comparisons of a run are: levels of the bootstrap of seeds and instances."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.statistics.resampled import Floats
from fastattnerase.statistics.two_level import SeedBootstrap, less
from fastattnerase.studies.serrano_smith.columns import fractions, seed_sizes
from fastattnerase.studies.serrano_smith.config import LEAST_DIFFERENCE
from fastattnerase.studies.serrano_smith.instance_tables import read_columns
from fastattnerase.studies.serrano_smith.result import Result

with needs("text"):
    import pandas as pd


class Levels:
    """Two-sided levels of the comparisons that findings make on a run.

    Resamples are those of instances, and of seeds first where the run joins several. Of a run whose
    instances are `N` the level of a comparison is that of a mean or of a difference of medians
    against 0.

    Args:
        result: a finished run.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.result import load
        >>> Levels(load(Path("run"))).median("gradient", "attention")  # doctest: +SKIP
        0.0002
    """

    def __init__(self, result: Result) -> None:
        self._result = result
        self._medians: dict[str, Floats] = {}
        config = result.run.config
        self._bootstrap = SeedBootstrap(
            seed_sizes(result),
            seed=config.seed,
            resamples=config.resamples,
            confidence=config.confidence,
        ).finer

    def forget(self) -> None:
        """Drop the resamples, which are large; the medians that were asked for stay."""
        self._bootstrap.forget()

    def median(self, ranking: str, other: str, beside: Levels | None = None) -> float | None:
        """Compare the median fractions of two rankings, what never flips beyond every fraction.

        Args:
            ranking: the one.
            other: the other.
            beside: of the run of the other; by default of the same. Two runs on the same documents
                are resampled together.

        Returns:
            The level; None where no instance was analysed, or two runs have other numbers of
            resamples.
        """
        first, second = self._median(ranking), (beside or self)._median(other)
        if len(first) != len(second):  # other numbers of resamples
            return None
        return self._bootstrap.compared(less(first, second), 0.0).p

    def largest_median(self, ranking: str, others: Sequence[str]) -> float | None:
        """Compare the median of a ranking with the largest of others'; see `median`."""
        most = np.max([self._median(other) for other in others], axis=0)
        return self._bootstrap.compared(less(self._median(ranking), most), 0.0).p

    def _median(self, ranking: str) -> Floats:
        """Give the median of a ranking's fractions in the sample and its resamples, `[1 + R]`."""
        if ranking not in self._medians:
            of_ranking = fractions(self._result, ranking)
            self._medians[ranking] = self._bootstrap.values(of_ranking, "median")
        return self._medians[ranking]

    def times(self, ranking: str, other: str, factor: float) -> float | None:
        """Compare how often a ranking needs fewer items with `factor` times how often another."""
        wins, losses, _ = self._pair(ranking, other)
        return self._mean(wins - factor * losses)

    def over_half(self, ranking: str, other: str) -> float | None:
        """Compare the share in which a ranking needs fewer items, of those that either of the two
        flips, with a half."""
        wins, _, judged = self._pair(ranking, other)
        return self._mean(wins - 0.5 * judged)

    def _pair(self, ranking: str, other: str) -> tuple[Floats, Floats, Floats]:
        """Say where each of two rankings needs fewer items, and where either flips; `[N]` each."""
        first, second = (fractions(self._result, name)[:, 0] for name in (ranking, other))
        wins, losses = first < second, second < first
        judged = np.isfinite(first) | np.isfinite(second)
        return wins.astype(np.float64), losses.astype(np.float64), judged.astype(np.float64)

    def top_item(self) -> float | None:
        """Compare how often the item with most attention flips alone, and how often another one
        does, in exact expectation over the others."""
        top, other = self._alone
        return self._mean(top - other)

    def neither(self) -> float | None:
        """Compare the share in which neither of the two flips alone with a half, likewise."""
        top, other = self._alone
        return self._mean((1 - top) * (1 - other) - 0.5)

    def negative(self, share: float) -> float | None:
        """Compare the share of negative ΔJS with another, likewise; as drawn of a run that is
        older than that column."""
        column = "others_larger_share"
        exact = self._result.single["attention"].expected_negative.value is not None
        if exact:
            below = self._read([column])[column].to_numpy()
        else:
            below = self._read(["delta_js"])["delta_js"].to_numpy() < -LEAST_DIFFERENCE
        return self._mean(np.asarray(below, dtype=np.float64)[:, None] - share)

    @cached_property
    def _alone(self) -> tuple[Floats, Floats]:
        """Say whether the top item flips alone, and which share of the others does; `[N, 1]`."""
        table = self._read(["flip_label", "others_flip_share"])
        top = np.asarray(table["flip_label"] >= 0, dtype=np.float64)
        return top[:, None], table["others_flip_share"].to_numpy()[:, None]

    def _read(self, columns: list[str]) -> pd.DataFrame:
        return read_columns(self._result.folder, "single", columns, "attention")

    def _mean(self, sample: Floats) -> float | None:
        """Compare the mean of the instances with 0."""
        return self._bootstrap.against(sample, 0.0).p if len(sample) else None
