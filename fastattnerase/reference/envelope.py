"""The least and the largest output over all sets of s kept items, for every s.

`v(S) = Σ_S a m / Σ_S a` is a linear-fractional objective: from a lower bound λ of the largest take
the s items with the largest `a_i (m_i − λ)`; where their v exceeds λ it is the next bound, else λ
is the answer (Dinkelbach 1967).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.exact_problems import EnvelopeOutputs, EnvelopeProblem

ROUNDS = 100  # of refining a bound; two or three are usual


def envelope_instance(problem: EnvelopeProblem, out: EnvelopeOutputs, b: int) -> None:
    """Fill what belongs to instance `b`; all tensors are on the CPU."""
    items = slice(int(problem.offsets[b]), int(problem.offsets[b + 1]))
    points = slice(int(problem.point_offsets[b]), int(problem.point_offsets[b + 1]))
    weights, outputs, empty = problem.weights[items], problem.outputs[items], problem.empty[b]
    kept = problem.kept[points]  # [p]
    for k in range(outputs.shape[1]):
        m, nothing = outputs[:, k], float(empty[k])
        out.upper[points, k] = largest_outputs(weights, m, nothing, kept)
        out.lower[points, k] = -largest_outputs(weights, -m, -nothing, kept)
    for order, curve in zip(problem.orders[:, items], out.curves, strict=True):
        first = order if problem.keep else order.flip(0)  # [n], those kept first
        terms = torch.cat([outputs * weights[:, None], weights[:, None]], dim=1)[first]  # [n, K+1]
        sums = torch.cat([terms.new_zeros(1, terms.shape[1]), terms.cumsum(0)])[kept]  # [p, K + 1]
        mass = sums[:, -1:]  # [p, 1]
        curve[points] = torch.where(mass > 0, sums[:, :-1] / mass, empty).amin(1)


def largest_outputs(weights: Tensor, m: Tensor, empty: float, kept: Tensor) -> Tensor:
    """Find the largest output of `kept` [p] items of weights [n] and outputs m [n] alone: [p]."""
    found = torch.full((len(kept),), empty, dtype=torch.float64)  # [p]
    massless = int((weights == 0).sum())
    if massless == len(weights):
        return found
    # An output is an item's own and a difference: beside a heavy item what light ones add is lost.
    bound = float(m[weights > 0].min()), 0.0
    # A set of fewer items reaches at least as far: the bound of more is where it begins.
    for point in kept.argsort(descending=True, stable=True).tolist():
        s = int(kept[point])
        if s == 0:
            continue
        for _ in range(ROUNDS):
            value = value_beyond(weights, m, s, bound)
            if value is None or not (value[0] - bound[0]) + value[1] > bound[1]:
                break
            bound = value
        reached = bound[0] + bound[1]
        # A set of items without weight is as good as none.
        found[point] = max(reached, empty) if s <= massless else reached
    return found


def value_beyond(
    weights: Tensor, m: Tensor, s: int, bound: tuple[float, float]
) -> tuple[float, float] | None:
    """Evaluate the s items with the largest a (m − bound); None without mass.

    As the output of the heaviest of them alone, and the difference from it.
    """
    keys = weights * ((m - bound[0]) - bound[1])  # [n]
    chosen = keys.argsort(descending=True, stable=True)[:s].sort().values  # [s]
    heaviest = int(chosen[weights[chosen].argmax()])
    if float(weights[heaviest]) == 0:
        return None
    own = float(m[heaviest])
    mass = float(weights[chosen].cumsum(0)[-1])
    return own, float((weights * (m - own))[chosen].cumsum(0)[-1]) / mass
