"""Shapley values of the pooled output without sampling: a double integral, item by item.

    φ_i = ∫_0^1 ∫_0^∞ (P / F_i) [e^{−u a_i} (a_i s_i + R_i) − R_i] du dp
    F_j = 1 − p + p e^{−u a_j},  P = Π_j F_j,  R_i = Σ_{j≠i} p a_j s_j e^{−u a_j} / F_j

since `1 / Σ_S a = ∫ exp(−u Σ_S a) du` and every other item is kept with probability p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Steps of the trapezoidal rule in both variables, coarse to fine: its error falls as exp(−c / h).
STEPS = (0.5, 0.36, 0.26, 0.19, 0.135)
# How far the transformed variables run beyond the bend where they become doubly exponential.
_TAIL = 3.3
_BEND = 4.0


@dataclass
class Shapley:
    """Shapley values of one instance, and how sure they are."""

    values: Tensor  # [n, C], float64
    error: float  # the largest change by the last refinement
    efficiency: float  # the largest |Σ_i φ_i − Σ_i a_i s_i| over classes
    nodes: int  # of the last refinement


def shapley(log_weights: Tensor, contributions: Tensor, tolerance: float) -> Shapley:
    """Compute the values of items of log weights [n] (−inf: none) and contributions [n, C].

    The step is refined until the change is at most `tolerance` of the largest value.
    """
    n, C = contributions.shape
    values = contributions.new_zeros(n, C)
    own = (log_weights > -torch.inf).nonzero()[:, 0]  # [m], the others change nothing
    if not len(own):
        return Shapley(values, 0.0, 0.0, 0)
    logs, terms = log_weights[own].log_softmax(0), contributions[own]  # [m], [m, C]
    whole = (logs.exp()[:, None] * terms).sum(0)  # [C]
    before, change, gap, nodes = torch.full_like(terms, torch.inf), math.inf, math.inf, 0
    for step in STEPS:
        found, nodes = trapezoidal(logs, terms, step)  # [m, C]
        change = float((found - before).abs().max())
        gap = float((found.sum(0) - whole).abs().max())
        before = found
        if max(change, gap) <= tolerance * float(found.abs().max()):
            break
    values[own] = before
    return Shapley(values, change, gap, nodes)


def trapezoidal(logs: Tensor, terms: Tensor, step: float) -> tuple[Tensor, int]:
    """Sum the integrand over even nodes: logs [m] of weights that sum to 1, terms [m, C]."""
    p, rest, p_weight = probabilities(len(logs), step)  # [Q] each
    found, nodes = torch.zeros_like(terms), 0
    for log_u, u_weight in exponents(float(logs.min()), step):
        y = (log_u + logs).exp().clamp(max=1e4)  # [m], u a
        x, q = (-y).exp(), -torch.expm1(-y)  # [m]
        weighted = y[:, None] * terms  # [m, C], u a s
        F = rest[:, None] + p[:, None] * x  # [Q, m]
        log_P = F.log().sum(1)  # [Q]
        G = p[:, None] * x / F  # [Q, m]
        R = G @ weighted  # [Q, C]
        A = (p_weight * u_weight)[:, None] * (log_P[:, None] - F.log()).exp()  # [Q, m]
        kept = A.sum(0) * x + (A * G).sum(0) * q  # [m], of the item's own term
        found += kept[:, None] * weighted - q[:, None] * (A.T @ R)
        nodes += len(p)
    return found, nodes


def probabilities(n: int, step: float) -> tuple[Tensor, Tensor, Tensor]:
    """Find the nodes in p, 1 − p and their weights [Q]: even steps in ln(p / (1 − p)).

    From where p is far below 1 / n to where 1 − p is negligible, with ends that fall off doubly
    exponentially.
    """
    low, high = -math.log(n) - _BEND, _BEND
    t = torch.arange(
        math.floor((low - _TAIL) / step), math.ceil((high + _TAIL) / step) + 1, dtype=torch.float64
    )  # [Q]
    t = t * step
    left, right = (low - t).exp(), (t - high).exp()
    r = t - left + right
    p, rest = r.sigmoid(), (-r).sigmoid()
    return p, rest, p * rest * (1 + left + right) * step


def exponents(least: float, step: float) -> list[tuple[float, float]]:
    """List ln u and the weights of du / u: from u far below 1 to beyond 40 / the least weight."""
    first, last = -_BEND - _TAIL, math.log(40) - least
    nodes = range(math.floor(first / step), math.ceil(last / step) + 1)
    found = []
    for t in (step * k for k in nodes):
        left = math.exp(-_BEND - t)
        found.append((t - left, (1 + left) * step))
    return found
