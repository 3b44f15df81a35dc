"""Encoders: vectors of a sequence's items to vectors that may know their neighbours.

An encoder is a module `(input_size, config) -> encoder` with `output_size` and
`forward(values [T, I], lengths [B]) -> [T, output_size]`, on packed sequences, registered by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from fastattnerase.models.config import ModelConfig
from fastattnerase.models.packed import positions_of
from fastattnerase.models.registry import Registry


class Encoder(nn.Module, ABC):
    """The base of encoders; `output_size` is the width of what `forward` returns."""

    output_size: int

    @abstractmethod
    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Encode packed sequences.

        Args:
            values: `[T, I]`, float32.
            lengths: `[B]`, int64, sum `T`; 0 is allowed.

        Returns:
            `[T, output_size]`, float32.
        """


ENCODERS: Registry[Callable[[int, ModelConfig], Encoder]] = Registry("encoder")


@ENCODERS.register("noenc")
class NoEncoder(Encoder):
    """Every item keeps its own vector."""

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.output_size = input_size

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Give the vectors as they are."""
        return values


@ENCODERS.register("rnn")
class GRUEncoder(Encoder):
    """A bidirectional GRU of one layer: forward and backward states side by side."""

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.output_size = 2 * config.hidden_size
        self.gru = nn.GRU(input_size, config.hidden_size, bidirectional=True)
        for name, parameter in self.gru.named_parameters():
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(parameter)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(parameter)  # the whole [3H, H] matrix, not gate by gate
            else:
                nn.init.zeros_(parameter)
                if config.initialisation == "code" and name.startswith("bias_hh"):
                    # The LSTM's forget-gate rule on a GRU: the end of the reset gate's part and
                    # most of the update gate's.
                    with torch.no_grad():
                        parameter[len(parameter) // 4 : len(parameter) // 2] = 1.0

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Run the GRU over each sequence in both directions."""
        if len(values) == 0:
            return values.new_zeros(0, self.output_size)
        # A packed sequence lists all first items, longest sequence first, then all second items ….
        # Ordering the items directly spares the padded copy that pack_padded_sequence needs.
        rank = torch.argsort(torch.argsort(lengths, descending=True, stable=True))  # [B]
        key = positions_of(lengths) * len(lengths) + rank.repeat_interleave(lengths)  # [T]
        order = torch.argsort(key)  # [T]
        steps = torch.arange(int(lengths.max()), device=lengths.device)  # [N]
        batch_sizes = (lengths[:, None] > steps).sum(0).cpu()  # [N]
        states = self.gru(PackedSequence(values[order], batch_sizes))[0].data  # [T, 2H]
        return torch.index_select(states, 0, torch.argsort(order))


@ENCODERS.register("conv")
class ConvEncoder(Encoder):
    """Convolutions of width 3 and 5, zeros beyond the ends, ReLU; width 3's channels first."""

    WIDTHS = (3, 5)

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.output_size = len(self.WIDTHS) * config.hidden_size
        self.dropout = nn.Dropout(config.conv_dropout)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, config.hidden_size, width, padding=width // 2)
            for width in self.WIDTHS
        )

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Convolve each sequence by itself."""
        if len(values) == 0:
            return values.new_zeros(0, self.output_size)
        # All sequences in one row with a gap of zeros after each, as wide as the widest filter's
        # reach: no padding to the longest sequence, and none sees its neighbour.
        gap = max(self.WIDTHS) // 2
        before = torch.arange(len(lengths), device=lengths.device) * gap  # [B]
        index = torch.arange(len(values), device=lengths.device)
        index = index + before.repeat_interleave(lengths)  # [T]
        row = values.new_zeros(len(values) + gap * len(lengths), values.shape[1])  # [L, I]
        row = row.index_copy(0, index, self.dropout(values))
        row = row.T[None]  # [1, I, L]
        channels = torch.cat([convolution(row) for convolution in self.convolutions], 1)[0]
        return channels.T[index].relu()  # [T, output_size]
