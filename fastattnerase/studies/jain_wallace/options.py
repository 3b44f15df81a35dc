"""What is trained and asked in the study of Jain and Wallace, and the cells that follow from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fastattnerase.choices import BackendName
from fastattnerase.fields import wrong_choices
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.published import model_cost, pair, vectors_on
from fastattnerase.models.train_config import TrainConfig, jain_wallace_training
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.checks import check_counts, check_names, check_seeds, preset_names
from fastattnerase.studies.jain_wallace.paper import DATA_SETS

ENCODERS = ("bilstm", "cnn", "mlp")
ATTENTIONS = ("additive", "dot")
DATASETS = ("sst", "imdb_5k", "ag_news", "20news_sports", "psytar")
_MOST_SEED = 2**31 - 1
_CNN_WIDTHS = (1, 3, 5, 7)
_BABI_SHARE = 4  # by which models of bAbI are narrower
# What results call `pair_epochs`: of data sets but bAbI, and of bAbI.
PAIR_EPOCHS = ("query_epochs", "babi_epochs")


@dataclass(frozen=True)
class Options:
    """Reproduce Jain & Wallace 2019: is attention explanation?

    Trains every model; correlates attention with gradients and with leave-one-out, permutes
    attention weights, seeks adversarial attention; writes the report. Finished steps are never
    redone; the same command goes on after a kill. More data sets, encoders, attentions or seeds can
    be added later in the same folder, and the report is on all that is there.

    Attributes:
        datasets: Data sets, names of presets: sst, imdb_5k, ag_news, 20news_sports, psytar; with a
            query snli, babi_1, babi_2, babi_3; and others.
        encoders: Encoders: bilstm, cnn, mlp (the paper's average).
        attentions: Attentions: additive (the paper's tanh), dot.
        seeds: Seeds of initial parameters, batches, permutations and adversaries.
        vectors: File of word vectors in GloVe's text format; by default that in the folder glove of
            --data-root, and where there is none embeddings start from random numbers.
        embedding_size: Width of the word embeddings where no word vectors are given.
        hidden_size: Units of the MLP, and of each direction of the BiLSTM.
        channels: Filters of each of the CNN's widths, 1, 3, 5 and 7.
        decoder: Decoder of data sets with a query: `tanh` (Jain & Wallace's), `linear` or `query`;
            see `fastattnerase train --help`.
        epochs: Epochs of every model of one text.
        pair_epochs: Epochs of models of two texts; by default 25, of bAbI 100, as published. Of
            models of bAbI hidden layers, filters and embeddings are a quarter or less as wide as
            the others', and embeddings start from random numbers.
        max_tokens: Documents are cut after so many words; by default none is.
        max_train: Largest number of training documents; by default all.
        max_test: Largest number of test documents; by default all.
        loo_instances: Largest number of test documents whose words are left out one by one, evenly
            spaced; by default all.
        permutations: Permutations of the weights of each test document.
        adversary_instances: Largest number of test documents for which adversarial attention is
            sought, evenly spaced; by default all.
        adversaries: Adversaries of each of them, sought together.
        adversary_steps: Steps of the search for adversaries.
        adversary_rule: Slack and weights of the search: the published `code`'s, or the `paper`'s.
            The report selects adversaries by both.
        backend: Backend of the engine: `auto`, `cuda`, `triton`, `cpu` or `reference`; see
            `fastattnerase info`.

    Raises:
        RunError: a name that is not known, or a number out of range.

    Source:
        Jain & Wallace 2019, and their code.

    Example:
        >>> Options(datasets=("sst",)).permutations
        100
    """

    datasets: tuple[str, ...] = DATASETS
    encoders: tuple[str, ...] = ENCODERS
    attentions: tuple[str, ...] = ("additive",)
    seeds: tuple[int, ...] = (0,)
    vectors: str | None = None
    embedding_size: int = 300
    hidden_size: int = 128
    channels: int = 32
    decoder: Literal["tanh", "linear", "query"] = "tanh"
    epochs: int = 8
    pair_epochs: int | None = None
    max_tokens: int | None = None
    max_train: int | None = None
    max_test: int | None = None
    loo_instances: int | None = None
    permutations: int = 100
    adversary_instances: int | None = None
    adversaries: int = 5
    adversary_steps: int = 500
    adversary_rule: Literal["code", "paper"] = "code"
    backend: BackendName = "auto"

    def __post_init__(self) -> None:
        check_names(
            self,
            {"datasets": preset_names(), "encoders": ENCODERS, "attentions": ATTENTIONS},
        )
        check_seeds(self, "seeds", most=_MOST_SEED)
        whole = (field.name for field in dataclasses.fields(self))
        check_counts(self, *(name for name in whole if isinstance(getattr(self, name), int)))
        if self.hidden_size < _BABI_SHARE or self.channels < _BABI_SHARE:
            raise RunError(
                f"hidden_size, channels: given {self.hidden_size}, {self.channels}, needed at "
                f"least {_BABI_SHARE} of each, for models of bAbI have a quarter of them"
            )
        for problem in wrong_choices(self):
            raise RunError(problem)

    def cells(self) -> list[Cell]:
        """List the models."""
        return [
            Cell(dataset, encoder, attention, seed)
            for seed in self.seeds
            for dataset in self.datasets
            for encoder in self.encoders
            for attention in self.attentions
        ]

    def model(self, cell: Cell) -> ModelConfig:
        """Configure the model of a cell."""
        from fastattnerase.models.wen import jain_wallace_model

        of_pair = pair(cell.dataset)
        share = _BABI_SHARE if is_babi(cell.dataset) else 1
        config = jain_wallace_model(
            cell.encoder,
            cell.attention,
            embedding_size=(of_pair and of_pair.embedding_size) or self.embedding_size,
            hidden_size=self.hidden_size // share,
            channels=self.channels // share,
            cnn_widths=_CNN_WIDTHS,
            decoder=None if of_pair is None else self.decoder,
            seed=cell.seed,
        )
        return replace(config, attention_scaled=True)

    def training(self, cell: Cell) -> TrainConfig:
        """Configure the training of a cell's model."""
        of_pair = pair(cell.dataset)
        if of_pair is None:
            return jain_wallace_training(epochs=self.epochs, seed=cell.seed)
        return of_pair.training(self.pair_epochs, cell.seed)

    def used_for_data(self) -> dict[str, Any]:
        """Give the options that the prepared data depend on."""
        return {name: getattr(self, name) for name in ("max_tokens", "max_train", "max_test")}

    def used_for_model(self, cell: Cell) -> dict[str, Any]:
        """Give the options that a model depends on, beside its data.

        Of the word vectors the file's name: where it lies makes no other numbers.
        """
        of_pair = pair(cell.dataset)
        names = ["channels" if cell.encoder == "cnn" else "hidden_size"]
        names.append("epochs" if of_pair is None else "decoder")
        if self.vectors is None and not is_babi(cell.dataset):
            names.append("embedding_size")
        used = {name: getattr(self, name) for name in names}
        if of_pair is not None:
            epochs = self.pair_epochs or of_pair.epochs
            used[PAIR_EPOCHS[is_babi(cell.dataset)]] = epochs
        vectors = self.vectors_on(cell.dataset)
        used["vectors"] = None if vectors is None else Path(vectors).name
        return used | dataclasses.asdict(cell)

    def vectors_on(self, dataset: str) -> str | None:
        """Give the word vectors of a data set."""
        return vectors_on(dataset, self.vectors)

    def used_for(self, test: str) -> dict[str, Any]:
        """Give the options that the results of a test depend on, beside its model."""
        names = {
            "correlation": ("loo_instances",),
            "permutation": ("permutations",),
            "adversary": (
                "adversary_instances", "adversaries", "adversary_steps", "adversary_rule",
            ),
        }[test]  # fmt: skip
        return {name: getattr(self, name) for name in names}


def is_babi(dataset: str) -> bool:
    """Say whether a data set is a bAbI task, of whose models the sizes are published."""
    of_pair = pair(dataset)
    return of_pair is not None and of_pair.embedding_size is not None


@dataclass(frozen=True)
class Cell:
    """A model: which data, which parts, which seed."""

    dataset: str
    encoder: str
    attention: str
    seed: int = 0

    @property
    def key(self) -> str:
        """Its name in the keys of units: `sst/bilstm-additive-0`."""
        return f"{self.dataset}/{self.encoder}-{self.attention}-{self.seed}"

    @classmethod
    def of(cls, key: str) -> Cell:
        """Read a cell's key.

        Example:
            >>> Cell.of("sst/bilstm-additive-0")
            Cell(dataset='sst', encoder='bilstm', attention='additive', seed=0)
        """
        dataset, _, model = key.partition("/")
        encoder, attention, seed = model.split("-")
        return cls(dataset, encoder, attention, int(seed))

    @property
    def place(self) -> tuple[int, int, str, int, int]:
        """Where it stands in tables: by seed, then by data set as the paper has them."""
        known = list(DATA_SETS)
        number = known.index(self.dataset) if self.dataset in known else len(known)
        parts = ENCODERS.index(self.encoder), ATTENTIONS.index(self.attention)
        return (self.seed, number, self.dataset, *parts)

    @property
    def cost(self) -> float:
        """How long its training takes, relative to others."""
        return model_cost(self.dataset, self.encoder)
