"""What the engine says about instances that need a second look."""

from __future__ import annotations

from enum import IntFlag


class Status(IntFlag):
    """The bits of a result's `status` [B], int64; 0 where nothing is to be said.

    One bad instance never fails a batch and never changes another's result: it is marked here.

    >>> Status(17)
    <Status.EMPTY|UNDERFLOW: 17>
    """

    EMPTY = 1
    """No items: the label is the largest bias, nothing flips."""
    SINGLE = 2
    """One item; computed as any other."""
    ZERO_MASS = 4
    """All weights zero: the label is the largest bias, nothing flips."""
    NON_FINITE = 8
    """A contribution, weight, score (but -inf) or bias is not finite: label and flips are -1."""
    UNDERFLOW = 16
    """Finite scores span more than 600: computed with a running maximum, exactly."""
    NEAR_TIE = 32
    """A compared sum is too near to zero for backends to promise the same decision.

    Judged for linear heads only: the scale of a callable head is unknown.
    """
    INVALID = 64
    """With `validate=False`: no permutation, a negative weight, a NaN ranking score."""
