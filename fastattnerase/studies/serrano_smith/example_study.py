"""A study file that shows every key."""

from __future__ import annotations

import dataclasses
import textwrap

from fastattnerase.data import DataConfig
from fastattnerase.data.word2vec import Word2VecConfig
from fastattnerase.models import ModelConfig, TrainConfig
from fastattnerase.studies.serrano_smith.config import Config

_TEXT = """\
# A study for `fastattnerase reproduce serrano-smith --study FILE --data-root DIR`, as TOML; a JSON
# file with the same keys does as well. Only a corpus's name and its file of texts are needed.

name = "reviews"

# Each model is trained and erased once with each seed; without the key, once.
seeds = [0, 1, 2, 3, 4]

# For all models: sizes and parts. {model}
[model]
hidden_size = 50
embedding_size = 200

# For all models: how they are trained. {training}
[training]
epochs = 15
learning_rate = 4e-4

# For one of the models, on every corpus; [models.HANrnn.model] likewise.
[models.HANrnn.training]
learning_rate = 2e-4

# The experiment. {erase}
[erase]
random_orders = 5

# A corpus; another one is another [[corpora]]. Files are relative to --data-root.
[[corpora]]
name = "Reviews"
models = ["HANrnn", "HANconv", "HANnoenc", "FLANrnn", "FLANconv", "FLANnoenc"]
rows = 5000                # at most so many, drawn from each split and label in proportion
label_pattern = '_(\\d+)$'  # the label is its first group, found in the label column
# paper = "IMDB"           # the paper's corpus whose numbers stand beside the results

# Texts, labels, splits, words. {data}
[corpora.data]
path = "reviews.csv"  # or train, dev and test
text_column = "text"
label_column = "id"
classes = ["1", "2"]
min_count = 5         # the study's default; elsewhere 2

# Word vectors trained on train and dev; without, random ones. {word2vec}
[corpora.word2vec]
size = 200

# For all models on this corpus: [corpora.model] and [corpora.training]; for one of them:
[corpora.each.HANrnn.training]
epochs = 20
"""


def example_study() -> str:
    """Write a study file with every table, and with the keys that each table knows.

    Example:
        >>> print(example_study().splitlines()[3])
        name = "reviews"
    """
    kinds = {
        "model": ModelConfig,
        "training": TrainConfig,
        "erase": Config,
        "data": DataConfig,
        "word2vec": Word2VecConfig,
    }
    keys = {
        name: "Keys:\n"
        + textwrap.fill(
            ", ".join(field.name for field in dataclasses.fields(kind)),
            100,
            initial_indent="#   ",
            subsequent_indent="#   ",
        )
        for name, kind in kinds.items()
    }
    return _TEXT.format(**keys)
