"""What a model is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fastattnerase.models.errors import ModelError

_LARGEST = 65_536  # width or depth: more is a slip of the pen, and no memory holds it
_CHOICES = {
    "activation": ("tanh", "relu"),
    "gumbel_noise": ("fresh", "shared"),
    "gumbel_evaluation": ("off", "on"),
    "head": ("softmax", "sigmoid"),
    "dropout_style": ("paper", "code"),
    "initialisation": ("plain", "code"),
}


@dataclass(frozen=True)
class ModelConfig:
    """The parts and sizes of an attention classifier; JSON-able.

    Defaults are the sizes of Serrano & Smith 2019 (appendix and code) and the dropout rates of
    their IMDB models. Where paper and code differ, the paper's reading is the default.

    Attributes:
        kind: `flan`, one attention layer over words; `han`, words to sentences to the document;
            `sequence`, as flan but with start and end markers that only the encoder reads.
        encoder: `rnn` (bidirectional GRU), `bilstm`, `conv` (filters of width 3 and 5), `cnn` (of
            width 1, 3, 5, 7 and 15), `mlp` (a layer on each word) or `noenc` (none).
        attention: how items are scored: `additive`, `deep` (layers of ReLU), `dot` (a learned
            vector) or `uniform` (all alike).
        mechanism: from scores to weights: `softmax`, `gumbel` (softmax with noise) or `sparsemax`.
        embedding_size: width of the word embeddings; that of the pre-trained vectors where given.
        hidden_size: units a direction (rnn, bilstm), filters a width (conv, cnn), units (mlp).
        attention_size: width of the attention's hidden layers; None: the encoder's output width.
        attention_depth: layers of deep attention after its first, the scoring one included.
        attention_scaled: dot attention divides scores by the square root of the encoder's width.
        activation: of the mlp encoder: `tanh`, or `relu`.
        temperature: of Gumbel-softmax.
        gumbel_noise: in training, `fresh` in every step or `shared`: a document keeps its own.
        gumbel_evaluation: whether the noise is `on` or `off` when the model is applied.
        gumbel_hard: all weight on the largest item, with the soft weights' gradient.
        head: `softmax`, a logit for each class; or `sigmoid`, one logit for two classes.
        dropout_embedding: dropout on the word embeddings.
        dropout_sentence: dropout on the sentence vectors (han).
        dropout_output: dropout in the classification layer.
        dropout_style: `paper` drops features of the document vector, `code` drops class logits.
        conv_dropout: dropout on the input of a conv encoder, on top of the others.
        embedding_max_norm: word vectors that are longer are scaled to this length whenever they are
            looked up; None leaves them.
        initialisation: `plain`: Xavier-uniform input and orthogonal recurrent weights of the GRU,
            biases zero; `code`: the same, but the second quarter of its recurrent biases is 1, as
            an LSTM's rule made it.
        seed: of the initial parameters.
    """

    kind: str = "flan"
    encoder: str = "rnn"
    attention: str = "additive"
    embedding_size: int = 200
    hidden_size: int = 50
    attention_size: int | None = None
    attention_depth: int = 2
    attention_scaled: bool = False
    activation: Literal["tanh", "relu"] = "tanh"
    mechanism: str = "softmax"
    temperature: float = 0.8
    gumbel_noise: Literal["fresh", "shared"] = "fresh"
    gumbel_evaluation: Literal["off", "on"] = "off"
    gumbel_hard: bool = False
    head: Literal["softmax", "sigmoid"] = "softmax"
    dropout_embedding: float = 0.4445
    dropout_sentence: float = 0.2202
    dropout_output: float = 0.3457
    dropout_style: Literal["paper", "code"] = "paper"
    conv_dropout: float = 0.3
    embedding_max_norm: float | None = None
    initialisation: Literal["plain", "code"] = "plain"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("embedding_size", "hidden_size", "attention_size", "attention_depth"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _LARGEST:
                raise ModelError(
                    f"{name}: got {value}; at least 1, at most {_LARGEST:,}, is needed"
                )
        if self.embedding_max_norm is not None and not self.embedding_max_norm > 0:
            raise ModelError(
                f"embedding_max_norm: got {self.embedding_max_norm}; a positive number is needed, "
                "or None"
            )
        for name in ("dropout_embedding", "dropout_sentence", "dropout_output", "conv_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name}: got {getattr(self, name)}; a share in [0, 1) is needed")
        if not 0 <= self.seed < 2**63:
            raise ModelError(f"seed: got {self.seed}; 0 to 2**63 - 1 is needed")
        if not 0 < self.temperature < math.inf:
            raise ModelError(f"temperature: got {self.temperature}; a positive number is needed")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ModelError(
                    f"{name}: got {getattr(self, name)!r}; {' or '.join(choices)} is needed"
                )

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Make a configuration from `to_dict`'s result; unknown names are refused."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ModelError(f"model configuration: unknown {', '.join(map(repr, unknown))}")
        return cls(**values)
