"""Integers as they are given: of any type that holds them without loss."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.runs.rundir import RunError
from fastattnerase.tensor_checks import FLOATS


def whole_numbers(name: str, given: Tensor) -> Tensor:
    """Give integers as int64, also where they are stored as floats.

    Raises:
        RunError: a number that is not whole; names the argument.
    """
    if given.is_complex() or (given.is_floating_point() and given.dtype not in FLOATS):
        raise RunError(f"{name}: given {given.dtype}, needed integers")
    if given.is_floating_point():
        most = round(2 / torch.finfo(given.dtype).eps)  # beyond, it lacks integers: ids become one
        broken = given[~((given == given.trunc()) & (given.abs() <= most))]  # NaN, too
        if len(broken):
            raise RunError(
                f"{name}: given {float(broken[0]):g}, needed integers, up to {most:,} as they are "
                f"stored in {str(given.dtype).removeprefix('torch.')}"
            )
    whole = given.long()
    if given.dtype == torch.uint64 and bool((whole < 0).any()):
        raise RunError(f"{name}: given an integer of {2**63:,} or more, needed less, as int64 has")
    return whole
