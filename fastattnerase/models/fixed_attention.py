"""Models whose attention is not trained: equal, given, random or untrained weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor, nn

from fastattnerase.choices import FixedAttention
from fastattnerase.data.dataset import PreparedCorpus
from fastattnerase.models.base import AttentionClassifier, AttentionLayer
from fastattnerase.models.build import build_model
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.errors import ModelError
from fastattnerase.models.mechanisms import Mechanism, document_noise
from fastattnerase.models.packed import segment_softmax
from fastattnerase.models.predictions import Predictions
from fastattnerase.plurals import plural

READINGS = get_args(FixedAttention)
NEW_SEED = 1_000_003  # added to a seed for initial values that are not the base model's


class _GivenWeights(Mechanism):
    """Weights by the document, whatever the scores."""

    def __init__(self, table: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.table = table

    def forward(self, scores: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
        for key, n in zip(keys.tolist(), lengths.tolist(), strict=True):
            known = self.table.get(key)
            if known is None or len(known) != n:
                needed = "a document that was given weights"
                if known is not None:
                    needed = f"all {len(known):,}, each of which was given its weight"
                raise ModelError(
                    f"document {key}: given {n:,} {plural(n, 'word')}, needed {needed}"
                )
        return torch.cat([self.table[key] for key in keys.tolist()]).to(scores)  # [T]


def fixed_attention(
    reading: str, config: ModelConfig, prepared: PreparedCorpus, base: AttentionClassifier
) -> AttentionClassifier:
    """Make a model whose attention is not trained; encoder and decoder are.

    Args:
        reading: `uniform`: all items weigh alike. `trained`: each document keeps the weights that
            the base model gave it. `random`: each document has weights of its own, drawn uniformly
            from the simplex (`random_weights`). `parameters`: attention keeps its random initial
            parameters.
        config: of the base model.
        prepared: the data.
        base: the trained base model.

    Returns:
        An untrained model.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 5.1, Fix Attn, which allows these readings.
    """
    size = len(prepared.classes)
    config = replace(
        config,
        seed=config.seed + NEW_SEED,  # not the base model's initial values
        embedding_size=base.config.embedding_size,  # that of the word vectors, where there are some
    )
    if reading == "uniform":
        plain = replace(config, attention="uniform")
        return build_model(plain, prepared.vocabulary, size, prepared.embeddings)
    if reading == "parameters":
        model = build_model(config, prepared.vocabulary, size, prepared.embeddings)
        _freeze(model.get_submodule("words.attention"))
        return model
    splits = (prepared.train, prepared.dev, prepared.test)
    if reading == "trained":
        logs = Predictions.of(base, splits).log_weights
        table = {key: log.exp() for key, log in logs.items()}
    elif reading == "random":
        table = {
            document.id: random_weights(config.seed, document.id, len(document))
            for split in splits
            for document in split
        }
    else:
        raise ValueError(f"reading: given {reading!r}, needed one of {', '.join(READINGS)}")
    return given_attention(config, prepared, table)


def given_attention(
    config: ModelConfig, prepared: PreparedCorpus, table: Mapping[int, Tensor]
) -> AttentionClassifier:
    """Make a model that averages with given weights, by the document; the rest is trained.

    Whatever batch a document is in, its weights are those of the table, to the bit.

    Args:
        config: its parts and sizes, of a kind that attends to words in one layer, such as
            `sequence` or `pair`; the scores of its attention are not used.
        prepared: the data.
        table: from each document's id, of all splits, to its weights `[n]`, sum 1.

    Returns:
        An untrained model.

    Source:
        Wiegreffe and Pinter 2019, section 3.4; Wen, Subbalakshmi and Yang 2022, section 5.1.

    Example:
        >>> given_attention(config, prepared, lender.weights)  # doctest: +SKIP
    """
    size = len(prepared.classes)
    if prepared.embeddings is not None:
        config = replace(config, embedding_size=prepared.embeddings.shape[1])
    model = build_model(config, prepared.vocabulary, size, prepared.embeddings)
    layer = model.get_submodule("words")
    assert isinstance(layer, AttentionLayer)
    _freeze(layer.attention)
    layer.mechanism = _GivenWeights(table)
    return model


def random_weights(seed: int, key: int, n: int) -> Tensor:
    """Draw a document's weights uniformly from the simplex: `a_i = E_i / Σ_j E_j`, E exponential.

    Gumbel noise is `g = −ln E`, so that these are the softmax of `−g`. The largest of `n` weights
    is on average `H_n / n`, with the harmonic number `H_n = Σ_{i≤n} 1 / i`.

    Args:
        seed: a number.
        key: of the document, whose weights depend on nothing else.
        n: its words.

    Returns:
        `[n]`, float32, sum 1.

    Example:
        >>> random_weights(0, 5, 1).tolist()
        [1.0]
    """
    lengths = torch.tensor([n])
    return segment_softmax(-document_noise(seed, torch.tensor([key]), lengths), lengths).float()


def _freeze(module: nn.Module) -> None:
    """Exclude a module's parameters from training."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
