"""Encoders: vectors of a sequence's items to vectors that may know their neighbours.

An encoder is a module `(input_size, config) -> encoder` with `output_size` and
`forward(values [T, I], lengths [B]) -> [T, output_size]`, on packed sequences, registered by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fastattnerase.models.config import ModelConfig
from fastattnerase.models.packed import gather, offsets_of, segment_pool
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

    def summarise(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Give one vector for each sequence between two markers: the mean of its words' states.

        Recurrent encoders give their last states instead, convolutions the maximum.

        Args:
            states: `[T + 2B, output_size]`, float32, what `forward` gave for the sequences with a
                marker before and one after the words.
            lengths: `[B]`, int64, words of each, without the markers, sum `T`; 0 is allowed.

        Returns:
            `[B, output_size]`, float32; a mean or maximum of no words is 0.

        Source: Jain & Wallace 2019, code, where the mean is over the padding, too.
        """
        share = lengths.clamp(min=1).to(states).reciprocal().repeat_interleave(lengths)  # [T]
        return segment_pool(_without_markers(states, lengths), share, lengths)


def _without_markers(states: Tensor, lengths: Tensor) -> Tensor:
    """Give the words of sequences between two markers: `[T + 2B, D]` → `[T, D]`."""
    sequence = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)  # [T]
    place = torch.arange(len(sequence), device=lengths.device) + 2 * sequence + 1  # [T]
    return gather(states, place)


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


class RecurrentEncoder(Encoder):
    """Two recurrent networks over each sequence, in both directions; states side by side.

    Subclasses set `ahead`, `back` and `output_size`, the width of both.
    """

    ahead: nn.GRU | nn.LSTM
    back: nn.GRU | nn.LSTM

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Run over each sequence in both directions."""
        # One reads each sequence from its start, the other from its end, so that what follows
        # a sequence in its padded column is read last and needs no mask. torch's own packed
        # sequences give the same, with a backward pass that is quadratic in the length on CPUs.
        starts = offsets_of(lengths)[:-1]  # [B]
        states, items = [values.new_zeros(0, self.output_size)], []
        for group in groups_of_similar_length(lengths):
            start, length = starts[group], lengths[group]  # [G]
            steps = torch.arange(int(length.max()), device=values.device)[:, None]  # [N, 1]
            step = torch.minimum(steps, length - 1)  # [N, G]
            ahead = self.ahead(gather(values, start + step))[0]  # [N, G, H]
            back = self.back(gather(values, start + length - 1 - step))[0]  # [N, G, H]
            real = steps < length  # [N, G]
            columns = torch.arange(len(group), device=values.device)
            end = (length - 1 - step) * len(group) + columns  # [N, G], where `back` has read a step
            states.append(torch.cat([ahead[real], gather(back.flatten(0, 1), end[real])], 1))
            items.append((start + step)[real])
        if not items:
            return states[0]
        return gather(torch.cat(states), torch.argsort(torch.cat(items)))  # [T, 2H]

    def summarise(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Give the last state of each direction: the markers' at either end."""
        ends = (lengths + 2).cumsum(0)  # [B]
        ahead, back = gather(states, ends - 1), gather(states, ends - lengths - 2)  # [B, 2H]
        half = self.output_size // 2
        return torch.cat([ahead[:, :half], back[:, half:]], 1)  # [B, 2H]


@ENCODERS.register("rnn")
class GRUEncoder(RecurrentEncoder):
    """A bidirectional GRU of one layer."""

    def __init__(self, input_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.output_size = 2 * config.hidden_size
        self.ahead = nn.GRU(input_size, config.hidden_size)
        self.back = nn.GRU(input_size, config.hidden_size)
        for name, parameter in [*self.ahead.named_parameters(), *self.back.named_parameters()]:
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(parameter)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(parameter)  # the whole [3H, H] matrix, not gate by gate
            else:
                nn.init.zeros_(parameter)
                if config.initialisation == "code" and name.startswith("bias_hh"):
                    # The LSTM's forget-gate rule on a GRU: the end of the reset gate's part and
                    # half of the update gate's.
                    quarter = len(parameter) // 4
                    with torch.no_grad():
                        parameter[quarter : 2 * quarter] = 1.0


def groups_of_similar_length(lengths: Tensor) -> list[Tensor]:
    """Group the sequences that are not empty: none is shorter than half its group's longest."""
    order = torch.argsort(lengths, descending=True, stable=True)
    ordered = lengths[order].tolist()
    groups, begin = [], 0
    for end in range(1, len(ordered) + 1):
        if end == len(ordered) or 2 * ordered[end] < ordered[begin]:
            if ordered[begin]:
                groups.append(order[begin:end])
            begin = end
    return groups


@ENCODERS.register("conv")
class ConvEncoder(Encoder):
    """Convolutions of width 3 and 5, zeros beyond the ends, ReLU; width 3's channels first."""

    def __init__(
        self, input_size: int, config: ModelConfig, widths: tuple[int, ...] = (3, 5)
    ) -> None:
        super().__init__()
        self.widths = widths
        self.output_size = len(widths) * config.hidden_size
        self.dropout = nn.Dropout(config.conv_dropout)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, config.hidden_size, width, padding=width // 2) for width in widths
        )

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Convolve each sequence by itself."""
        if len(values) == 0:
            return values.new_zeros(0, self.output_size)
        # All sequences in one row with a gap of zeros after each, as wide as the widest filter's
        # reach: no padding to the longest sequence, and none sees its neighbour.
        gap = max(self.widths) // 2
        before = torch.arange(len(lengths), device=lengths.device) * gap  # [B]
        index = torch.arange(len(values), device=lengths.device)
        index = index + before.repeat_interleave(lengths)  # [T]
        row = values.new_zeros(len(values) + gap * len(lengths), values.shape[1])  # [L, I]
        row = row.index_copy(0, index, self.dropout(values))
        row = row.T[None]  # [1, I, L]
        channels = torch.cat([convolution(row) for convolution in self.convolutions], 1)[0]
        return channels.T[index].relu()  # [T, output_size]

    def summarise(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Give the largest state of the words, feature by feature."""
        words = _without_markers(states, lengths)  # [T, D]
        columns = torch.arange(max(1, int(lengths.max())), device=lengths.device)  # [N]
        real = columns < lengths[:, None]  # [B, N]
        place = (offsets_of(lengths)[:-1, None] + columns).masked_fill(~real, 0)  # [B, N]
        if len(words) == 0:
            return words.new_zeros(len(lengths), self.output_size)
        # States are ReLU's, so that zeros of the padding are no larger than any.
        return (gather(words, place) * real[..., None]).amax(1)  # [B, D]
