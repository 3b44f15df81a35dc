"""How Jain & Wallace train on data sets of two texts, and how long models of published data take.

By the name of the preset in `data.presets`. Wiegreffe & Pinter and Wen et al. took both over.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastattnerase.models.train_config import TrainConfig, jain_wallace_pair_training


@dataclass(frozen=True)
class Pair:
    """How Jain & Wallace train on a data set of two texts.

    Attributes:
        task: `QA` or `NLI`: question answering, natural language inference.
        epochs: Of a model.
        batch_size: Documents of a batch.
        hidden_size: Units of each direction of the BiLSTM and of the MLP, four times the filters
            of each width of the CNN; None where the options say.
        embedding_size: Width of random word embeddings; None where options or vectors say.
    """

    task: str
    epochs: int
    batch_size: int
    hidden_size: int | None = None
    embedding_size: int | None = None

    def training(self, epochs: int | None, seed: int) -> TrainConfig:
        """Give the training of a model.

        Args:
            epochs: so many are trained; None for the published number.
            seed: of the batches.
        """
        return jain_wallace_pair_training(
            epochs=epochs or self.epochs, batch_size=self.batch_size, seed=seed
        )


PAIRS = {
    "snli": Pair("NLI", 25, 128),
    "cnn": Pair("QA", 25, 90),
    **{f"babi_{task}": Pair("QA", 100, 50, 32, 50) for task in (1, 2, 3)},
}
_COSTS = {
    "imdb": 20.0, "imdb_5k": 3.5, "imdb_official": 25.0,
    "ag_news": 0.8, "ag_news_official": 9.0,
    "anemia": 30.0, "diabetes": 60.0,
    "snli": 4.0, "babi_1": 1.5, "babi_2": 4.0, "babi_3": 10.0, "cnn": 500.0,
}  # fmt: skip
_ENCODER_COSTS = {"bilstm": 2.0, "cnn": 1.2, "mlp": 0.6}


def pair(dataset: str) -> Pair | None:
    """Give how a data set of two texts is trained on; None for one of a single text.

    Example:
        >>> pair("babi_1").epochs, pair("sst")
        (100, None)
    """
    return PAIRS.get(dataset)


def vectors_on(dataset: str, vectors: str | None) -> str | None:
    """Give the file of word vectors of a data set: words of bAbI have none, as published.

    Example:
        >>> vectors_on("sst", "glove.txt"), vectors_on("babi_1", "glove.txt")
        ('glove.txt', None)
    """
    of_pair = pair(dataset)
    return None if of_pair is not None and of_pair.embedding_size else vectors


def task_of(dataset: str) -> str:
    """Name the task of a data set of two texts, `QA` or `NLI`; empty for one text."""
    return PAIRS[dataset].task if dataset in PAIRS else ""


def data_cost(dataset: str) -> float:
    """Give how long it takes to prepare a data set, roughly, against others and their models."""
    return 0.2 * _COSTS.get(dataset, 1.0)


def model_cost(dataset: str, encoder: str) -> float:
    """Give how long it takes to train a model, roughly, against others.

    Example:
        >>> model_cost("sst", "bilstm"), model_cost("imdb_5k", "mlp")
        (2.0, 2.1)
    """
    return _COSTS.get(dataset, 1.0) * _ENCODER_COSTS[encoder]
