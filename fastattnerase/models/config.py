"""What a model is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fastattnerase.fields import wrong_choices
from fastattnerase.models.errors import ModelError
from fastattnerase.models.registry import require_parts

CNN_WIDTHS = (1, 3, 5, 7, 15)  # Wen, Subbalakshmi and Yang's; Jain & Wallace's lack the last
_LARGEST = 65_536  # width or depth: more is a slip of the pen, and no memory holds it


@dataclass(frozen=True)
class ModelConfig:
    """The parts and sizes of an attention classifier; JSON-able.

    Defaults are the sizes of Serrano & Smith 2019 (appendix and code) and the dropout rates of
    their IMDB models. Output dropout and initial parameters are by the paper's reading; dropout of
    the conv encoder's input, of which the paper says nothing, is their published code's.

    Attributes:
        kind: Kind of model: `flan`, one attention layer over words; `han`, from words to sentences
            to the document; `sequence`, as `flan`, but with start and end markers that only the
            encoder reads; `pair`, as `sequence`, with a second text, the query, which attention
            and the decoder read.
        encoder: Encoder: `rnn` (bidirectional GRU), `bilstm`, `conv` (filters of width 3 and 5),
            `cnn` (filters of the widths of `cnn_widths`), `mlp` (a layer on each word) or `noenc`
            (none).
        attention: How items are scored: `additive`, `deep` (layers of ReLU), `dot` (a learned
            vector, of `pair` the query's) or `uniform` (all alike).
        embedding_size: Width of the word embeddings; that of the word vectors where these are
            given.
        hidden_size: Units of each direction of `rnn` and `bilstm`, filters of each width of `conv`
            and `cnn`, or units of `mlp`.
        attention_size: Width of the attention's hidden layers; by default that of the encoder's
            output.
        attention_depth: Layers of deep attention after its first, the scoring one included.
        attention_scaled: Whether dot attention divides scores by the square root of the encoder's
            width; with a query it always does.
        activation: Activation of the `mlp` encoder: `tanh` or `relu`.
        mechanism: From scores to weights: `softmax`, `gumbel` (softmax with noise) or `sparsemax`.
        temperature: Temperature of Gumbel-softmax.
        gumbel_noise: Gumbel noise in training: `fresh` in every step, or `shared`: each document
            keeps its own.
        gumbel_evaluation: Gumbel noise when the model is applied: `off` or `on`.
        gumbel_hard: Whether the largest item gets all weight, with the gradient of the soft
            weights (straight-through estimator).
        head: Output layer: `softmax`, a logit for each class; or, for two classes, `sigmoid`, one
            logit.
        decoder: What makes logits of a `pair`: `tanh`, a hidden layer over the average of the text
            and the query (Jain & Wallace's), for which there is no smallest set that flips;
            `linear`, of the average alone; or `query`, linear in the average and in the query.
        cnn_widths: Widths of the filters of `cnn`, odd, with commas between.
        dropout_embedding: Dropout rate of the word embeddings.
        dropout_sentence: Dropout rate of the sentence vectors of `han`.
        dropout_output: Dropout rate in the classification layer.
        dropout_style: What output dropout drops: features of the document vector (`paper`) or
            class logits (`code`).
        conv_dropout: Dropout rate of a `conv` or `cnn` encoder's input, on top of the others; by
            default the published code's, 0 by the paper.
        embedding_max_norm: Word vectors longer than this are scaled to it whenever they are looked
            up; by default they are left as they are.
        initialisation: Initial parameters: `plain`, Xavier-uniform input and orthogonal recurrent
            weights of the GRU, biases zero; `code`, the same, but the second quarter of its
            recurrent biases is 1, as an LSTM's rule made it.
        seed: Seed of the initial parameters.
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
    decoder: Literal["tanh", "linear", "query"] = "tanh"
    cnn_widths: tuple[int, ...] = CNN_WIDTHS
    dropout_embedding: float = 0.4445
    dropout_sentence: float = 0.2202
    dropout_output: float = 0.3457
    dropout_style: Literal["paper", "code"] = "paper"
    conv_dropout: float = 0.3
    embedding_max_norm: float | None = None
    initialisation: Literal["plain", "code"] = "plain"
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "cnn_widths", tuple(self.cnn_widths))  # JSON gives lists
        odd = all(width % 2 == 1 and 0 < width <= _LARGEST for width in self.cnn_widths)
        if not self.cnn_widths or not odd:
            raise ModelError(
                f"cnn_widths: given {self.cnn_widths}, needed at least one odd number, each from 1 "
                f"to {_LARGEST:,}"
            )
        for name in ("embedding_size", "hidden_size", "attention_size", "attention_depth"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _LARGEST:
                raise ModelError(f"{name}: given {value}, needed 1 to {_LARGEST:,}")
        if self.embedding_max_norm is not None and not self.embedding_max_norm > 0:
            raise ModelError(
                f"embedding_max_norm: given {self.embedding_max_norm}, needed a positive number or "
                "None"
            )
        for name in ("dropout_embedding", "dropout_sentence", "dropout_output", "conv_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name}: given {getattr(self, name)}, needed a share in [0, 1)")
        if not 0 <= self.seed < 2**63:
            raise ModelError(f"seed: given {self.seed}, needed 0 to 2**63 - 1")
        if not 0 < self.temperature < math.inf:
            raise ModelError(f"temperature: given {self.temperature}, needed a positive number")
        for problem in wrong_choices(self):
            raise ModelError(problem)
        require_parts(asdict(self))
        if self.kind == "pair" and self.head == "sigmoid":
            raise ModelError("head: given sigmoid with kind pair, needed softmax")

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as a dictionary for JSON.

        `decoder` is there only for pairs, `cnn_widths` only where they are not the usual ones:
        models and trainings of versions that had no such options open and go on as before.
        """
        values = asdict(self)
        if self.kind != "pair":
            del values["decoder"]
        if self.cnn_widths == CNN_WIDTHS:
            del values["cnn_widths"]
        else:
            values["cnn_widths"] = list(self.cnn_widths)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Make a configuration from `to_dict`'s result; unknown names are refused."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ModelError(f"model configuration: unknown {', '.join(map(repr, unknown))}")
        return cls(**values)
