"""Tables of what a sceptic asks: learned attention against nulls, spread and fit of k-means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastattnerase.data.prepared import PreparedData
from fastattnerase.statistics.paired import compare
from fastattnerase.studies.wen import paper
from fastattnerase.studies.wen.columns import Layout, same
from fastattnerase.studies.wen.rows import SAME, TAUS, GumbelRow, Measured, TauName
from fastattnerase.studies.wen.words import number

# In sentences, by the name in tables.
_WORDS = {
    "permuted": "weights permuted within each instance (outputs recomputed)",
    "equal": "the outputs of equal weights",
    "untrained": "untrained attention",
    "gumbel_noise": "Gumbel noise on equal scores",
}
# What stands for attention that learned nothing, by the name in tables.
NULL_TAUS: dict[str, Callable[[Measured, TauName], float]] = {
    "permuted": lambda row, tau: row.tau(tau).repeats.permuted,
    "equal": lambda row, tau: row.tau(tau).repeats.equal,
    "untrained": lambda row, tau: row.tau(tau).repeats.untrained,
}


@dataclass(frozen=True)
class NullRow:
    """Learned attention against a null, model by model, a row of `nulls`.

    Attributes:
        null: `permuted`: weights permuted within each instance, outputs computed anew, mean of the
            draws. `equal`: outputs of equal weights. `untrained`: untrained attention.
            `gumbel_noise`: equal scores with Gumbel noise on.
        tau: Which tau.
        models: Number of models with both taus.
        exceeds: Number of these whose tau is higher than the null's.
        below: Number of these whose tau is lower.
        learned: Mean tau of the models.
        null_mean: Mean tau of the null.
        difference: Mean difference.
        error: Standard error of the mean difference; NaN of one model.
        p_sign: Two-sided probability of such counts where neither is higher, of the sign test.
    """

    null: str
    tau: TauName
    models: int
    exceeds: int
    below: int
    learned: float
    null_mean: float
    difference: float
    error: float
    p_sign: float

    @property
    def sentence(self) -> str:
        """Say in how many models learned attention exceeds this null, and by how much."""
        error = "" if math.isnan(self.error) else f" ± {number(self.error)}"
        return (
            f"With learned attention {self.tau} tau is higher than with {_WORDS[self.null]} in "
            f"{self.exceeds} of {self.models} models and lower in {self.below}: mean "
            f"{number(self.learned)} against {number(self.null_mean)}, a difference of "
            f"{number(self.difference)}{error}, sign test p = {self.p_sign:.2g}."
        )


def null_rows(softmax: Sequence[Measured], gumbel: Sequence[GumbelRow]) -> list[NullRow]:
    """Pair each model's tau with that of each null; a null that was not measured has no row.

    Args:
        softmax: normal models with softmax attention.
        gumbel: models with softmax beside Gumbel-softmax.
    """
    rows = []
    for tau in TAUS:
        pairs = {
            name: [(row.tau(tau).value, null(row, tau)) for row in softmax]
            for name, null in NULL_TAUS.items()
        }
        pairs["gumbel_noise"] = [
            (row.softmax.tau(tau).value, row.equal_scores.tau(tau).value) for row in gumbel
        ]
        for name, both in pairs.items():
            known = np.array([p for p in both if not any(map(math.isnan, p))]).reshape(-1, 2)
            if len(known):
                rows.append(_paired(name, tau, known))
    return rows


def _paired(null: str, tau: TauName, taus: np.ndarray) -> NullRow:
    """Compare taus [n, 2], the models' own and the null's."""
    difference = taus[:, 0] - taus[:, 1]  # [n]
    exceeds, below = int((difference > SAME).sum()), int((difference < -SAME).sum())
    n = len(taus)
    error = float(difference.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return NullRow(
        null,
        tau,
        n,
        exceeds,
        below,
        float(taus[:, 0].mean()),
        float(taus[:, 1].mean()),
        float(difference.mean()),
        error,
        compare(exceeds, below).p_sign,
    )


@dataclass(frozen=True)
class RepeatRow:
    """How far tau moves with the seed of k-means, the models of a data set, a row of `repeats`.

    Attributes:
        dataset: The data set, or `all`.
        tau: Which tau.
        models: Number of models measured under several seeds.
        difference: Mean absolute difference between two seeds.
        largest: Largest difference.
    """

    dataset: str
    tau: TauName
    models: int
    difference: float
    largest: float

    @property
    def paper_difference(self) -> float:
        """The paper's mean absolute difference of weighted tau between repeats of a seed."""
        return self._reported("mean difference")

    @property
    def paper_largest(self) -> float:
        """The paper's largest difference, of weighted tau on AG News."""
        return self._reported("largest difference")

    def _reported(self, name: str) -> float:
        """Give the paper's number; of plain tau it has none."""
        return paper.number("section 5", "repeats", name) if self.tau == "weighted" else math.nan


def repeat_rows(grid: Sequence[Measured]) -> list[RepeatRow]:
    """Collect the spread of k-means over the models of each data set, and of all."""
    rows = []
    for dataset in ("all", *dict.fromkeys(row.cell.dataset for row in grid)):
        for tau in TAUS:
            own = [row.tau(tau).repeats for row in grid if dataset in ("all", row.cell.dataset)]
            known = [repeats for repeats in own if not math.isnan(repeats.kmeans_difference)]
            if known:
                rows.append(
                    RepeatRow(
                        dataset,
                        tau,
                        len(known),
                        float(np.mean([repeats.kmeans_difference for repeats in known])),
                        max(repeats.kmeans_high - repeats.kmeans_low for repeats in known),
                    )
                )
    return rows


@dataclass(frozen=True)
class ClusterRow:
    """The paper's criterion of clusters on the models of a data set, a row of `clusters`.

    Attributes:
        dataset: The data set, or `all`.
        models: Number of models.
        failed: Number of these with a cluster of a single state, which the criterion forbids.
        fewest: Smallest number of clusters taken.
        most: Largest number of clusters taken.
    """

    dataset: str
    models: int
    failed: int
    fewest: int
    most: int


def cluster_rows(grid: Sequence[Measured]) -> list[ClusterRow]:
    """Count where the criterion of two samples to a cluster fails, by data set and in all."""
    rows = []
    measured = [row for row in grid if row.clusters is not None]
    for dataset in ("all", *dict.fromkeys(row.cell.dataset for row in measured)):
        own = [row for row in measured if dataset in ("all", row.cell.dataset)]
        numbers = [row.clusters for row in own if row.clusters is not None]
        if numbers:
            failed = sum(row.singletons > 0 for row in own)
            rows.append(ClusterRow(dataset, len(own), failed, min(numbers), max(numbers)))
    return rows


@dataclass(frozen=True)
class DataRow:
    """A data set as the paper's Table 1 lists it, a row of `table_1`.

    Attributes:
        dataset: The data set.
        about: The prepared data.
        accuracy: Mean test accuracy of BiLSTM with additive attention; NaN where not trained.
    """

    dataset: str
    about: PreparedData
    accuracy: float

    def counts(self, split: str) -> str:
        """Write the documents of each class of a split, as the paper does."""
        return " / ".join(str(count) for count in self.about.documents[split].values())

    def reported(self, column: str) -> float:
        """Give the paper's number; NaN where there is none."""
        name = paper.data_set(self.dataset).name
        return paper.number("Table 1", name, column) if name else math.nan


def data_rows(data: Mapping[str, PreparedData], accuracy: Mapping[str, float]) -> list[DataRow]:
    """List the prepared data sets with the accuracy on each."""
    return [DataRow(name, about, accuracy.get(name, math.nan)) for name, about in data.items()]


NULLS: Layout[NullRow] = Layout(
    "nulls",
    same(
        "null", "tau", "models", "exceeds", "below", "learned", "null_mean", "difference", "error",
        "p_sign",
    ),
    title="Learned attention against attention that knows nothing, model by model",
    shown={
        "null": "Null", "tau": "Tau", "models": "Models", "exceeds": "Learned is higher in",
        "below": "Lower in", "learned": "Learned, mean", "null_mean": "Null, mean",
        "difference": "Difference", "error": "± standard error", "p_sign": "p, sign test",
    },
    printed={
        "null": "Null", "tau": "Tau", "models": "Models", "exceeds": "Higher", "learned": "Learned",
        "null_mean": "Null mean", "p_sign": "p",
    },
    note="Permuted: each instance’s weights in another order, and the outputs that follow; what "
    "tau is left is mechanical, heavy items inform whichever they are. Equal: the outputs of equal "
    "weights, ranks as they are. Untrained: attention of random parameters. Gumbel noise: equal "
    "scores with the noise on. Models are not independent: of a data set they share the documents.",
)  # fmt: skip

REPEATS: Layout[RepeatRow] = Layout(
    "repeats",
    same("dataset", "tau", "models", "difference", "largest", "paper_difference", "paper_largest"),
    title="Tau under other seeds of k-means, of the same models",
    shown={
        "dataset": "Data", "tau": "Tau", "models": "Models",
        "difference": "Mean absolute difference", "largest": "Largest",
        "paper_difference": "Paper, mean", "paper_largest": "Paper, largest",
    },
    printed={
        "dataset": "Data", "tau": "Tau", "models": "Models", "difference": "Mean difference",
        "largest": "Largest",
    },
    note="The paper repeats a seed ten times, training too; its numbers are of weighted tau. "
    "Training repeats exactly here.",
)  # fmt: skip

CLUSTERS: Layout[ClusterRow] = Layout(
    "clusters",
    same("dataset", "models", "failed", "fewest", "most"),
    title="Where the paper’s criterion of clusters fails",
    shown={
        "dataset": "Data", "models": "Models", "failed": "With a cluster of one state",
        "fewest": "Clusters, fewest", "most": "Most",
    },
    printed={
        "dataset": "Data", "models": "Models", "failed": "Failed", "fewest": "Clusters, fewest",
        "most": "Most",
    },
    note="The paper wants two samples to each of 50 to 200 clusters. Where no number passes, as in "
    "most models, the smallest candidate is taken.",
)  # fmt: skip

TABLE_1: Layout[DataRow] = Layout(
    "table_1",
    {
        "dataset": lambda row: row.dataset,
        "words": lambda row: row.about.words,
        "mean_length": lambda row: row.about.mean_length,
        "train": lambda row: row.counts("train"),
        "dev": lambda row: row.counts("dev"),
        "test": lambda row: row.counts("test"),
        "accuracy": lambda row: row.accuracy,
        "paper_words": lambda row: row.reported("words"),
        "paper_length": lambda row: row.reported("length"),
        "paper_accuracy": lambda row: row.reported("accuracy"),
    },
    title="Table 1: the data sets, and the accuracy of BiLSTM with additive attention",
    shown={
        "dataset": "Data", "words": "Words", "mean_length": "Mean length",
        "train": "Train, by class", "test": "Test", "accuracy": "Accuracy",
        "paper_words": "Paper, words", "paper_length": "Paper, length",
        "paper_accuracy": "Paper, accuracy",
    },
    printed={
        "dataset": "Data", "words": "Words", "mean_length": "Length", "train": "Train",
        "test": "Test", "accuracy": "Accuracy", "paper_accuracy": "Paper",
    },
)  # fmt: skip
