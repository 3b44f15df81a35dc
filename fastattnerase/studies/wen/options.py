"""What is trained and measured in the studies of Wen et al., and the cells that follow from it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from fastattnerase.choices import FixedAttention
from fastattnerase.fields import wrong_choices
from fastattnerase.mi.config import Config
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.published import model_cost, pair, vectors_on
from fastattnerase.models.train_config import TrainConfig, jain_wallace_training
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.checks import (
    check_counts,
    check_names,
    check_seeds,
    check_tvd,
    preset_names,
)
from fastattnerase.studies.wen.paper import data_set

ENCODERS = ("bilstm", "cnn", "mlp")
ATTENTIONS = ("additive", "deep", "dot")
STUDIES = ("grid", "gumbel", "fix", "adversary")
DATASETS = ("sst", "20news_sports", "imdb_5k", "ag_news")
SMALL_DATASETS = ("sst", "20news_sports")
FIX_ATTENTION = get_args(FixedAttention)
FIX_REPRESENTATION = ("trained", "trained_kept", "random")
VARIANTS = (
    "normal",
    *(f"attention_{reading}" for reading in FIX_ATTENTION),
    *(f"representation_{reading}" for reading in FIX_REPRESENTATION),
    "adversary",
)
BEST = ("bilstm", "additive")  # the combination that ablation and adversary look at

CELLS = "cells"  # the folder of all cells


@dataclass(frozen=True)
class Options:
    """What is trained and measured, and how; what cuts a study's size is an option.

    Attributes:
        datasets: Data sets of the grid, names of presets: sst, imdb, imdb_5k, 20news_sports and
            others.
        seeds: Seeds of the grid: of initial parameters and of batches.
        encoders: Encoders of the grid: bilstm, cnn, mlp.
        attentions: Attentions of the grid: additive, deep, dot.
        mechanisms: Mechanisms of the grid: softmax, sparsemax.
        studies: Parts of the paper: grid (Figure 2), gumbel (Table 5), fix (Table 2), adversary
            (Tables 3 and 4).
        small_datasets: Data sets of the parts other than the grid.
        small_seeds: Seeds of the parts other than the grid.
        vectors: File of word vectors in GloVe's text format; by default that in the folder glove of
            --data-root, and where there is none embeddings start from random numbers.
        embedding_size: Width of the word embeddings where no word vectors are given.
        hidden_size: Units of the MLP, and of each direction of the BiLSTM.
        channels: Filters of each of the CNN's five widths; the paper can be read as 128, Jain &
            Wallace have 32.
        attention_size: Width of additive and deep attention; by default half the encoder's output.
        attention_depth: Layers of deep attention after its first.
        scaled_dot: Whether dot attention divides by the square root of the width, as Jain & Wallace
            do.
        activation: Activation of the MLP: `tanh` (Jain & Wallace's code) or `relu`.
        temperature: Temperature of Gumbel-softmax.
        gumbel_noise: Gumbel noise in training: `fresh` in every step, or `shared`: each document
            keeps its own.
        gumbel_hard: Whether the largest item gets all weight, with the gradient of the soft
            weights (straight-through estimator).
        decoder: Decoder of models of two texts (snli, babi_1 to babi_3, cnn): `linear`, as the
            paper writes; `tanh`, Jain & Wallace's, whose states are measured as it projects them;
            or `query`, linear in the query, too.
        pair_epochs: Epochs of models of two texts; by default Jain & Wallace's, 25, of bAbI 100.
        epochs: Epochs of every model of one text other than the adversaries.
        selection: Which epoch is kept, by dev `auc` (Jain & Wallace) or `accuracy`.
        class_weights: Weights of the classes in training: `balanced` (Jain & Wallace) or `none`.
        attention_weight_decay: L2 penalty on attention's parameters: 0 (Jain & Wallace), or 1e-5 as
            on the rest.
        adversary_epochs: Largest number of epochs of an adversary.
        adversary_patience: An adversary's training stops after so many epochs without a lower
            training loss.
        strength: Factor λ of all adversaries; by default the published ones.
        tvd: Factor of the outputs' difference in an adversary's loss: 0.5 as published, or 1.
        max_tokens: Documents are cut after so many words; by default none is.
        max_train: Largest number of training documents; by default all.
        max_test: Largest number of test documents; by default all.
        ranks: How many attention ranks are measured: a number, or the rule `weights`, `length` or
            `both`; see `fastattnerase measure --help`.
        clusters: Clusters of the states of a rank: a number, or the `largest` or `smallest`
            candidate that leaves two samples to each.
        codebook: Clusters of states: one codebook for each `rank`, or one `shared` by all.
        algorithm: Algorithm of k-means for the states: `full` or `mini_batch`.
        output_clusters: Clusters of the outputs of two-class models.
        output_space: What is clustered of outputs: `logit` or `probability`.
        exclude: Items that are not ranked: `masked`, `zero_weight` or `none`.
        shuffles: Number of label shuffles of the control: 20 or more, or 0 to skip it; without it
            no difference from outputs shuffled is tested.
        kmeans_seeds: Under how many seeds k-means runs for normal models without Gumbel noise.
        permutations: How many times the weights of these are permuted, for the nulls in which
            attention knows nothing; 0 skips the nulls.
        max_ranks: Ranks beyond this one are not measured; by default all are.
        backend: Backend of the engine: auto, or a name that `fastattnerase info` prints.

    Raises:
        RunError: a name that is not known, or a number out of range.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 5 and appendix A.

    Example:
        >>> Options(seeds=(0,)).studies
        ('grid', 'gumbel', 'fix', 'adversary')
    """

    datasets: tuple[str, ...] = DATASETS
    seeds: tuple[int, ...] = (0, 1, 2)
    encoders: tuple[str, ...] = ENCODERS
    attentions: tuple[str, ...] = ATTENTIONS
    mechanisms: tuple[str, ...] = ("softmax",)
    studies: tuple[str, ...] = STUDIES
    small_datasets: tuple[str, ...] = SMALL_DATASETS
    small_seeds: tuple[int, ...] = (0,)
    vectors: str | None = None
    embedding_size: int = 300
    hidden_size: int = 128
    channels: int = 32
    attention_size: int | None = None
    attention_depth: int = 2
    scaled_dot: bool = False
    activation: Literal["tanh", "relu"] = "tanh"
    temperature: float = 0.8
    gumbel_noise: Literal["fresh", "shared"] = "fresh"
    gumbel_hard: bool = False
    decoder: Literal["linear", "tanh", "query"] = "linear"
    pair_epochs: int | None = None
    epochs: int = 8
    selection: Literal["accuracy", "auc"] = "auc"
    class_weights: Literal["balanced", "none"] = "balanced"
    attention_weight_decay: float = 0.0
    adversary_epochs: int = 80
    adversary_patience: int = 10
    strength: float | None = None
    tvd: float = 0.5
    max_tokens: int | None = None
    max_train: int | None = None
    max_test: int | None = None
    ranks: int | Literal["both", "weights", "length"] = "both"
    clusters: int | Literal["largest", "smallest"] = "largest"
    codebook: Literal["rank", "shared"] = "rank"
    algorithm: Literal["full", "mini_batch"] = "full"
    output_clusters: int = 5
    output_space: Literal["logit", "probability"] = "logit"
    exclude: Literal["masked", "zero_weight", "none"] = "masked"
    shuffles: int = 100
    kmeans_seeds: int = 5
    permutations: int = 5
    max_ranks: int | None = None
    backend: str = "auto"

    def __post_init__(self) -> None:
        check_names(
            self,
            {
                **dict.fromkeys(("datasets", "small_datasets"), preset_names()),
                **{"encoders": ENCODERS, "attentions": ATTENTIONS, "studies": STUDIES},
                "mechanisms": ("softmax", "sparsemax"),
            },
        )
        check_seeds(self, "seeds", "small_seeds")
        check_counts(
            self,
            *("hidden_size", "channels", "epochs", "adversary_epochs", "adversary_patience"),
            *("embedding_size", "attention_size", "pair_epochs"),
            *("max_tokens", "max_train", "max_test"),
        )
        if self.strength is not None and not 0 <= self.strength < math.inf:
            raise RunError(f"strength: given {self.strength}, needed a number from 0")
        check_tvd(self.tvd)
        pairs = [name for name in self.small_datasets if pair(name) is not None]
        if pairs and "adversary" in self.studies:
            raise RunError(
                f"small_datasets: given {', '.join(pairs)}, of two texts, with the study adversary "
                "among studies, needed without it: the paper says that adversarial training fails "
                "to move attention there, and reports none"
            )
        if self.strength is None and "adversary" in self.studies:
            unpublished = [name for name in self.small_datasets if data_set(name).strength is None]
            if unpublished:
                raise RunError(
                    f"strength: given none, needed a number, for {', '.join(unpublished)} has no "
                    "published one"
                )
        for problem in wrong_choices(self):
            raise RunError(problem)
        self.measurement(Cell("sst", *BEST, "softmax", "normal"))
        try:
            for encoder in ENCODERS:
                for dataset in ("sst", "snli"):  # of one text and of two
                    cell = Cell(dataset, encoder, BEST[1], "softmax", "normal")
                    self.model(cell)
                    self.training(cell)
        except ValueError as error:
            raise RunError(str(error)) from error

    def model(self, cell: Cell) -> ModelConfig:
        """Configure the model of a cell."""
        from fastattnerase.models.wen import jain_wallace_model

        of_pair = pair(cell.dataset)
        hidden = None if of_pair is None else of_pair.hidden_size
        config = jain_wallace_model(
            cell.encoder,
            cell.attention,
            cell.mechanism,
            embedding_size=(of_pair and of_pair.embedding_size) or self.embedding_size,
            hidden_size=hidden or self.hidden_size,
            channels=self.channels if hidden is None else hidden // 4,
            decoder=None if of_pair is None else self.decoder,
            seed=cell.seed,
        )
        return replace(
            config,
            attention_size=self.attention_size or config.attention_size,
            attention_depth=self.attention_depth,
            attention_scaled=self.scaled_dot,
            activation=self.activation,
            temperature=self.temperature,
            gumbel_noise=self.gumbel_noise,
            gumbel_hard=self.gumbel_hard,
        )

    def training(self, cell: Cell) -> TrainConfig:
        """Configure the training of all models but adversaries."""
        of_pair = pair(cell.dataset)
        if of_pair is not None:
            return of_pair.training(self.pair_epochs, cell.seed)
        return replace(
            jain_wallace_training(epochs=self.epochs, seed=cell.seed),
            selection=self.selection,
            class_weights=self.class_weights,
            attention_weight_decay=self.attention_weight_decay,
        )

    def measurement(self, cell: Cell) -> Config:
        """Give the configuration of a cell's measurements."""
        # Without attention there are no weights to correlate with but the ranks, which are
        # positions then.
        uniform = cell.variant == "attention_uniform"
        try:
            return Config(
                ranks=self.ranks,
                clusters=self.clusters,
                codebook=self.codebook,
                algorithm=self.algorithm,
                output_clusters=self.output_clusters,
                output_space=self.output_space,
                exclude=self.exclude,
                shuffles=self.shuffles,
                kmeans_seeds=self.kmeans_seeds if cell.is_repeated else 1,
                permutations=self.permutations if cell.is_repeated else 0,
                max_ranks=self.max_ranks,
                constant_attention="by_position" if uniform else "undefined",
                backend=self.backend,
            )
        except ValueError as error:
            raise RunError(str(error)) from error

    def strength_on(self, dataset: str) -> float:
        """Give the weight λ of the divergence of an adversary on a data set."""
        published = data_set(dataset).strength
        strength = published if self.strength is None else self.strength
        assert strength is not None  # checked when these options were made
        return strength

    def max_epochs(self, cell: Cell) -> int:
        """Give the epochs after which the training of a cell's model stops in any case."""
        of_pair = pair(cell.dataset)
        if of_pair is not None:
            return self.pair_epochs or of_pair.epochs
        return self.adversary_epochs if cell.variant == "adversary" else self.epochs

    def vectors_on(self, dataset: str) -> str | None:
        """Give the word vectors of a data set."""
        return vectors_on(dataset, self.vectors)

    def used_for_data(self) -> dict[str, Any]:
        """Give the options that the prepared data depend on."""
        return {name: getattr(self, name) for name in ("max_tokens", "max_train", "max_test")}

    def used(self, cell: Cell) -> dict[str, Any]:
        """Give the options that a cell's numbers depend on, beside which cell it is.

        Of the word vectors the file's name: where it lies makes no other numbers.
        """
        options = dataclasses.asdict(self)
        for name in (
            "datasets", "seeds", "encoders", "attentions", "mechanisms", "studies",
            "small_datasets", "small_seeds",
        ):  # fmt: skip
            del options[name]
        unused = {"channels"} if cell.encoder != "cnn" else {"hidden_size"}
        if cell.encoder != "mlp":
            unused |= {"activation"}
        if cell.attention != "dot":
            unused |= {"scaled_dot"}
        if cell.attention == "dot":
            unused |= {"attention_size"}
        if cell.attention != "deep":
            unused |= {"attention_depth"}
        if cell.mechanism != "gumbel":
            unused |= {"temperature", "gumbel_noise", "gumbel_hard"}
        if not cell.is_repeated:
            unused |= {"kmeans_seeds", "permutations"}
        if cell.variant != "adversary":
            unused |= {"adversary_epochs", "adversary_patience", "strength", "tvd"}
        of_pair = pair(cell.dataset)
        if of_pair is None:
            unused |= {"decoder", "pair_epochs"}
        else:
            unused |= {"epochs", "selection", "class_weights", "attention_weight_decay"}
            unused |= {"scaled_dot"} | ({"attention_size"} if cell.attention == "dot" else set())
            options["pair_epochs"] = self.max_epochs(cell)
            options["embedding_size"] = of_pair.embedding_size or self.embedding_size
            if of_pair.hidden_size is not None:
                unused |= {"hidden_size", "channels"}
        vectors = self.vectors_on(cell.dataset)
        options["vectors"] = vectors if vectors is None else Path(vectors).name
        if vectors is not None:
            unused |= {"embedding_size"}
        if cell.variant == "attention_random":
            # Of the first version's cells, which drew weights ∝ 1/E, nothing is said here.
            options["random_weights"] = "uniform on the simplex"
        return {name: value for name, value in options.items() if name not in unused}


@dataclass(frozen=True)
class Cell:
    """One trained model with its measurements: which data, which parts, which way, which seed."""

    dataset: str
    encoder: str
    attention: str
    mechanism: str
    variant: str
    seed: int = 0

    @property
    def key(self) -> str:
        """The name, as in the manifest and as a folder."""
        model = f"{self.encoder}-{self.attention}-{self.mechanism}"
        return f"{CELLS}/{self.dataset}/{model}-{self.variant}-{self.seed}"

    @property
    def cost(self) -> float:
        """How long it takes, roughly, against others."""
        several = {"adversary": 5.0, "normal": 1.4 if self.mechanism == "gumbel" else 1.0}
        return model_cost(self.dataset, self.encoder) * several.get(self.variant, 1.0)

    @property
    def is_repeated(self) -> bool:
        """Whether it is measured under other seeds of k-means and against the nulls."""
        return self.variant == "normal" and self.mechanism != "gumbel"

    @property
    def base(self) -> Cell | None:
        """The cell whose model this one starts from."""
        if self.variant == "normal":
            return None
        return replace(self, variant="normal")
