"""The options of a measurement: what the paper leaves open, with the advised defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fastattnerase.fields import wrong_choices

Algorithm = Literal["full", "mini_batch"]
Search = Literal["largest", "smallest"]
Exclude = Literal["masked", "zero_weight", "none"]
KIND = "mutual_information"  # of a run, in its record
TABLES = ("ranks", "correlations", "outputs", "instances")
CANDIDATES = (50, 75, 100, 150, 200)

# The stages of a measurement, for who watches, and how long they take against each other.
RANKING, CLUSTERING, MEASURING = "ranking states", "clustering", "measuring"
REWEIGHING, REPEATING = "recomputing outputs", "measuring again"
COSTS = {RANKING: 2.0, CLUSTERING: 6.0, MEASURING: 2.0, REWEIGHING: 3.0, REPEATING: 20.0}

_LEAST_SHUFFLES, _MOST_SHUFFLES = 20, 100_000  # fewer have no tails; all are in memory
_MOST_RESTARTS = 1_000


@dataclass(frozen=True)
class Config:
    """How mutual information is measured; what the paper leaves open is an option.

    Attributes:
        seed: Seed of k-means, of the shuffles and of the sample for a shared codebook; 0 to
            2³² - 1.
        ranks: How many attention ranks are measured: a number, or a rule. `weights`: the largest
            number k at which a share `weight_share` of the instances have a k-th weight above
            `weight_threshold`, the second of the paper's two statements. `length`: the percentile
            `length_percentile` of the lengths, rounded down. `both`: the smaller of the two, the
            paper's first statement.
        weight_rule: What that share is of. `kth`: of all instances, those with a k-th weight above
            the threshold. `selected`: of all weights of the ranks 1 to k.
        weight_share: Share of the rule by weights; see `ranks`.
        weight_threshold: Smallest weight of the rule by weights; see `ranks`.
        length_percentile: Percentile of the rule by length; see `ranks`.
        max_ranks: Ranks beyond this one are neither kept on disk nor measured; by default all are.
        instances: Which instances are measured. `all_ranks`: those that have all ranks, so that
            every rank has the same number of samples and estimates have the same bias.
            `each_rank`: for each rank all that have it.
        exclude: Items that are not ranked: `masked`, `zero_weight` or `none`.
        clusters: Clusters of the states of every rank: a number from 2, or the `largest` or
            `smallest` of `candidates` that leaves two samples to each cluster.
        candidates: Numbers of clusters to choose from.
        codebook: Clusters of states: one codebook for each `rank`; or one `shared` by all, fitted
            on `codebook_samples` states, as many of each rank.
        codebook_samples: States that a shared codebook is fitted on.
        algorithm: Algorithm of k-means for the states: `full` or `mini_batch`.
        restarts: Restarts of k-means for the states, 1 to 1,000.
        output: What stands for an output. `clusters`: the cluster that k-means puts it in.
            `classes`: the predicted class. `auto`: clusters of two-class models, classes of others.
        output_space: What is clustered of outputs: the `logit` (difference of two logits; logits
            less their mean where there are more classes) or the `probability`.
        output_clusters: Clusters of the outputs.
        shuffles: Number of shuffles of the outputs for the null distribution, 20 to 100,000; 0
            skips the control, and without it no difference is tested against chance.
        kmeans_seeds: Under how many seeds k-means runs, of states and of outputs; tau of each is in
            the table `repeats` of a run. 1: under `seed` alone.
        permutations: How many times the weights are permuted within each instance and the outputs
            computed anew, for the null in which attention knows nothing and its weights still enter
            the output. 0 skips this null and those of equal weights and untrained attention.
        confidence: Confidence of the control's intervals.
        constant_attention: What happens where the ranks' weights are all equal, so that no
            correlation with them is defined. `error`: an error. `undefined`: the result says so.
            `by_position`: ranks, whose ties are broken by position, stand in for the weights'
            order.
        backend: Backend of the engine: auto, or a name that `fastattnerase info` prints.

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
    kmeans_seeds: int = 5
    permutations: int = 5
    confidence: float = 0.95
    constant_attention: Literal["error", "undefined", "by_position"] = "error"
    backend: str = "auto"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # as scikit-learn takes it
            raise ValueError(f"seed: given {self.seed}, needed 0 to 2**32 - 1")
        for problem in wrong_choices(self):
            raise ValueError(problem)
        for name, least in (
            ("ranks", 1),
            ("clusters", 2),  # one cluster informs about nothing
            ("max_ranks", 1),
            ("codebook_samples", 1),
            ("restarts", 1),
            ("output_clusters", 2),
            ("shuffles", 0),
            ("kmeans_seeds", 1),
            ("permutations", 0),
            ("weight_threshold", 0),
        ):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str) or least <= value < math.inf):
                raise ValueError(f"{name}: given {value}, needed a number from {least}")
        if not self.candidates or min(self.candidates) < 2:
            raise ValueError(f"candidates: given {self.candidates}, needed numbers from 2")
        if not 0 < self.weight_share <= 1:
            raise ValueError(f"weight_share: given {self.weight_share}, needed a share in (0, 1]")
        if not 0 <= self.length_percentile <= 100:
            raise ValueError(
                f"length_percentile: given {self.length_percentile}, needed a number from 0 to 100"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence: given {self.confidence}, needed a number in (0, 1)")
        if self.shuffles and not _LEAST_SHUFFLES <= self.shuffles <= _MOST_SHUFFLES:
            raise ValueError(
                f"shuffles: given {self.shuffles}, needed 0, for no control, or {_LEAST_SHUFFLES} "
                f"to {_MOST_SHUFFLES:,}"
            )
        if self.restarts > _MOST_RESTARTS:
            raise ValueError(f"restarts: given {self.restarts}, needed at most {_MOST_RESTARTS:,}")
