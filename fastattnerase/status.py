"""What the engine says about instances that need a second look."""

from __future__ import annotations

from enum import IntFlag

from torch import Tensor


class Status(IntFlag):
    """The bits of a result's `status` [B], int64; 0 where nothing is to be said.

    One bad instance never fails a batch and never changes another's result: it is marked here.

    - `EMPTY` 1: no items; the label is the largest bias, nothing flips.
    - `SINGLE` 2: one item; computed as any other.
    - `ZERO_MASS` 4: all weights are zero; the label is the largest bias, nothing flips.
    - `NON_FINITE` 8: a contribution, weight, score (but -inf) or bias is not finite; label, flips
      and sizes are -1, probabilities and divergences NaN.
    - `UNDERFLOW` 16: finite scores span more than 600; computed with a running maximum, exactly.
    - `NEAR_TIE` 32: a compared sum is too near to zero for backends to promise the same decision;
      computed as any other. Judged for linear heads only: a callable head's scale is unknown.
    - `INVALID` 64: with `validate=False`, an order that is no permutation, a negative weight or a
      NaN ranking score; results are -1 and NaN.

    >>> Status(17)
    <Status.EMPTY|UNDERFLOW: 17>
    >>> result_status = 40
    >>> Status.NEAR_TIE in Status(result_status)
    True
    """

    EMPTY = 1
    SINGLE = 2
    ZERO_MASS = 4
    NON_FINITE = 8
    UNDERFLOW = 16
    NEAR_TIE = 32
    INVALID = 64


def status_names(status: Tensor) -> list[str]:
    """Name the flags of each status [B]: "EMPTY|UNDERFLOW", or "" where there is none.

    >>> import torch
    >>> status_names(torch.tensor([0, 2, 17]))
    ['', 'SINGLE', 'EMPTY|UNDERFLOW']
    """
    return ["|".join(str(flag.name) for flag in Status if flag & bits) for bits in status.tolist()]
