"""Small models in float64 with all their parts, and documents of a few sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fastattnerase.data import Dataset, TokenisedText, Vocabulary, encode
from fastattnerase.models import AttentionClassifier, ModelConfig, build_model
from fastattnerase.models.mechanisms import Mechanism

WORDS = [f"w{i}" for i in range(9)]
LENGTHS = [[3, 2], [1], [], [4, 1, 3], [2]]
MODELS = [
    ("sequence", "bilstm", "additive", "sigmoid"),
    ("sequence", "cnn", "dot", "softmax"),
    ("sequence", "mlp", "uniform", "sigmoid"),
    ("flan", "rnn", "additive", "softmax"),
    ("han", "rnn", "additive", "softmax"),
    ("pair", "bilstm", "additive", "softmax"),
]


def dataset_of(lengths: list[list[int]], seed: int = 0) -> Dataset:
    draw = np.random.default_rng(seed)
    texts = []
    for number, sizes in enumerate(lengths):
        sentences = [[str(draw.choice(WORDS)) for _ in range(size)] for size in sizes]
        texts.append(TokenisedText(number, 0, sentences, [" ".join(s) for s in sentences]))
    return asked(encode(texts, Vocabulary(WORDS)))


def asked(dataset: Dataset) -> Dataset:
    """The same documents with a query of their own, which models of one text do not read."""
    return Dataset(
        [
            replace(document, query_ids=np.array([1 + document.id, 2]), query_tokens=["q", "r"])
            for document in dataset
        ]
    )


def model_of(
    kind: str, encoder: str, attention: str, head: str, classes: int = 0, **more: Any
) -> AttentionClassifier:
    """A model in float64, with dropout that must be off and weights that are not tiny."""
    config = ModelConfig(
        kind=kind,
        encoder=encoder,
        attention=attention,
        head=head,  # type: ignore[arg-type]
        embedding_size=5,
        hidden_size=4,
        **more,
    )
    model = build_model(config, Vocabulary(WORDS), classes or (2 if head == "sigmoid" else 3))
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.train()


class Fixed(Mechanism):
    """Weights as they were when the model first ran."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.weights: Tensor | None = None

    def forward(self, scores: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
        if self.weights is None:
            self.weights = self.inner(scores, lengths, keys).detach()
        return self.weights


def fix_attention(model: AttentionClassifier) -> None:
    for part in list(model.modules()):
        mechanism = getattr(part, "mechanism", None)
        if isinstance(mechanism, Mechanism):
            part.mechanism = Fixed(mechanism)
