"""The encoders and attentions of Wen, Subbalakshmi and Yang (2022) that Serrano & Smith lack."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from fastattnerase.models.attentions import ATTENTIONS, Attention
from fastattnerase.models.config import CNN_WIDTHS, ModelConfig
from fastattnerase.models.encoders import ENCODERS, ConvEncoder, Encoder, RecurrentEncoder

HIDDEN = 128


@ENCODERS.register("bilstm")
class LSTMEncoder(RecurrentEncoder):
    """A bidirectional LSTM of one layer, initialised as torch does."""

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.output_size = 2 * config.hidden_size
        self.ahead = nn.LSTM(input_size, config.hidden_size)
        self.back = nn.LSTM(input_size, config.hidden_size)


@ENCODERS.register("cnn")
class CNNEncoder(ConvEncoder):
    """Convolutions of the configuration's widths, by default 1, 3, 5, 7 and 15, ReLU, in order."""

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, config, config.cnn_widths)


@ENCODERS.register("mlp")
class MLPEncoder(Encoder):
    """One layer on each item by itself: `h_i = f(W x_i + b)`, `f` = tanh (Jain & Wallace's code)
    or ReLU.
    """

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.output_size = config.hidden_size
        self.layer = nn.Linear(input_size, config.hidden_size)
        self.activation = torch.tanh if config.activation == "tanh" else torch.relu

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Encode each item."""
        return self.activation(self.layer(values))  # [T, H]


@ATTENTIONS.register("deep")
class DeepAttention(Attention):
    """Deep attention: `e_i = W_s relu(W_{s−1} … relu(W_1 relu(W_h h_i)))`.

    All layers are as wide as additive attention's; all but the last, which scores, have biases.
    `s` is the configuration's `attention_depth`.

    Source: Pavlopoulos et al. 2017; Wen, Subbalakshmi and Yang 2022, equations 3 and 4, which
    leave depth, widths and biases open.
    """

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        size = config.attention_size or input_size
        layers: list[nn.Module] = [nn.Linear(input_size, size), nn.ReLU()]
        for _ in range(config.attention_depth - 1):
            layers += [nn.Linear(size, size), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(size, 1, bias=False))

    def forward(self, values: Tensor) -> Tensor:
        """Score items: `[T, D]` float32 → `[T]` float32."""
        return torch.squeeze(self.layers(values), -1)  # [T]


@ATTENTIONS.register("dot")
class DotAttention(Attention):
    """Dot attention with a learned vector: `e_i = w · h_i`, divided by `√D` where scaled.

    Source: Wen, Subbalakshmi and Yang 2022, equation 5 (not scaled); Jain & Wallace's code scales.
    """

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.vector = nn.Linear(input_size, 1, bias=False)
        self.scale = input_size**-0.5 if config.attention_scaled else 1.0

    def forward(self, values: Tensor) -> Tensor:
        """Score items: `[T, D]` float32 → `[T]` float32."""
        return torch.squeeze(self.vector(values), -1) * self.scale  # [T]


@ATTENTIONS.register("uniform")
class UniformAttention(Attention):
    """Attention without parameters: every item has the score 0."""

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, values: Tensor) -> Tensor:
        """Score items: `[T, D]` float32 → `[T]` float32."""
        return values.new_zeros(len(values))  # [T]


def jain_wallace_model(
    encoder: str = "bilstm",
    attention: str = "additive",
    mechanism: str = "softmax",
    *,
    embedding_size: int = 300,
    hidden_size: int = HIDDEN,
    channels: int = 32,
    cnn_widths: tuple[int, ...] = CNN_WIDTHS,
    decoder: Literal["tanh", "linear", "query"] | None = None,
    seed: int = 0,
) -> ModelConfig:
    """Configure a model as Wen et al. do, and as Jain & Wallace do where they are silent.

    No dropout; attention half as wide as the encoder's output; a sigmoid head, for two texts
    softmax.

    Args:
        encoder: `bilstm`, `cnn` or `mlp`.
        attention: `additive`, `deep` or `dot`.
        mechanism: `softmax`, `gumbel` or `sparsemax`.
        embedding_size: width of the word vectors.
        hidden_size: units a direction of the BiLSTM, and units of the MLP.
        channels: filters of each of the CNN's widths. 128 by the letter of the paper; Jain &
            Wallace have 32.
        cnn_widths: those widths; Jain & Wallace have 1, 3, 5 and 7.
        decoder: of a model of two texts (kind `pair`): `tanh` (Jain & Wallace's), `linear` (Wen et
            al.'s text) or `query`; None for a model of one.
        seed: of the initial parameters.

    Returns:
        The configuration.

    Source:
        Wen, Subbalakshmi and Yang 2022, appendix A; Jain & Wallace 2019, code.

    Example:
        >>> jain_wallace_model("cnn", "dot").attention_size
        80
        >>> jain_wallace_model("cnn", cnn_widths=(1, 3, 5, 7), decoder="tanh").kind
        'pair'
    """
    size = channels if encoder == "cnn" else hidden_size
    width = {"bilstm": 2 * size, "cnn": len(cnn_widths) * size}.get(encoder, size)
    return ModelConfig(
        kind="sequence" if decoder is None else "pair",
        decoder=decoder or "tanh",
        encoder=encoder,
        attention=attention,
        mechanism=mechanism,
        cnn_widths=cnn_widths,
        embedding_size=embedding_size,
        hidden_size=size,
        attention_size=max(1, width // 2),
        head="sigmoid" if decoder is None else "softmax",
        dropout_embedding=0.0,
        dropout_sentence=0.0,
        dropout_output=0.0,
        conv_dropout=0.0,
        seed=seed,
    )
