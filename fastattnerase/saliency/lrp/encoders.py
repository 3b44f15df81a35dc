"""Relevance through each encoder: a rule by the encoder's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fastattnerase.models.encoders import (
    ConvEncoder,
    Encoder,
    GRUEncoder,
    NoEncoder,
    RecurrentEncoder,
    groups_of_similar_length,
)
from fastattnerase.models.errors import ModelError
from fastattnerase.models.packed import gather, offsets_of
from fastattnerase.models.wen import CNNEncoder, LSTMEncoder, MLPEncoder
from fastattnerase.saliency.lrp.recurrent import BackInTime, gru, lstm
from fastattnerase.saliency.lrp.rules import Rule, divide, linear_inputs, linear_units

Sinks = dict[str, Tensor]  # relevance of what is no item of a sequence, [B] by name
# From the relevance of what an encoder gave [T, D] to that of its items [T, I], and its sinks.
Back = Callable[[Tensor], tuple[Tensor, Sinks]]
# From an encoder, its items [T, I] in float64 and lengths [B]: what it gives [T, D], the way back.
EncoderRule = Callable[[Any, Tensor, Tensor, Rule], tuple[Tensor, Back]]

ENCODER_RULES: dict[type[Encoder], EncoderRule] = {}


def encoder_rule(*encoders: type[Encoder]) -> Callable[[EncoderRule], EncoderRule]:
    """Register a rule for encoders of these very types; give the decorator that does it.

    Example:
        >>> from fastattnerase.models.encoders import NoEncoder
        >>> from fastattnerase.saliency.lrp.encoders import encoder_rule
        >>> class Doubled(NoEncoder):
        ...     def forward(self, values, lengths):
        ...         return 2 * values
        >>> @encoder_rule(Doubled)
        ... def doubled(encoder, values, lengths, rule):
        ...     return 2 * values, lambda relevance: (relevance, {})
    """

    def decorate(rule: EncoderRule) -> EncoderRule:
        ENCODER_RULES.update(dict.fromkeys(encoders, rule))
        return rule

    return decorate


def encode(
    name: str, encoder: nn.Module, values: Tensor, lengths: Tensor, rule: Rule
) -> tuple[Tensor, Back]:
    """Run an encoder in float64, and take relevance back through it.

    Args:
        name: where the encoder is in the model.
        encoder: the encoder.
        values: `[T, I]`, float64, packed.
        lengths: `[B]`, int64, sum `T`.
        rule: `ε` and `δ`.

    Returns:
        What it gives, `[T, D]`, and the way back.

    Raises:
        ModelError: it has no rule.
    """
    found = ENCODER_RULES.get(type(encoder))  # type: ignore[arg-type]
    if found is None:
        known = ", ".join(sorted(kind.__name__ for kind in ENCODER_RULES))
        raise ModelError(
            f"layer: given {name}, a {type(encoder).__name__}, for which LRP has no rule, needed "
            f"one of {known}"
        )
    return found(encoder, values, lengths, rule)


@encoder_rule(NoEncoder)
def _as_they_are(
    encoder: NoEncoder, values: Tensor, lengths: Tensor, rule: Rule
) -> tuple[Tensor, Back]:
    return values, lambda relevance: (relevance, {})


@encoder_rule(MLPEncoder)
def _layer_on_each(
    encoder: MLPEncoder, values: Tensor, lengths: Tensor, rule: Rule
) -> tuple[Tensor, Back]:
    weight, bias = encoder.layer.weight.double(), encoder.layer.bias.double()  # [H, I], [H]
    outputs = values @ weight.T + bias  # [T, H]

    def back(relevance: Tensor) -> tuple[Tensor, Sinks]:
        units = linear_units(relevance, outputs, bias, values.shape[1], rule)
        return linear_inputs(values, weight, units), {}

    return encoder.activation(outputs), back


@encoder_rule(ConvEncoder, CNNEncoder)
def _convolutions(
    encoder: ConvEncoder, values: Tensor, lengths: Tensor, rule: Rule
) -> tuple[Tensor, Back]:
    """Convolve in one row with gaps, as the encoder does; zeros in a gap are no inputs."""
    gap = max(encoder.widths) // 2
    before = torch.arange(len(lengths), device=lengths.device) * gap  # [B]
    index = torch.arange(len(values), device=lengths.device)
    index = index + before.repeat_interleave(lengths)  # [T], places in the row
    size = len(values) + gap * len(lengths)

    def in_row(items: Tensor) -> Tensor:
        row = items.new_zeros(size, items.shape[1])  # [L, I]
        return row.index_copy(0, index, items).T[None]  # [1, I, L]

    def out_of_row(row: Tensor) -> Tensor:
        return row[0].T[index]  # [T, I]

    filters = [
        (part.weight.double(), part.bias.double())  # [F, I, K], [F]
        for part in encoder.convolutions
        if isinstance(part, nn.Conv1d) and part.bias is not None
    ]
    if not len(values):
        return values.new_zeros(0, encoder.output_size), lambda relevance: (values, {})
    row = in_row(values)
    outputs = [
        out_of_row(F.conv1d(row, weight, bias, padding=weight.shape[2] // 2))
        for weight, bias in filters
    ]  # [T, F] each
    real = in_row(values.new_ones(len(values), 1))  # [1, 1, L]

    def back(relevance: Tensor) -> tuple[Tensor, Sinks]:
        found = torch.zeros_like(values)  # [T, I]
        parts = torch.split(relevance, [len(bias) for _, bias in filters], 1)
        for part, output, (weight, bias) in zip(parts, outputs, filters, strict=True):
            width = weight.shape[2]
            window = weight.new_ones(1, 1, width)
            seen = out_of_row(F.conv1d(real, window, padding=width // 2))  # [T, 1], items seen
            ratio, spread = divide(part, output, rule)  # [T, F] both
            if rule.delta:
                spread += bias
            inputs = seen[:, 0] * values.shape[1]  # [T], N
            share = (spread * ratio).sum(1) / inputs  # [T]
            taken = F.conv_transpose1d(in_row(ratio), weight, padding=width // 2)  # [1, I, L]
            shared = F.conv1d(in_row(share[:, None]), window, padding=width // 2)  # [1, 1, L]
            found += out_of_row(taken).mul_(values).add_(out_of_row(shared))
        return found, {}

    return torch.cat(outputs, 1).relu(), back


@encoder_rule(GRUEncoder, LSTMEncoder)
def _both_directions(
    encoder: RecurrentEncoder, values: Tensor, lengths: Tensor, rule: Rule
) -> tuple[Tensor, Back]:
    """Run over groups of similar length in padded columns, each direction from its own end."""
    starts = offsets_of(lengths)[:-1]  # [B]
    half = encoder.output_size // 2
    states = values.new_zeros(len(values), encoder.output_size)  # [T, 2H]
    runs: list[tuple[str, slice, Tensor, Tensor, Tensor, BackInTime]] = []
    for group in groups_of_similar_length(lengths):
        length = lengths[group]  # [G]
        steps = torch.arange(int(length.max()), device=values.device)[:, None]  # [N, 1]
        real = steps < length  # [N, G]
        step = torch.minimum(steps, length - 1)  # [N, G]
        for name, module, place, columns in (
            ("ahead", encoder.ahead, starts[group] + step, slice(half)),
            ("back", encoder.back, starts[group] + length - 1 - step, slice(half, None)),
        ):
            rows = gather(values, place)  # [N, G, I]
            if isinstance(module, nn.LSTM):
                found, back = lstm(module, rows, rule)
            else:
                found, back = gru(module, rows, rule)
            states[place[real], columns] = found[real]
            runs.append((name, columns, group, place, real, back))

    def take_back(relevance: Tensor) -> tuple[Tensor, Sinks]:
        to_items = torch.zeros_like(values)  # [T, I]
        names = ("h_0", "c_0") if isinstance(encoder, LSTMEncoder) else ("h_0",)
        sinks = {
            f"{state}_{direction}": values.new_zeros(len(lengths))  # [B]
            for direction in ("ahead", "back")
            for state in names
        }
        while runs:  # what a run kept is let go once it is used
            name, columns, group, place, real, back = runs.pop()
            own = gather(relevance[:, columns], place) * real[..., None]  # [N, G, H]
            found, initial = back(own)
            to_items[place[real]] += found[real]
            for state, total in initial.items():
                sinks[f"{state}_{name}"][group] = total
        return to_items, sinks

    return states, take_back
