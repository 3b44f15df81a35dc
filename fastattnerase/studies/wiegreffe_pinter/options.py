"""What is trained in the tests of Wiegreffe and Pinter, and the cells that follow from it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastattnerase.models.config import ModelConfig
from fastattnerase.models.published import model_cost, pair, vectors_on
from fastattnerase.models.train_config import (
    ADVERSARY_SEED,
    MOST_SEED,
    TrainConfig,
    adversary_training,
    jain_wallace_training,
)
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.checks import (
    check_counts,
    check_names,
    check_seeds,
    check_tvd,
    preset_names,
)
from fastattnerase.studies.wiegreffe_pinter.paper import (
    BASE_SEED,
    LENDER,
    SEEDS,
    strength,
)

ENCODERS = ("bilstm", "cnn", "mlp")
ATTENTIONS = ("additive", "deep", "dot")
TESTS = ("uniform", "seeds", "diagnostic", "adversary")
DATASETS = ("sst", "imdb_5k", "ag_news", "20news_sports", "snli", "babi_1")
CURVE = (0.0, 5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2)
DIAGNOSTIC = ("mlp_uniform", "mlp_learned", "mlp_base", "mlp_adversary")

CELLS = "cells"  # the folder of all cells


@dataclass(frozen=True)
class Options:
    """What is trained and compared, and how; what cuts the size of the tests is an option.

    Attributes:
        datasets: Data sets of the uniform baseline, names of presets: sst, imdb_5k, ag_news,
            20news_sports, of two texts (beyond the paper) snli, babi_1 to babi_3, and others.
        tested: Data sets of the other tests, of two classes; by default those of `datasets` of
            which the paper says so: it drops AG News and 20 Newsgroups, where uniform attention
            does as well.
        tests: Tests of the paper: uniform (Table 2), seeds (Figure 3), diagnostic (Table 3),
            adversary (Table 4 and Figure 5).
        encoders: Encoders of the base models: bilstm (the paper's), cnn, mlp.
        attentions: Attentions of the base models: additive (the paper's), deep, dot.
        base_seed: Seed of the base models: of initial parameters and of batches.
        seeds: Seeds of the further models that attention is compared with; the paper's by default.
        strengths: Weights λ of the adversaries; by default the published one of each data set.
        curve: Weights λ of further adversaries, for the curve over λ.
        curve_datasets: Data sets of the curve over λ; by default the first of `tested`.
        curve_epochs: Largest number of epochs of the curve's adversaries.
        lender: Weight λ of the adversary that lends its attention weights in the diagnostic; 0.001
            in the paper.
        vectors: File of word vectors in GloVe's text format; by default that in the folder glove of
            --data-root, and where there is none embeddings start from random numbers.
        embedding_size: Width of the word embeddings where no word vectors are given.
        hidden_size: Units of the MLP, and of each direction of the BiLSTM.
        epochs: Epochs of every model other than the adversaries and those of two texts.
        pair_epochs: Epochs of models of two texts; by default Jain & Wallace's, 25, of bAbI 100.
        adversary_epochs: Largest number of epochs of an adversary.
        adversary_patience: An adversary's training stops after so many epochs without a lower
            training loss.
        tvd: Factor of the outputs' difference in an adversary's loss: 0.5 as in the published code,
            or 1, the total variation distance of the two-class outputs, which doubles the weight
            of λ that gives the same model.
        adversary_instances: Largest number of test documents for which adversarial attention is
            sought one by one, as Jain & Wallace do, beside the trained adversaries; evenly spaced;
            by default all.
        max_tokens: Documents are cut after so many words; by default none is.
        max_train: Largest number of training documents; by default all.
        max_test: Largest number of test documents; by default all.

    Raises:
        RunError: a name that is not known, or a number out of range.

    Source:
        Wiegreffe and Pinter 2019, and their code.

    Example:
        >>> Options().tested_datasets, Options().curve_on
        (('sst', 'imdb_5k'), ('sst',))
    """

    datasets: tuple[str, ...] = DATASETS
    tested: tuple[str, ...] | None = None
    tests: tuple[str, ...] = TESTS
    encoders: tuple[str, ...] = ("bilstm",)
    attentions: tuple[str, ...] = ("additive",)
    base_seed: int = BASE_SEED
    seeds: tuple[int, ...] = SEEDS
    strengths: tuple[float, ...] = ()
    curve: tuple[float, ...] = CURVE
    curve_datasets: tuple[str, ...] | None = None
    curve_epochs: int = 20
    lender: float = LENDER
    vectors: str | None = None
    embedding_size: int = 300
    hidden_size: int = 128
    epochs: int = 8
    pair_epochs: int | None = None
    adversary_epochs: int = 80
    adversary_patience: int = 10
    tvd: float = 0.5
    adversary_instances: int | None = None
    max_tokens: int | None = None
    max_train: int | None = None
    max_test: int | None = None

    def __post_init__(self) -> None:
        self._check_names()
        if not 0 <= self.base_seed <= MOST_SEED:
            raise RunError(
                f"base_seed: given {self.base_seed}, needed a number from 0 to {MOST_SEED}"
            )
        if self.base_seed in self.seeds:
            raise RunError(f"seeds: given {self.base_seed}, needed others than base_seed")
        if "seeds" in self.tests and not self.seeds:
            raise RunError("seeds: given none, needed one or more, or tests without seeds")
        if self.seeds:
            check_seeds(self, "seeds")
        check_counts(
            self,
            *("hidden_size", "epochs", "pair_epochs", "adversary_epochs", "adversary_patience"),
            *("curve_epochs", "embedding_size", "adversary_instances"),
            *("max_tokens", "max_train", "max_test"),
        )
        for name in ("strengths", "curve", "lender"):
            given = getattr(self, name)
            values = given if isinstance(given, tuple) else (given,)
            if not all(0 <= value < math.inf for value in values) or len(set(values)) < len(values):
                raise RunError(f"{name}: given {given}, needed distinct numbers from 0")
        check_tvd(self.tvd)

    def _check_names(self) -> None:
        """Refuse names that are unknown, given twice, or missing."""
        presets = preset_names()
        check_names(
            self,
            {
                **dict.fromkeys(("datasets", "tested", "curve_datasets"), presets),
                **{"tests": TESTS, "encoders": ENCODERS, "attentions": ATTENTIONS},
            },
            may_be_empty=("tested", "curve_datasets"),
        )
        several = [name for name in (*self.tested_datasets, *self.curve_on) if pair(name)]
        if several:
            raise RunError(
                f"tested: given {', '.join(dict.fromkeys(several))}, of two texts, needed data "
                "sets of one text and two classes: there adversarial training fails to move "
                "attention (Wen et al. 2022), and the paper does not try"
            )
        if "adversary" in self.tests and not self.strengths:
            unpublished = [name for name in self.tested_datasets if strength(name) is None]
            if unpublished:
                raise RunError(
                    f"strengths: given none, needed numbers, for {', '.join(unpublished)} has no "
                    "published one"
                )

    @property
    def tested_datasets(self) -> tuple[str, ...]:
        """The data sets of the tests other than the uniform baseline."""
        if self.tested is not None:
            return self.tested
        return tuple(name for name in self.datasets if strength(name) is not None)

    @property
    def curve_on(self) -> tuple[str, ...]:
        """The data sets of the curve over λ."""
        return self.tested_datasets[:1] if self.curve_datasets is None else self.curve_datasets

    def strengths_on(self, dataset: str) -> tuple[float, ...]:
        """Give the weights λ of the adversaries on a data set."""
        published = strength(dataset)
        return self.strengths or (() if published is None else (published,))

    def model(self, cell: Cell) -> ModelConfig:
        """Configure the model of a cell."""
        from fastattnerase.models.wen import jain_wallace_model

        is_mlp, is_uniform = cell.kind in DIAGNOSTIC, cell.kind in ("uniform", "mlp_uniform")
        of_pair = pair(cell.dataset)
        config = jain_wallace_model(
            "mlp" if is_mlp else cell.encoder,
            cell.attention,
            embedding_size=(of_pair and of_pair.embedding_size) or self.embedding_size,
            hidden_size=(of_pair and of_pair.hidden_size) or self.hidden_size,
            decoder="tanh" if of_pair else None,
            seed=cell.seed + (ADVERSARY_SEED if cell.is_adversary else 0),
        )
        return replace(config, attention="uniform") if is_uniform else config

    def training(self, cell: Cell) -> TrainConfig:
        """Configure the training of a cell's model.

        The kept epoch is the one of the best dev AUC, with two texts dev accuracy, or, of an
        adversary, of the lowest training loss. The published code looks at the test documents' AUC
        instead.
        """
        of_pair = pair(cell.dataset)
        if of_pair is not None:
            return of_pair.training(self.pair_epochs, cell.seed)
        training = replace(jain_wallace_training(epochs=self.epochs, seed=cell.seed), first_epoch=1)
        if not cell.is_adversary:
            return training
        return adversary_training(
            training,
            epochs=cell.epochs or self.adversary_epochs,
            patience=self.adversary_patience,
        )

    def used_for_data(self) -> dict[str, Any]:
        """Give the options that the prepared data depend on."""
        return {name: getattr(self, name) for name in ("max_tokens", "max_train", "max_test")}

    def used(self, cell: Cell) -> dict[str, Any]:
        """Give the options that a cell's numbers depend on, beside which cell it is.

        Of the word vectors the file's name: where it lies makes no other numbers.
        """
        of_pair = pair(cell.dataset)
        names = ["hidden_size"]
        names += ["adversary_patience", "tvd"] if cell.is_adversary else ["epochs"]
        options = {name: getattr(self, name) for name in names}
        if of_pair is not None:
            options["epochs"] = self.pair_epochs or of_pair.epochs
            options["hidden_size"] = of_pair.hidden_size or self.hidden_size
        vectors = self.vectors_on(cell.dataset)
        if vectors is not None:
            return options | {"vectors": Path(vectors).name}
        width = of_pair and of_pair.embedding_size
        return options | {"embedding_size": width or self.embedding_size}

    def vectors_on(self, dataset: str) -> str | None:
        """Give the word vectors of a data set."""
        return vectors_on(dataset, self.vectors)


@dataclass(frozen=True)
class Cell:
    """One trained model, compared with the base model where it is not that.

    Attributes:
        dataset: Its data set.
        encoder: Of the base model.
        attention: Of the base model.
        kind: `base`, `uniform`, `seed`, `adversary`, or one of the diagnostic's MLPs.
        seed: Of initial parameters and batches.
        strength: λ of an adversary, or of the one that lends its weights.
        epochs: Largest number of epochs of such an adversary.
    """

    dataset: str
    encoder: str
    attention: str
    kind: str
    seed: int
    strength: float | None = None
    epochs: int | None = None

    @property
    def is_adversary(self) -> bool:
        """Whether it is trained to imitate the base model with other attention."""
        return self.kind == "adversary"

    @property
    def key(self) -> str:
        """The name, as in the manifest and as a folder."""
        name = f"{self.kind}-{self.seed}"
        if self.strength is not None:
            name += f"-{self.strength!r}-{self.epochs}"
        return f"{CELLS}/{self.dataset}/{self.encoder}-{self.attention}/{name}"

    @property
    def cost(self) -> float:
        """How long it takes, roughly, against others."""
        encoder = "mlp" if self.kind in DIAGNOSTIC else self.encoder
        times = (self.epochs or 8) / 8 if self.is_adversary else 1.0
        return model_cost(self.dataset, encoder) * times

    def needs(self, base_seed: int) -> tuple[Cell, ...]:
        """Give the cells whose models it needs: the base model, or who lends weights."""
        base = dataclasses.replace(self, kind="base", seed=base_seed, strength=None, epochs=None)
        if self.kind == "base":
            return ()
        if self.kind == "mlp_adversary":
            return (base, dataclasses.replace(self, kind="adversary"))
        return (base,)
