"""What a model is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fastattnerase.models.errors import ModelError


@dataclass(frozen=True)
class ModelConfig:
    """The parts and sizes of an attention classifier; JSON-able.

    Defaults are the sizes of Serrano & Smith 2019 (appendix and code) and the dropout rates of
    their IMDB models. Where paper and code differ, the paper's reading is the default.

    Attributes:
        kind: `flan`, one attention layer over words, or `han`, words to sentences to the document.
        encoder: `rnn` (bidirectional GRU), `conv` (filters of width 3 and 5) or `noenc` (none).
        attention: the attention mechanism, `additive`.
        embedding_size: width of the word embeddings; that of the pre-trained vectors where given.
        hidden_size: units a direction (rnn) or filters a width (conv); outputs are twice as wide.
        attention_size: width of the attention's hidden layer; None: the encoder's output width.
        dropout_embedding: dropout on the word embeddings.
        dropout_sentence: dropout on the sentence vectors (han).
        dropout_output: dropout in the classification layer.
        dropout_style: `paper` drops features of the document vector, `code` drops class logits.
        conv_dropout: dropout on the input of a conv encoder, on top of the others.
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
    dropout_embedding: float = 0.4445
    dropout_sentence: float = 0.2202
    dropout_output: float = 0.3457
    dropout_style: Literal["paper", "code"] = "paper"
    conv_dropout: float = 0.3
    initialisation: Literal["plain", "code"] = "plain"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("embedding_size", "hidden_size"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name}: got {getattr(self, name)}; at least 1 is needed")
        if self.attention_size is not None and self.attention_size < 1:
            raise ModelError(f"attention_size: got {self.attention_size}; at least 1 is needed")
        for name in ("dropout_embedding", "dropout_sentence", "dropout_output", "conv_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name}: got {getattr(self, name)}; a share in [0, 1) is needed")
        if self.dropout_style not in ("paper", "code"):
            raise ModelError(f"dropout_style: got {self.dropout_style!r}; paper or code is needed")
        if self.initialisation not in ("plain", "code"):
            raise ModelError(
                f"initialisation: got {self.initialisation!r}; plain or code is needed"
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
