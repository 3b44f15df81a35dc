"""What is trained and asked in the study of Jain and Wallace, and the cells that follow from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fastattnerase.choices import BackendName
from fastattnerase.fields import wrong_choices
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.published import model_cost, pair
from fastattnerase.models.train_config import (
    TrainConfig,
    jain_wallace_pair_training,
    jain_wallace_training,
)
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.jain_wallace.paper import DATA_SETS

ENCODERS = ("bilstm", "cnn", "mlp")
ATTENTIONS = ("additive", "dot")
DATASETS = ("sst", "imdb_5k", "ag_news", "20news_sports", "psytar")
_MOST_SEED = 2**31 - 1
_CNN_WIDTHS = (1, 3, 5, 7)
_BABI_SHARE = 4  # by which models of bAbI are narrower


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
        query_epochs: Epochs of every model with a query, but those of bAbI.
        babi_epochs: Epochs of every model of a bAbI task. Of these hidden layers, filters and
            embeddings are a quarter or less as wide as the others', as published, and start from
            random numbers.
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
    query_epochs: int = 25
    babi_epochs: int = 100
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
        from fastattnerase.data.presets import DATA_PRESETS  # imports torch

        for name, known in (
            ("datasets", tuple(DATA_PRESETS)),
            ("encoders", ENCODERS),
            ("attentions", ATTENTIONS),
        ):
            given = getattr(self, name)
            unknown = [item for item in given if item not in known]
            if not given or unknown or len(set(given)) < len(given):
                raise RunError(
                    f"{name}: given {', '.join(map(str, given)) or 'none'}, needed distinct names "
                    f"of {', '.join(known)}"
                )
        fits = self.seeds and min(self.seeds) >= 0 and max(self.seeds) <= _MOST_SEED
        if not fits or len(set(self.seeds)) < len(self.seeds):
            raise RunError(
                f"seeds: given {', '.join(map(str, self.seeds)) or 'none'}, needed distinct "
                f"numbers from 0 to {_MOST_SEED}"
            )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and value < 1:
                raise RunError(f"{field.name}: given {value}, needed at least 1")
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
        return jain_wallace_pair_training(
            epochs=self.babi_epochs if is_babi(cell.dataset) else self.query_epochs,
            batch_size=of_pair.batch_size,
            seed=cell.seed,
        )

    def used_for_data(self) -> dict[str, Any]:
        """Give the options that the prepared data depend on."""
        return {name: getattr(self, name) for name in ("max_tokens", "max_train", "max_test")}

    def used_for_model(self, cell: Cell) -> dict[str, Any]:
        """Give the options that a model depends on, beside its data.

        Of the word vectors the file's name: where it lies makes no other numbers.
        """
        names = ["channels" if cell.encoder == "cnn" else "hidden_size"]
        if pair(cell.dataset) is None:
            names.append("epochs")
        else:
            names += ["babi_epochs" if is_babi(cell.dataset) else "query_epochs", "decoder"]
        if self.vectors is None and not is_babi(cell.dataset):
            names.append("embedding_size")
        used = {name: getattr(self, name) for name in names}
        vectors = self.vectors_on(cell.dataset)
        used["vectors"] = None if vectors is None else Path(vectors).name
        return used | dataclasses.asdict(cell)

    def vectors_on(self, dataset: str) -> str | None:
        """Give the word vectors of a data set: bAbI has none, as published."""
        return None if is_babi(dataset) else self.vectors

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
