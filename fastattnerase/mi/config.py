"""The options of a measurement: what the paper leaves open, with the advised defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fastattnerase.mi.clusters import CANDIDATES, Algorithm, Search
from fastattnerase.mi.grouping import Exclude

_LEAST_SHUFFLES, _MOST_SHUFFLES = 20, 100_000  # fewer have no tails; all are in memory
_MOST_RESTARTS = 1_000
_CHOICES: dict[str, tuple[str, ...]] = {
    "weight_rule": ("kth", "selected"),
    "instances": ("all_ranks", "each_rank"),
    "exclude": ("masked", "zero_weight", "none"),
    "codebook": ("rank", "shared"),
    "algorithm": ("full", "mini_batch"),
    "output": ("auto", "clusters", "classes"),
    "output_space": ("logit", "probability"),
    "constant_attention": ("error", "undefined", "by_position"),
}


@dataclass(frozen=True)
class Config:
    """How mutual information is measured; what the paper leaves open is an option.

    Args:
        seed: of k-means, of the shuffles and of the sample for a shared codebook; 0 to 2³² - 1.
        ranks: how many ranks are measured, or the rule. `weights`: the largest `k` at which
            `weight_share` of the instances have a `k`-th weight above `weight_threshold`, the
            second of the paper's two statements. `length`: the `length_percentile` of the lengths,
            rounded down. `both`: the smaller of the two, the paper's first statement.
        weight_rule: what the share is of. `kth`: of all instances, those with a `k`-th weight
            above the threshold. `selected`: of all weights of the ranks 1 … k.
        weight_share, weight_threshold, length_percentile: of these rules.
        max_ranks: no rank beyond it is kept on disk or measured; None for no limit.
        instances: `all_ranks`: those with at least `k` items, so that all ranks have the same
            number of samples and estimates the same bias. `each_rank`: for each rank all that have
            it.
        exclude: items that are not ranked; see `group`.
        clusters: of the states, one number for all ranks: see `quantise`; a number from 2 fixes
            it.
        candidates: from which `clusters` is chosen.
        codebook: `rank`: one for each rank. `shared`: one for all, fitted on `codebook_samples`
            states, as many of each rank.
        algorithm: of k-means for the states.
        restarts: of k-means for the states, 1 to 1,000.
        output: `clusters`: the outputs are quantised by k-means too. `classes`: the predicted
            class. `auto`: clusters of two-class models, classes of others.
        output_space: what is clustered: the `logit` (difference of two logits; logits less their
            mean where there are more classes) or the `probability`.
        output_clusters: of the outputs.
        shuffles: of the control, in which outputs are permuted: 0 for none, or 20 to 100,000, of
            which an interval can be told.
        confidence: of the control's intervals.
        constant_attention: where the ranks' weights are all equal, no correlation with them is
            defined. `error`: raise. `undefined`: report that. `by_position`: ranks, whose ties
            are broken by position, stand in for the weights' order.
        backend: of the engine.

    Raises:
        ValueError: a value out of range, naming it.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 3.2.1.

    Example:
        >>> from fastattnerase.mi import Config
        >>> Config(clusters=50).output
        'auto'
    """

    seed: int = 0
    ranks: int | Literal["both", "weights", "length"] = "both"
    weight_rule: Literal["kth", "selected"] = "kth"
    weight_share: float = 0.8
    weight_threshold: float = 1e-5
    length_percentile: float = 10.0
    max_ranks: int | None = None
    instances: Literal["all_ranks", "each_rank"] = "all_ranks"
    exclude: Exclude = "masked"
    clusters: int | Search = "largest"
    candidates: tuple[int, ...] = CANDIDATES
    codebook: Literal["rank", "shared"] = "rank"
    codebook_samples: int = 20_000
    algorithm: Algorithm = "full"
    restarts: int = 1
    output: Literal["auto", "clusters", "classes"] = "auto"
    output_space: Literal["logit", "probability"] = "logit"
    output_clusters: int = 5
    shuffles: int = 100
    confidence: float = 0.95
    constant_attention: Literal["error", "undefined", "by_position"] = "error"
    backend: str = "auto"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # as scikit-learn takes it
            raise ValueError(f"seed is {self.seed}; it must be 0 to 2**32 - 1")
        for name, rules, least in (
            ("ranks", ("both", "weights", "length"), 1),
            ("clusters", ("largest", "smallest"), 2),  # one cluster informs about nothing
        ):
            value = getattr(self, name)
            if value not in rules if isinstance(value, str) else value < least:
                raise ValueError(
                    f"{name} is {value!r}; it must be {', '.join(rules)} or a number from {least}"
                )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be {', '.join(choices[:-1])} or "
                    f"{choices[-1]}"
                )
        for name, least in (
            ("max_ranks", 1),
            ("codebook_samples", 1),
            ("restarts", 1),
            ("output_clusters", 2),
            ("shuffles", 0),
            ("weight_threshold", 0),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ValueError(f"{name} is {value}; it must be a number from {least}")
        if not self.candidates or min(self.candidates) < 2:
            raise ValueError(f"candidates is {self.candidates}; needed are numbers from 2")
        if not 0 < self.weight_share <= 1:
            raise ValueError(f"weight_share is {self.weight_share}; it must be above 0, at most 1")
        if not 0 <= self.length_percentile <= 100:
            raise ValueError(
                f"length_percentile is {self.length_percentile}; it must lie between 0 and 100"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence}; it must lie between 0 and 1")
        if self.shuffles and not _LEAST_SHUFFLES <= self.shuffles <= _MOST_SHUFFLES:
            raise ValueError(
                f"shuffles is {self.shuffles}; it must be 0, for no control, or {_LEAST_SHUFFLES} "
                f"to {_MOST_SHUFFLES:,}"
            )
        if self.restarts > _MOST_RESTARTS:
            raise ValueError(f"restarts is {self.restarts}; it must be at most {_MOST_RESTARTS:,}")
