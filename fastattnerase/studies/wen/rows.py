"""The rows of the tables: every measurement, and what is compared of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from fastattnerase.studies.wen import paper
from fastattnerase.studies.wen.options import ATTENTIONS, Cell
from fastattnerase.studies.wen.repeats import Repeats
from fastattnerase.studies.wen.results import CellResult

TauName = Literal["weighted", "weighted_sum", "plain"]
Noise = Literal["noise_off", "noise_on"]

TAUS: tuple[TauName, ...] = ("weighted", "plain")  # the two that stand side by side everywhere
NOISES: tuple[Noise, ...] = ("noise_off", "noise_on")
SAME = 1e-9  # a tau that falls by less has not fallen
FEW_RANKS = 5  # of four, even a tau of 1 has a two-sided p of 2/24
CHANCE_RULE = (
    "“Chance” has outputs shuffled among the instances for its null: that states tell nothing of "
    "outputs. A tau is chance where it lies within the 95 % interval of tau with outputs shuffled, "
    "or where fewer than five ranks were measured (of four, even a tau of 1 has a two-sided p of "
    "2/24). That attention learned the order is another question, with nulls of its own."
)

# Why a tau, or a pair of taus, decides nothing.
UNDEFINED = "tau is undefined"
TOO_FEW_RANKS = "fewer than five ranks"
NO_SHUFFLES = "no shuffled outputs to compare with"
CHANCE_BEFORE = "tau of the normal model is chance"


def is_chance(tau: float, low: float, high: float, ranks: int) -> bool | None:
    """Say whether a tau is chance by `CHANCE_RULE`; None without a tau or an interval.

    Args:
        tau: The correlation; NaN where it is undefined.
        low, high: Interval of tau with outputs shuffled; NaN without one.
        ranks: How many ranks were measured.
    """
    if math.isnan(tau):
        return None
    if ranks < FEW_RANKS:
        return True
    if math.isnan(low) or math.isnan(high):
        return None
    return low - SAME <= tau <= high + SAME


@dataclass(frozen=True)
class Tau:
    """A rank correlation of information with attention.

    Attributes:
        value: With the plug-in estimate of information; NaN where it is undefined.
        corrected: With the Miller-Madow estimate.
        low: Lower end of the 95 % interval with outputs shuffled.
        high: Upper end of that interval.
        chance: Whether `value` is not different from outputs shuffled; None where unknown.
        repeats: Tau measured again, against other nulls.
    """

    value: float = math.nan
    corrected: float = math.nan
    low: float = math.nan
    high: float = math.nan
    chance: bool | None = None
    repeats: Repeats = field(default_factory=Repeats)


@dataclass(frozen=True)
class Measured:
    """A measurement of a cell's model, a row of `measurements`.

    Attributes:
        cell: The cell.
        name: Name of the measurement: `main`, `noise_off`, `noise_on` or `equal_scores`.
        accuracy: Test accuracy of the model as it was measured.
        max_epochs: Epochs after which training stops in any case.
        result: What the cell found.
        ranks: Number of ranks; None where nothing could be measured, as the next two.
        clusters: Number of clusters of the states.
        instances: Number of instances.
        singletons: Share of the clusters that hold a single state.
        largest_weight: Mean weight of rank 1, of the instances measured.
        first_over_second: Mean weight of rank 1 over that of rank 2.
        weighted: Weighted tau, pairs weighing the product of the two mean weights.
        weighted_sum: Weighted tau, pairs weighing the sum of the two mean weights.
        plain: Kendall's tau-b.
        reason: Why there is no correlation; empty where there is one.
    """

    cell: Cell
    name: str
    accuracy: float
    max_epochs: int
    result: CellResult
    ranks: int | None = None
    clusters: int | None = None
    instances: int | None = None
    singletons: float = math.nan
    largest_weight: float = math.nan
    first_over_second: float = math.nan
    weighted: Tau = field(default_factory=Tau)
    weighted_sum: Tau = field(default_factory=Tau)
    plain: Tau = field(default_factory=Tau)
    reason: str = ""

    def tau(self, name: TauName) -> Tau:
        """Look up one of the three correlations."""
        return {"weighted": self.weighted, "weighted_sum": self.weighted_sum, "plain": self.plain}[
            name
        ]

    @property
    def has_few_ranks(self) -> bool:
        """Whether ranks were measured, but fewer than five."""
        return self.ranks is not None and self.ranks < FEW_RANKS


@dataclass(frozen=True)
class RankInformation:
    """What was measured at one rank, a row of `curves`; information in nats.

    Attributes:
        measured: The measurement.
        rank: The attention rank, from 1.
        instances: Number of instances that have it.
        weight: Mean weight.
        clusters: Number of clusters that occur.
        singletons: Number of clusters that hold a single state.
        plug_in: Plug-in estimate of mutual information.
        miller_madow: Miller-Madow estimate.
        control_mean: Mean plug-in estimate with outputs shuffled.
        control_low: Lower end of its 95 % interval.
        control_high: Upper end of that interval.
        bound: Largest possible mutual information, the smaller of the two entropies.
    """

    measured: Measured
    rank: int
    instances: int
    weight: float
    clusters: int
    singletons: int
    plug_in: float
    miller_madow: float
    control_mean: float
    control_low: float
    control_high: float
    bound: float


@dataclass(frozen=True)
class Spread:
    """Tau over the seeds of one kind of model: NaN where all are undefined.

    Attributes:
        chance: Number of seeds whose tau is not different from outputs shuffled.
    """

    min: float
    median: float
    mean: float
    max: float
    chance: int


@dataclass(frozen=True)
class SeedsRow:
    """The seeds of one kind of model on one data set, a row of `figure_2`.

    Attributes:
        cell: One of them: its data set, encoder, attention and attention function.
        seeds: Number of seeds.
        weighted: Weighted tau over the seeds.
        plain: Plain tau over the seeds.
        undefined: Number of seeds whose weighted tau is undefined.
        fewest_ranks: Smallest number of ranks measured.
        singletons: Mean share of the clusters that hold a single state.
        largest_weight: Mean weight of rank 1.
        accuracy: Mean test accuracy.
    """

    cell: Cell
    seeds: int
    weighted: Spread
    plain: Spread
    undefined: int
    fewest_ranks: int | None
    singletons: float
    largest_weight: float
    accuracy: float

    def tau(self, name: TauName) -> Spread:
        """Look up one of the two correlations."""
        return self.weighted if name == "weighted" else self.plain


@dataclass(frozen=True)
class MeanTau:
    """Mean tau over some models.

    Attributes:
        mean: Mean with the plug-in estimate.
        corrected: Mean with the Miller-Madow estimate.
        chance: Number of models whose tau is not different from outputs shuffled.
    """

    mean: float
    corrected: float
    chance: int


@dataclass(frozen=True)
class MeanRow:
    """All models with one attention, or one encoder and attention, a row of `means`.

    Attributes:
        encoder: The encoder, or `all`.
        attention: The attention.
        models: Number of models.
        weighted: Mean weighted tau.
        plain: Mean plain tau.
        singletons: Mean share of the clusters that hold a single state.
        largest_weight: Mean weight of rank 1.
    """

    encoder: str
    attention: str
    models: int
    weighted: MeanTau
    plain: MeanTau
    singletons: float
    largest_weight: float

    @property
    def paper_weighted(self) -> float:
        """The paper's mean weighted tau, over other data sets; NaN where it gives none."""
        encoder = "" if self.encoder == "all" else self.encoder
        return paper.MEANS.get((encoder, self.attention), math.nan)

    def tau(self, name: TauName) -> MeanTau:
        """Look up one of the two correlations."""
        return self.weighted if name == "weighted" else self.plain


@dataclass(frozen=True)
class OrderRow:
    """The three attentions with one encoder, data set and seed, a row of `order`.

    Attributes:
        dataset, encoder, seed: Which models.
        models: Measurement of each attention; None where it is missing.
    """

    dataset: str
    encoder: str
    seed: int
    models: dict[str, Measured | None]

    def ranks(self, attention: str) -> int | None:
        """Give the number of ranks measured with an attention."""
        model = self.models[attention]
        return None if model is None else model.ranks

    def taus(self, name: TauName) -> list[float]:
        """Give tau of each attention in the paper's order; NaN where it is undefined."""
        models = [self.models[attention] for attention in ATTENTIONS]
        return [math.nan if model is None else model.tau(name).value for model in models]

    def undecided_reason(self, name: TauName) -> str:
        """Say why the taus cannot be compared; empty where they can."""
        if any(map(math.isnan, self.taus(name))):
            return UNDEFINED
        few = any(model is not None and model.has_few_ranks for model in self.models.values())
        return TOO_FEW_RANKS if few else ""

    def falls(self, name: TauName) -> bool | None:
        """Say whether tau falls in the paper's order; None where it is undecided."""
        if self.undecided_reason(name):
            return None
        first, second, third = self.taus(name)
        return second - first < -SAME and third - second < -SAME


@dataclass(frozen=True)
class BestTau:
    """Tau of BiLSTM with additive attention against the other combinations.

    Attributes:
        value: Its tau.
        undecided_reason: Why it cannot be compared; empty where it can.
        other: Name of the best other combination with enough ranks; empty where there is none.
        best_other: Tau of that; NaN where there is none.
    """

    value: float
    undecided_reason: str
    other: str
    best_other: float

    @property
    def highest(self) -> bool | None:
        """Whether no other is higher; None where it is undecided."""
        return None if self.undecided_reason else self.value >= self.best_other - SAME


@dataclass(frozen=True)
class HighestRow:
    """The nine combinations on one data set with one seed, a row of `highest`.

    Attributes:
        dataset, seed: Which models.
        ranks: Number of ranks measured of BiLSTM with additive attention.
        weighted: Its weighted tau against the others'.
        plain: Its plain tau against the others'.
        models: Measurement of each combination of encoder and attention that there is.
    """

    dataset: str
    seed: int
    ranks: int | None
    weighted: BestTau
    plain: BestTau
    models: dict[tuple[str, str], Measured] = field(default_factory=dict)

    def tau(self, name: TauName) -> BestTau:
        """Look up one of the two correlations."""
        return self.weighted if name == "weighted" else self.plain


@dataclass(frozen=True)
class AccuracyRow:
    """Accuracy of BiLSTM with additive attention on one data set, a row of `accuracy`.

    Attributes:
        dataset: The data set.
        seeds: Number of seeds.
        accuracy: Mean test accuracy.
        lowest: Lowest test accuracy.
        reached: Number of seeds with the accuracy that is needed.
        majority: Share of the most frequent class of the test documents; NaN where unknown.
    """

    dataset: str
    seeds: int
    accuracy: float
    lowest: float
    reached: int
    majority: float = math.nan

    @property
    def paper(self) -> paper.DataSet:
        """The paper's numbers for the data set."""
        return paper.data_set(self.dataset)


@dataclass(frozen=True)
class Pair:
    """A measurement of a normal model and one of a special model, to compare.

    Attributes:
        normal: Of the normal model.
        special: Of the special one.
    """

    normal: Measured
    special: Measured

    def delta(self, name: TauName) -> float:
        """Give by how much tau falls: that of the normal model less that of the special one."""
        return self.normal.tau(name).value - self.special.tau(name).value

    def undecided_reason(self, name: TauName) -> str:
        """Say why the pair decides nothing; empty where it decides."""
        before, after = self.normal.tau(name), self.special.tau(name)
        if math.isnan(before.value) or math.isnan(after.value):
            return UNDEFINED
        if self.normal.has_few_ranks or self.special.has_few_ranks:
            return TOO_FEW_RANKS
        if before.chance is None or after.chance is None:
            return NO_SHUFFLES
        return CHANCE_BEFORE if before.chance else ""

    def keeps(self, name: TauName, max_fall: float) -> bool:
        """Say whether tau falls by at most `max_fall`, and not to chance."""
        return self.delta(name) <= max_fall + SAME and self.special.tau(name).chance is False


@dataclass(frozen=True)
class FixRow(Pair):
    """A model with fixed attention or representations, a row of `table_2`.

    Attributes:
        setting: `Fix Attn` or `Fix Rep`.
        reading: What is fixed, and at which values.
    """

    setting: str
    reading: str

    @property
    def paper_delta(self) -> float:
        """The paper's fall of weighted tau."""
        reported = paper.data_set(self.special.cell.dataset)
        if self.setting == "Fix Attn":
            return reported.delta_fix_attention
        return reported.delta_fix_representation


@dataclass(frozen=True)
class AdversaryRow(Pair):
    """An adversary, a row of `table_3` and of `table_4`.

    Attributes:
        tvd: Total variation distance of the outputs.
        attention_jsd: Jensen-Shannon divergence of the attention distributions, nats.
        output_jsd: Jensen-Shannon divergence of the outputs, nats.
    """

    tvd: float
    attention_jsd: float
    output_jsd: float

    @property
    def paper(self) -> paper.Adversary:
        """The paper's numbers for its adversary."""
        return paper.data_set(self.special.cell.dataset).adversary


@dataclass(frozen=True)
class GumbelRow:
    """A model with softmax and with Gumbel-softmax, a row of `gumbel`.

    Attributes:
        softmax: With softmax.
        noise_off: With Gumbel-softmax, without noise at evaluation.
        noise_on: With Gumbel-softmax, with noise at evaluation.
        equal_scores: The noise alone: the same model with equal scores.
    """

    softmax: Measured
    noise_off: Measured
    noise_on: Measured
    equal_scores: Measured

    def pair(self, noise: Noise) -> Pair:
        """Give softmax as the normal model and Gumbel-softmax as the special one."""
        return Pair(self.softmax, self.noise_off if noise == "noise_off" else self.noise_on)


@dataclass(frozen=True)
class Kept:
    """How many models keep tau with Gumbel-softmax.

    Attributes:
        kept: Models that decide and whose tau neither falls nor becomes chance.
        cases: Models that decide.
        all_kept: Models whose tau does not fall, chance or not, as the paper counts.
    """

    kept: int
    cases: int
    all_kept: int


@dataclass(frozen=True)
class GumbelCounts:
    """The models with one attention, or all, under Gumbel-softmax, a row of `table_5`.

    Attributes:
        attention: The attention, or `all`; of models of two texts with the task, as in
            `additive (QA)`.
        models: Number of models.
        counts: How many keep tau, by tau and noise.
        equal_scores_mean: Mean tau of the noise alone, by tau.
    """

    attention: str
    models: int
    counts: dict[tuple[TauName, Noise], Kept]
    equal_scores_mean: dict[TauName, float]

    @property
    def paper_share(self) -> float:
        """The paper's share of models whose weighted tau does not fall."""
        return paper.GUMBEL[self.attention]
