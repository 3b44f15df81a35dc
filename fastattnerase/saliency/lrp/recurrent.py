"""Relevance through recurrent layers: all of a gate's product to the signal, step by step back.

Each function runs a layer over sequences in padded columns and gives, beside its states, a function
that takes their relevance back to the inputs. Steps after a sequence's end come last and have no
relevance, so that they neither give nor take any.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fastattnerase.models.errors import ModelError
from fastattnerase.saliency.lrp.rules import Rule, linear_inputs, linear_units, sum_parts

# From the relevance of the states [N, G, H] to that of the inputs [N, G, E] and of what the first
# step starts from, [G] each by name.
BackInTime = Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]


def lstm(module: nn.LSTM, values: Tensor, rule: Rule) -> tuple[Tensor, BackInTime]:
    """Run an LSTM, and take relevance back through it.

    `c_t = f ⊙ c_{t−1} + i ⊙ g`, `h_t = o ⊙ tanh(c_t)`, `g = tanh(W x_t + U h_{t−1} + b)`. The
    gates `i`, `f` and `o` get nothing: relevance goes from `h_t` to `c_t`, is parted between `f ⊙
    c_{t−1}` and `i ⊙ g` (`N = 2H`), and goes from `g` to `x_t` and `h_{t−1}` (`N = E + H`).

    Args:
        module: one layer, one direction.
        values: `[N, G, E]`, float64.
        rule: `ε` and `δ`.

    Returns:
        The states `h`, `[N, G, H]`, and the way back; initial states: `h_0`, `c_0`.

    Raises:
        ModelError: a layer of another form.

    Source:
        Arras et al. 2017, 2019.
    """
    # [4H, E], [4H, H], [4H] and [4H]: of the gates i, f, of g, of o.
    own, back, bias, bias_back = _parameters(module)
    bias = bias + bias_back
    steps, columns, size = values.shape
    width = module.hidden_size
    entering = values @ own.T + bias  # [N, G, 4H]
    states = values.new_zeros(steps + 1, columns, width)  # h, after each step; the first is h_0
    cells = values.new_zeros(steps + 1, columns, width)
    signal = values.new_empty(steps, columns, width)  # W x + U h + b of g
    kept, added = torch.empty_like(signal), torch.empty_like(signal)  # f ⊙ c, i ⊙ g
    for t in range(steps):
        gates = torch.addmm(entering[t], states[t], back.T)  # [G, 4H]
        signal[t] = gates[:, 2 * width : 3 * width]
        taken, forgotten = gates[:, : 2 * width].sigmoid().chunk(2, 1)  # [G, H] both
        torch.mul(forgotten, cells[t], out=kept[t])
        torch.mul(taken, signal[t].tanh(), out=added[t])
        torch.add(kept[t], added[t], out=cells[t + 1])
        shown = gates[:, 3 * width :].sigmoid()  # [G, H]
        torch.mul(shown, cells[t + 1].tanh(), out=states[t + 1])
    of_signal = slice(2 * width, 3 * width)
    own_signal, back_signal, bias_signal = own[of_signal], back[of_signal], bias[of_signal]

    def take_back(relevance: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        ratios = torch.empty_like(signal)  # [N, G, H]
        shares = values.new_empty(steps, columns, 1)
        to_state = values.new_zeros(columns, width)  # of h_t, from the step after
        to_cell = values.new_zeros(columns, width)
        for t in reversed(range(steps)):
            total = to_cell + to_state + relevance[t]  # [G, H], of c_t
            to_cell, to_signal = sum_parts(total, kept[t], added[t], cells[t + 1], rule)
            units = linear_units(to_signal, signal[t], bias_signal, size + width, rule)
            to_state = linear_inputs(states[t], back_signal, units)
            ratios[t], shares[t] = units
        to_inputs = (ratios @ own_signal).mul_(values).add_(shares)  # [N, G, E]
        return to_inputs, {"h_0": to_state.sum(1), "c_0": to_cell.sum(1)}

    return states[1:], take_back


def gru(module: nn.GRU, values: Tensor, rule: Rule) -> tuple[Tensor, BackInTime]:
    """Run a GRU in torch's form, and take relevance back through it.

    `n = tanh(W x_t + b + r ⊙ (U h_{t−1} + d))`, `h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}`. The gates `r`
    and `z` get nothing: relevance of `h_t` is parted between the two products (`N = 2H`), and goes
    from `n` to `W x_t` and `r ⊙ U h_{t−1}` (`N = E + H`, bias `b + r ⊙ d`).

    Args:
        module: one layer, one direction.
        values: `[N, G, E]`, float64.
        rule: `ε` and `δ`.

    Returns:
        The states `h`, `[N, G, H]`, and the way back; initial state: `h_0`.

    Raises:
        ModelError: a layer of another form.
    """
    # [3H, E], [3H, H], [3H] and [3H]: of the gates r, z and of n.
    own, back, bias, bias_back = _parameters(module)
    steps, columns, size = values.shape
    width = module.hidden_size
    entering = values @ own.T + bias  # [N, G, 3H]
    states = values.new_zeros(steps + 1, columns, width)  # h, after each step; the first is h_0
    signal = values.new_empty(steps, columns, width)  # W x + b + r ⊙ (U h + d)
    reset, kept, added = (torch.empty_like(signal) for _ in range(3))  # r, z ⊙ h, (1 − z) ⊙ n
    for t in range(steps):
        returning = torch.addmm(bias_back, states[t], back.T)  # [G, 3H]
        gates = (entering[t, :, : 2 * width] + returning[:, : 2 * width]).sigmoid()  # [G, 2H]
        reset[t], update = gates.chunk(2, 1)  # [G, H] both
        of_signal = entering[t, :, 2 * width :], reset[t], returning[:, 2 * width :]  # [G, H] each
        torch.addcmul(*of_signal, out=signal[t])
        torch.mul(update, states[t], out=kept[t])
        torch.mul(1 - update, signal[t].tanh(), out=added[t])
        torch.add(kept[t], added[t], out=states[t + 1])
    own_signal, back_signal = own[2 * width :], back[2 * width :]  # [H, E], [H, H]
    bias_signal, bias_reset = bias[2 * width :], bias_back[2 * width :]  # [H] both, b and d

    def take_back(relevance: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        ratios = torch.empty_like(signal)  # [N, G, H]
        shares = values.new_empty(steps, columns, 1)
        to_state = values.new_zeros(columns, width)  # of h_t, from the step after
        for t in reversed(range(steps)):
            total = to_state + relevance[t]  # [G, H], of h_t
            to_kept, to_signal = sum_parts(total, kept[t], added[t], states[t + 1], rule)
            own_bias = torch.addcmul(bias_signal, reset[t], bias_reset)  # [G, H]
            units = linear_units(to_signal, signal[t], own_bias, size + width, rule)
            ratios[t], shares[t] = units
            # Of U h the unit sees r ⊙ U h, so that r belongs to its weights.
            through = units._replace(ratio=units.ratio * reset[t])
            to_state = linear_inputs(states[t], back_signal, through).add_(to_kept)
        to_inputs = (ratios @ own_signal).mul_(values).add_(shares)  # [N, G, E]
        return to_inputs, {"h_0": to_state.sum(1)}

    return states[1:], take_back


def _parameters(module: nn.LSTM | nn.GRU) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give weights of inputs and of states, and their biases, in float64, gate under gate.

    Raises:
        ModelError: the layer has a form without a rule here.
    """
    plain = module.num_layers == 1 and not module.bidirectional and not module.proj_size
    if not plain or not module.bias or module.batch_first:
        raise ModelError(
            f"layer: given {module}, needed one layer in one direction with biases, steps first, "
            "for which LRP has a rule"
        )
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    own, back, bias, bias_back = (module.get_parameter(name).double() for name in names)
    return own, back, bias, bias_back
