"""Sums over survivors: from the tail of an order, or over all items but one.

All run in one direction by `cumsum`, whose rounding does not depend on the number of threads.
"""

from __future__ import annotations

import torch
from torch import Tensor


def suffix_sums(terms: Tensor) -> Tensor:
    """Sum `terms[k:]` for every `k`, from the tail: [n, …] to [n + 1, …]."""
    sums = terms.flip(0).cumsum(0).flip(0)  # [n, …]
    return torch.cat([sums, terms.new_zeros(1, *terms.shape[1:])])


def scaled_suffix_sums(scores: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Sum `exp(scores[j] - m_k) terms[j]` over `j >= k`, `m_k` the largest score there.

    Returns the sums [n + 1, K] and the sums of the exponentials alone [n + 1]; both are on the
    scale of their own `k`, so that only signs and quotients mean something.
    """
    n = len(scores)
    sums = terms.new_zeros(n + 1, terms.shape[1])
    mass = terms.new_zeros(n + 1)
    values = scores.tolist()
    largest = -float("inf")
    for k in reversed(range(n)):
        before, largest = largest, max(largest, values[k])
        if largest == -float("inf"):
            continue
        carried, own = torch.tensor([before - largest, values[k] - largest], dtype=sums.dtype).exp()
        sums[k] = sums[k + 1] * carried + terms[k] * own
        mass[k] = mass[k + 1] * carried + own
    return sums, mass


def sums_over_others(weights: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Sum `weights[j] terms[j]` and `weights[j]` over all `j` but `i`, by additions only."""
    weighted = torch.cat([weights[:, None] * terms, weights[:, None]], dim=1)  # [n, K + 1]
    before = torch.zeros_like(weighted)
    before[1:] = weighted[:-1].cumsum(0)
    sums = before + suffix_sums(weighted)[1:]  # [n, K + 1]
    return sums[:, :-1], sums[:, -1]


def scaled_sums_over_others(scores: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Do as `sums_over_others` with weights `exp(score - the largest score of the others)`."""
    if not bool((scores > -torch.inf).any()):
        return sums_over_others(torch.zeros_like(scores), terms)
    top = int(scores.argmax())
    sums, mass = sums_over_others((scores - scores[top]).exp(), terms)
    others = torch.arange(len(scores)) != top
    if bool((scores[others] > -torch.inf).any()):
        weights = (scores[others] - scores[others].max()).exp()  # [n - 1]
        sums[top] = suffix_sums(weights[:, None] * terms[others])[0]
        mass[top] = suffix_sums(weights)[0]
    return sums, mass
